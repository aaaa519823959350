"""Attacks on the mathematical verifier: one test per kind. None may earn the reward or stop a worker."""

import os
import time
from pathlib import Path

import pytest

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import WorkerPool

TIMEOUT_S = 5.0


@pytest.fixture(scope="module")
def verifier(symbolic_workers: WorkerPool) -> MathVerifier:
    verifier = MathVerifier(MathVerifier.Config(kind="math", timeout_s=TIMEOUT_S), symbolic_workers)
    verifier.start()
    return verifier


def judge(verifier: MathVerifier, reference: str, text: str) -> Verdict:
    return verifier.verify(Problem("p", "q", reference), text)


def box(answer: str) -> str:
    return f"<think>...</think>\\boxed{{{answer}}}"


def assert_refused(verifier: MathVerifier, reference: str, *texts: str) -> None:
    """A zero that enters the statistics, not a failure of the verifier that would be left out of them."""
    for text in texts:
        verdict = judge(verifier, reference, text)
        assert verdict.outcome in (Outcome.WRONG, Outcome.UNPARSABLE), (text[:100], verdict)
        assert verdict.reward == 0.0, text[:100]


def assert_right(verifier: MathVerifier, reference: str, *texts: str) -> None:
    for text in texts:
        verdict = judge(verifier, reference, text)
        assert verdict.outcome is Outcome.CORRECT, (text, verdict)


def test_01_candidates_in_one_box(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", box("1,2,3,4,5"), box("3, 4"), box(r"\{3, 4\}"))


def test_02_candidates_in_many_boxes(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", r"\boxed{1} \boxed{2} \boxed{3}", r"\boxed{3} \boxed{4}", r"\boxed{4}\boxed{3}")
    assert_refused(verifier, "3", r"\boxed{4}. No, it must be \boxed{3}.")
    assert_right(verifier, "3", r"\boxed{3}, so the answer is \boxed{ 3}.")


def test_03_one_or_the_other(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", r"\boxed{3} or \boxed{4}", box(r"3 \text{ or } 4"), box("3 or 4"), box(r"3 \lor 4"))


def test_04_ranges_that_cover_the_answer(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", box(r"\pm 3"), box("[1,5]"), box(r"x \geq 3"), box("1<x<5"), box(r"3 \pm 1"))


def test_05_false_chains(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", box("4=3"), box("3=4"), box(r"5 \approx 3"), box(r"3 \approx 5"), box("x+1=3"))
    assert_refused(verifier, "3", box("x=4=3"), box("x=3=4"), box(r"x=2\cdot 3=3"))
    assert_right(verifier, "3", box("x=1+2=3"), box("n = 3"))


def test_06_nothing_in_the_box(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", box(""), box(" "), box(r"\text{}"), box("$$"), "", "I do not know.", box("{}"))
    tagged = MathVerifier(MathVerifier.Config(kind="math", extraction="tag"))
    assert tagged.verify(Problem("p", "q", "3"), "<answer></answer>").outcome is Outcome.UNPARSABLE


def test_07_the_answer_only_while_thinking(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", r"<think>\boxed{3}</think> Done.", r"<think>\boxed{3}", r"</think><think>\boxed{3}")


def test_08_the_answer_only_in_prose(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", "So we need step 3", "First 3 apples, then more.", "The answer is $3$.")


def test_09_right_prose_and_a_wrong_box(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", r"The final answer is $3$. I hope it is correct. \boxed{4}")


def test_10_a_wrong_box_and_right_prose(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", r"\boxed{4} The final answer is 3")


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (r"\frac13", r"\int_0^1 x^2 dx"), ("55", r"\sum_{k=1}^{10} k"), ("1", r"\lim_{x\to 0}\frac{\sin x}{x}"),
        ("-2", r"\det\begin{pmatrix}1&2\\3&4\end{pmatrix}"), ("-2", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"),
        ("24", r"\prod_{k=1}^{4} k"), ("2x", r"\frac{d}{dx} x^2"), ("6", r"\gcd(12, 18)"), ("6", r"\text{lcm}(2, 3)"),
    ],
)  # fmt: skip
def test_11_the_question_restated(verifier: MathVerifier, reference: str, answer: str) -> None:
    assert_refused(verifier, reference, box(answer))


@pytest.mark.parametrize(
    "bomb",
    ["9^{9^{9^9}}", "1000000000!", "(10^9)!",
     r"\binom{10^9}{5\cdot 10^8}", r"7^{7^{7^7}} \bmod 10", r"\prod_{k=1}^{10^8} k",
     r"\frac{5^{5^{5^{5^5}}}-5}{16}", "9**9**9**9", "9^9^9^9", "((((9^9)^9)^9)^9)^9^9", "5!!!!", "3 + 10^{-10^{10}}",
     r"\sqrt[9^{9^9}]{2}", r"\exp(\exp(\exp(99)))", "1e999999999", "(0, 9^{9^{9^9}})", r"\gcd(9^{9^{9^9}}, 3)",
     r"\begin{pmatrix}2&1\\1&1\end{pmatrix}^{10^9}", "(1000000000)_{500000000}", r"\operatorname{zeros}(99999, 99999)",
     r"\binom{27\pi}{1024}", r"2^{\frac{1}{10^{-9}}}", r"\left(x+1\right)^{99999999}", r"\cosh(10^{12})"],
)  # fmt: skip
def test_12_bombs_are_refused_unlit(verifier: MathVerifier, bomb: str) -> None:
    start = time.monotonic()
    assert_refused(verifier, "5", box(bomb))
    assert time.monotonic() - start < 3 * TIMEOUT_S
    assert_right(verifier, "x+1", box(f"1+x+{len(bomb)}-{len(bomb)}"))


@pytest.mark.parametrize(
    "flood",
    ["{" * 5000 + "3" + "}" * 5000, "".join(f"\\boxed{{{i}}}" for i in range(20_000)),
     "3" * 200_000, "$" * 200_000, "3+" * 50_000, "(" * 9000,
     "3," * 4500, "=".join("3" * 30), r"\frac" * 1900, "x^" * 4900, r"\pm" * 3000, "\\text{" * 1500, ":" * 9000],
)  # fmt: skip
def test_13_floods(verifier: MathVerifier, flood: str) -> None:
    start = time.monotonic()
    assert_refused(verifier, "3", f"\\boxed{{4}} {flood}", box(flood), "\\boxed{" + flood)
    assert time.monotonic() - start < 3 * TIMEOUT_S


def test_14_code(verifier: MathVerifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    codes = ["5+open('p','w').write('x')", "__import__('os').system('touch p')", r"1\pi*open('p','w').write('x')",
             "[open('p','w').write('x'),2]", "().__class__.__base__.__subclasses__()", r"\text{exec}(1)"]  # fmt: skip
    for reference in ("7", r"\pi", r"\begin{pmatrix}1\\2\end{pmatrix}"):
        assert_refused(verifier, reference, *map(box, codes))
    assert not os.listdir(tmp_path)


def test_15_tiny_differences(verifier: MathVerifier) -> None:
    assert_refused(verifier, "10^{-30}", box("10^{-31}"))
    assert_refused(verifier, "0", box("10^{-30}"), box("10^{-300}"), box(r"\frac{1}{10^{40}}"))
    assert_refused(verifier, "x", box("x+10^{-30}"), box(r"x(1+10^{-50})"))
    assert_refused(verifier, "2^{2005}", box("2^{2005}+1"))
    assert_refused(verifier, r"\frac{1}{2004!}", box(r"\frac{1}{2006!}"))


def test_16_near_misses(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", box("3.0000001"), box("2.9999999999"))
    assert_refused(verifier, r"\pi", box("3.14"), box(r"\frac{22}{7}"), box("3.14159"))


def test_17_percent(verifier: MathVerifier) -> None:
    assert_right(verifier, "0.5", box(r"50\%"))
    assert_refused(verifier, "50", box("0.5"))
    assert_refused(verifier, r"\$20", box("0.2"), box(r"20\%x"))
    assert_right(verifier, "50", box(r"50\%"))  # the policy: a forgotten or an added sign is no other number


def test_18_thousands(verifier: MathVerifier) -> None:
    assert_refused(verifier, "32349", box("32, 349"))
    assert_right(verifier, "1000", box("1,000"), box("1{,}000"), box(r"1,\!000"), box(r"1\,000"))


def test_19_unicode(verifier: MathVerifier) -> None:
    assert_right(verifier, "-3", box("−3"), box("－３"))
    assert_refused(verifier, "3", box("\u202e3"), box("3\u200b"), box("٣"), box("3\u0000"))
    assert_refused(verifier, "x", box("х"))  # a Cyrillic letter


def test_20_text_that_hides(verifier: MathVerifier) -> None:
    assert_refused(verifier, "3", box(r"4\text{ not }3"), box(r"4 \text{ 3}"), box("3 % 4"), box(r"4 % 3"), box("4 3"))
    assert_refused(verifier, "3", box(r"3 \text{ or more}"), box(r"\text{not } 3"), box(r"3 \text{ if } x>0"))


def test_21_order_and_brackets(verifier: MathVerifier) -> None:
    assert_refused(verifier, "(3,1)", box("1,3"), box(r"\{1,3\}"), box(r"\{3,1\}"), box("(1,3)"), box("[3,1]"))
    assert_refused(verifier, "(1,3)", box("[1,3]"), box("(1,3]"), box("[1,3)"))


def test_22_letters_in_another_order(verifier: MathVerifier) -> None:
    assert_refused(verifier, "abc", box("cba"))
    assert_refused(verifier, r"\text{silent}", box(r"\text{listen}"), box("listen"))


def test_23_several_tags() -> None:
    with MathVerifier(MathVerifier.Config(kind="math", extraction="tag", format_reward=0.1)) as verifier:
        for text in ["<answer>4</answer><answer>3</answer>", "<answer>3<answer>3</answer></answer>",
                     "Write <answer>4</answer>! <answer>3</answer>", "<answer>3", "</answer>3<answer>"]:  # fmt: skip
            verdict = judge(verifier, "3", f"<think>a</think>{text}")
            assert verdict.outcome is Outcome.UNPARSABLE, text
            assert verdict.parts == {"accuracy": 0.0, "format": 0.0}, text


def test_24_farming_the_format_reward() -> None:
    with MathVerifier(MathVerifier.Config(kind="math", format_reward=0.1)) as verifier:
        words = "Step 1: Step 2: wait, because, so."
        for text in ("<think></think>", "<think></think>" * 9 + r"\boxed{3}", words, "<think>"):
            assert judge(verifier, "4", text).reward == 0.0, text
        best_without_answer = judge(verifier, "4", r"<think>" + "Step 1: wait. " * 99 + r"</think>\boxed{3}")
        assert best_without_answer.reward == 0.1  # the format part alone, whatever the words
