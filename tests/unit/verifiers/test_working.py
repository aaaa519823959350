"""The exact truth of workings, written out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diet_working import err, rounding, say
from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import decompose, pair_problem
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.working import StepJudgement, judge_working

PRODUCT = pair_problem("product", (47, 86))[1]
STORY = Problem(
    "s", "Tom has 12 caps and buys 5 boxes of 3.", "27", data={"steps": [("×", 5, 3, 15), ("+", 12, 15, 27)]}
)
CHAIN = Problem("c", "What is 12 + 5 × 3?", "27", data={"steps": [("×", 5, 3, 15), ("+", 12, 15, 27)]})
COUNTDOWN = Problem("n", "Using 3, 5 and 2 once each, make 16.", "(3+5)×2",
                    data={"numbers": [3, 5, 2], "target": 16, "steps": [("+", 3, 5, 8), ("×", 8, 2, 16)]})  # fmt: skip
DIGITS = st.integers(12, 99).filter(lambda n: n % 10)


def kinds(problem: Problem, text: str, answer: str | None, right: bool, step: str = "sentence") -> list[str]:
    outcome = Outcome.CORRECT if right else Outcome.WRONG if answer else Outcome.UNPARSABLE
    return [str(s.kind) for s in judge_working(problem, text, Verdict(outcome, {}, "", answer), step)]


def first_error(judged: list[StepJudgement]) -> int | None:
    return next((index for index, step in enumerate(judged) if not step.kind.correct), None)


@pytest.mark.parametrize(
    ("problem", "text", "answer", "right", "expected"),
    [
        (PRODUCT, "47×80=3760. 47×6=282. 3760+282=4042.", "4042", True, ["sound"] * 3),
        (PRODUCT, "47×90=4230. 47×4=188. 4230-188=4042.", "4042", True, ["sound"] * 3),
        (PRODUCT, "47×86=47×80+47×6=4042.", "4042", True, ["sound"]),
        (PRODUCT, "47×80=3750. 47×6=282. 3750+282=4032.", "4032", False, ["wrong", "sound", "inherits"]),
        (PRODUCT, "47×80=3750. 47×6=292. 3750+292=4042.", "4042", True, ["wrong", "wrong", "inherits"]),
        (PRODUCT, "47×80=3750. No. 47×80=3760. 47×6=282. 3760+282=4042.", "4042", True,
         ["wrong", "idle", "sound", "sound", "sound"]),
        (PRODUCT, "47×80=3760. 39×6=234. 3760+234=3994.", "3994", False, ["sound", "unknown_operand", "inherits"]),
        (PRODUCT, "47×80=3760. 47×80=3760. 1+1=2. 47×6=282. 3760+282=4042.", "4042", True,
         ["sound", "idle", "unknown_operand", "sound", "sound"]),
        (PRODUCT, "47+86=133. 47×80=3760. 47×6=282. 3760+282=4042.", "4042", True, ["idle", *["sound"] * 3]),
        (PRODUCT, "47×80=3760. 47×6=282. 3760-282=3478.", "3478", False, ["sound", "sound", "wrong"]),
        (PRODUCT, "47×80=3760. 47×6=282. So it is 4000.", "4000", False, ["idle", "idle", "wrong"]),
        (CHAIN, "12+5=17. 17×3=51. So 51.", "51", False, ["wrong", "inherits", "inherits"]),
        (STORY, "12+5=17. 17+3=20.", "20", False, ["wrong", "inherits"]),
        (STORY, "5×3=15. 12+15=27. It is 27.", "27", True, ["sound", "sound", "sound"]),
        (COUNTDOWN, "3+5=8. 8×2=16.", "(3+5)×2", True, ["sound", "sound"]),
        (COUNTDOWN, "3×2=6. 6+5=11. No. 3+5=8. 8×2=16.", "(3+5)×2", True, ["idle", "idle", "idle", "sound", "sound"]),
        (COUNTDOWN, "3×7=21. 21-5=16.", "3×7-5", False, ["unknown_operand", "inherits"]),
        (Problem("m", "Using 12 and 3 once each, make 36.", "12×3", data=COUNTDOWN.data | {"numbers": [12, 3]}),
         "10×3=30. 2×3=6.", "10×3", False, ["unknown_operand", "unknown_operand"]),
        (PRODUCT, "I do not know", None, False, ["wrong"]),
    ],
)  # fmt: skip
def test_by_hand(problem: Problem, text: str, answer: str | None, right: bool, expected: list[str]) -> None:
    assert kinds(problem, text, answer, right) == expected


def test_a_right_answer_may_have_a_wrong_working() -> None:
    right = Verdict(Outcome.CORRECT, {}, "", "4042")
    lucky = judge_working(PRODUCT, "47×80=3750. 47×6=292. 3750+292=4042.", right)
    honest = judge_working(PRODUCT, "47×80=3760. 47×6=282. 3760+282=4042.", right)
    assert first_error(lucky) == 0
    assert lucky[0].evidence == "47×80=3750 is false: 3760"
    assert first_error(honest) is None


@given(DIGITS, DIGITS, st.integers(0, 50))
def test_workings_of_the_corpus(left: int, right: int, number: int) -> None:
    problem = pair_problem("product", (left, right))[1]
    for steps in (decompose(left, right), rounding(left, right) if max(left % 10, right % 10) >= 7 else []):
        if steps:
            verdict = Verdict(Outcome.CORRECT, {}, "", str(left * right))
            assert first_error(judge_working(problem, say(steps), verdict, "sentence")) is None
    broken = err(Draw("working", number), decompose(left, right))
    answer = broken[-1][3]
    outcome = Outcome.CORRECT if answer == left * right else Outcome.WRONG
    found = judge_working(problem, say(broken), Verdict(outcome, {}, "", str(answer)), "sentence")
    values = {"×": lambda a, b: a * b, "+": lambda a, b: a + b, "-": lambda a, b: a - b}
    false = [i for i, (sign, a, b, result) in enumerate(broken) if values[sign](a, b) != result]
    assert first_error(found) == false[0]


def test_what_has_no_truth_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no plan"):
        judge_working(Problem("x", "Why?", ""), "text", Verdict(Outcome.CORRECT, {}, ""))
    with pytest.raises(ValueError, match="was not judged"):
        judge_working(PRODUCT, "text", Verdict(Outcome.TIMEOUT, {}, ""))
