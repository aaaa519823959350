"""What checking earns, by hand."""

from groupwise_lab.checking import checking_gain

from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome


def row(problem: str, checks: bool, right: bool, tokens: int) -> Row:
    text = "<think>1+1=2. Wait, let me check.</think>" if checks else "<think></think>"
    return Row(
        problem=problem, difficulty="", language="en", question="", reference="2", open_ended=False, prefill="",
        sample=0, text=text, finish_reason=FinishReason.STOP, answer="2", evidence="", num_tokens=tokens,
        outcome=Outcome.CORRECT if right else Outcome.WRONG,
    )  # fmt: skip


def test_the_gain_by_hand() -> None:
    """Checked: 3 of 4 right at 60 tokens; not checked: 1 of 4 at 20. 0.5 in 40 tokens is 1.25 in 100."""
    rows = [row(f"p{i}", True, i > 0, 60) for i in range(4)] + [row(f"p{i}", False, i == 0, 20) for i in range(4)]
    gain = checking_gain(rows)
    assert gain[:4] == (0.5, 0.75, 0.25, 40.0)
    assert gain.per_100_tokens.value == 1.25
    assert gain.per_100_tokens.low <= 1.25 <= gain.per_100_tokens.high


def test_problems_that_differ_make_an_interval_and_one_that_never_checks_counts() -> None:
    rows = [row(f"p{i}", i % 2 == 0, i % 3 == 0, 30 if i % 2 == 0 else 20) for i in range(30)]
    gain = checking_gain(rows)
    assert gain.per_100_tokens.low < gain.per_100_tokens.value < gain.per_100_tokens.high


def test_nothing_to_compare() -> None:
    assert checking_gain([row("p", True, True, 5), row("q", True, False, 9)]) is None
    assert checking_gain([row("p", False, True, 5)]) is None
    assert checking_gain([row("p", True, True, 5), row("q", False, True, 5)]) is None
