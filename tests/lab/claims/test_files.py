"""What a ledger's files may say, and how a mistake is answered."""

from pathlib import Path

import pytest
from groupwise_lab.claims.config import load_ledger
from groupwise_lab.claims.results import read_results, results_file

from groupwise.errors import ConfigError, DataError


def change(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("better.toml", '"above"', '"higher"', ["better.toml", "statistic.claimed", "'higher'", "'above'"]),
        ("better.toml", "seeds = 3", "seeds = 2", ["better.toml", "seeds", "2 decide nothing", "3 or more"]),
        ("better.toml", "margin = 0.1", "margin = -0.1", ["better.toml", "statistic.margin", "-0.1", "0"]),
        ("better.toml", "margin", "margen", ["better.toml", "margen", "did you mean 'margin'?"]),
        ("better.toml", '"difference"', '"slope"', ["better.toml", "'slope' needs 0 in `of`", "got 1 and 1"]),
        ("better.toml", '"difference"', '"ratio"', ["better.toml", "margin = 0.1 of a ratio", "1 or more"]),
        ("better.toml", "plain.after", "palin.after", ["better.toml", "no arm 'palin'", "plain, other"]),
        ("better.toml", '"plain.after.pass_at_1"', '"plain"', ["better.toml", "'plain'", "ARM.METRIC"]),
        ("better.toml", 'unit = "%"', "than = 1.0", ["better.toml", "than = 1.0 has no effect", "kind = 'level'"]),
        ("arms.toml", "minutes = 0.2", "minutes = 0", ["arms.toml", "arms.other.minutes", "0"]),
        ("arms.toml", "recipe", "recipes", ["arms.toml", "recipes", "did you mean 'recipe'?"]),
        ("arms.toml", "[arms.other]\nrecipe", "[arms.other]\npath", ["arms.other", "needs recipe", "path"]),
    ],
)
def test_a_mistake_names_file_key_value_and_what_is_allowed(
    folder: Path, file: str, old: str, new: str, words: list[str]
) -> None:
    change(folder, file, old, new)
    with pytest.raises(ConfigError) as caught:
        load_ledger(folder)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_an_unknown_claim_is_answered_with_those_there_are(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no claim 'worse' in .*; there are better"):
        load_ledger(folder).chosen("worse")


@pytest.mark.parametrize(("line", "words"), [("{}", "plain.jsonl:1 is no result"), ("{", "plain.jsonl:1 is no result")])
def test_a_line_that_is_no_result_is_named(folder: Path, line: str, words: str) -> None:
    path = results_file(folder, "plain")
    path.parent.mkdir()
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=words):
        read_results(folder, ["plain"])


def test_short_runs_have_five_seeds_and_longer_ones_three(folder: Path) -> None:
    change(folder, "better.toml", "seeds = 3\n", "")
    ledger = load_ledger(folder)
    assert ledger.seeds_of(ledger.claims["better"]) == 5
    change(folder, "arms.toml", "minutes = 0.2", "minutes = 4.1")
    ledger = load_ledger(folder)
    assert ledger.seeds_of(ledger.claims["better"]) == 3
    change(folder, "better.toml", "here =", "seeds = 7\nhere =")
    ledger = load_ledger(folder)
    assert ledger.seeds_of(ledger.claims["better"]) == 7
