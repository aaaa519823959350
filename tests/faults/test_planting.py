"""A slip is found by what it says, wherever it stands; what is there twice or not at all is refused."""

import ast

import pytest
from planting import Change, Edit, plant

PLAIN = """
class Bank:
    def _pay(self, amount):
        fee = rate(amount, self.share)
        return amount - fee
"""
MOVED = """
def settle(self, amount):  # moved, renamed, reformatted
    fee = rate(
        amount,
        self.share,
    )
    return (amount - fee)
"""


def changed(before: str, after: str, source: str, where: str = "bank") -> tuple[str, list[str]]:
    change = Change(Edit(where, before, after), ast.parse(source))
    return ast.unparse(change.tree), change.places


@pytest.mark.parametrize(("source", "name"), [(PLAIN, "Bank._pay"), (MOVED, "settle")])
def test_a_slip_survives_moving_renaming_and_reformatting(source: str, name: str) -> None:
    text, places = changed("rate(amount, self.share)", "rate(amount, 0)", source)
    assert places == [name]
    assert "fee = rate(amount, 0)" in text


def test_statements_are_replaced_as_they_follow_each_other() -> None:
    both = "fee = rate(amount, self.share); return amount - fee"
    text, places = changed(both, "return amount", PLAIN)
    assert places == ["Bank._pay"]
    assert text.endswith("def _pay(self, amount):\n        return amount")
    assert changed("return amount - fee; fee = rate(amount, self.share)", "pass", PLAIN)[1] == []


def test_every_place_counts_and_a_public_name_tells_them_apart() -> None:
    both = PLAIN + MOVED
    assert changed("amount - fee", "fee", both)[1] == ["Bank._pay", "settle"]
    assert changed("amount - fee", "fee", both, "bank:settle")[1] == ["settle"]
    assert changed("amount - fee", "fee", "x = amount - fee")[1] == [""]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Edit("errors", "no_such_name", "1"), "in 0 places"),
        (Edit("algorithms", "rewards.mean()", "0"), "places, not in one"),
        (Edit("training.update", "UpdateMetrics(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0, 0)", "None"), "outside of all"),
    ],
)
def test_what_cannot_be_planted_is_named(edit: Edit, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=says):
        plant(edit, monkeypatch)
