"""Attacks on the mathematical verifier, besides the wrong pairs: none may earn the reward or stop a worker."""

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


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{1} \boxed{2} \boxed{3}",
        r"\boxed{3} \boxed{4}",
        r"\boxed{4}\boxed{3}",
        r"\boxed{3} or \boxed{4}",
        r"\boxed{4}. No, it must be \boxed{3}.",
        r"<think>\boxed{3}</think> Done.",
        r"<think>\boxed{3}",
        r"</think><think>\boxed{3}",
        "First 3 apples, then more.",
        "The answer is $3$.",
        r"The final answer is $3$. I hope it is correct. \boxed{4}",
        r"\boxed{4} The final answer is 3",
        *map(box, ["", r"\text{}", "$$", "{}"]),
    ],
)
def test_only_what_one_box_holds_is_an_answer(verifier: MathVerifier, text: str) -> None:
    assert_refused(verifier, "3", text)


@pytest.mark.parametrize(
    "bomb",
    ["9^{9^{9^9}}", "1000000000!", "(10^9)!",
     r"\binom{10^9}{5\cdot 10^8}", r"7^{7^{7^7}} \bmod 10", r"\prod_{k=1}^{10^8} k",
     r"\frac{5^{5^{5^{5^5}}}-5}{16}", "9**9**9**9", "9^9^9^9", "((((9^9)^9)^9)^9)^9^9", "5!!!!", "3 + 10^{-10^{10}}",
     r"\sqrt[9^{9^9}]{2}", r"\exp(\exp(\exp(99)))", "1e999999999", "(0, 9^{9^{9^9}})", r"\gcd(9^{9^{9^9}}, 3)",
     r"\begin{pmatrix}2&1\\1&1\end{pmatrix}^{10^9}", "(1000000000)_{500000000}", r"\operatorname{zeros}(99999, 99999)",
     r"\binom{27\pi}{1024}", r"2^{\frac{1}{10^{-9}}}", r"\left(x+1\right)^{99999999}", r"\cosh(10^{12})"],
)  # fmt: skip
def test_bombs_are_refused_unlit(verifier: MathVerifier, bomb: str) -> None:
    start = time.monotonic()
    assert_refused(verifier, "5", box(bomb))
    assert time.monotonic() - start < 3 * TIMEOUT_S
    after = judge(verifier, "x+1", box(f"1+x+{len(bomb)}-{len(bomb)}"))
    assert after.outcome is Outcome.CORRECT, after.evidence


@pytest.mark.parametrize(
    "flood",
    ["{" * 5000 + "3" + "}" * 5000, "".join(f"\\boxed{{{i}}}" for i in range(20_000)),
     "3" * 200_000, "$" * 200_000, "3+" * 50_000, "(" * 9000,
     "3," * 4500, "=".join("3" * 30), r"\frac" * 1900, "x^" * 4900, r"\pm" * 3000, "\\text{" * 1500, ":" * 9000,
     "\\boxed{" * 20_000, "\ud800\0\u202e", "∞×" * 900, "x" * 100_000, "\\text{" + "a " * 4000 + "}", "1 " * 4000],
)  # fmt: skip
def test_floods(verifier: MathVerifier, flood: str) -> None:
    start = time.monotonic()
    assert_refused(verifier, "3", f"\\boxed{{4}} {flood}", box(flood), "\\boxed{" + flood)
    assert time.monotonic() - start < 3 * TIMEOUT_S


def test_code_is_not_run(verifier: MathVerifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    codes = ["5+open('p','w').write('x')", "__import__('os').system('touch p')", r"1\pi*open('p','w').write('x')",
             "[open('p','w').write('x'),2]", "().__class__.__base__.__subclasses__()", r"\text{exec}(1)"]  # fmt: skip
    for reference in ("7", r"\pi", r"\begin{pmatrix}1\\2\end{pmatrix}"):
        assert_refused(verifier, reference, *map(box, codes))
    assert not os.listdir(tmp_path)


def test_several_tags() -> None:
    with MathVerifier(MathVerifier.Config(kind="math", extraction="tag", format_reward=0.1)) as verifier:
        for text in ["<answer>4</answer><answer>3</answer>", "<answer>3<answer>3</answer></answer>",
                     "Write <answer>4</answer>! <answer>3</answer>", "<answer>3", "</answer>3<answer>"]:  # fmt: skip
            verdict = judge(verifier, "3", f"<think>a</think>{text}")
            assert verdict.outcome is Outcome.UNPARSABLE, text
            assert verdict.parts == {"accuracy": 0.0, "format": 0.0}, text


def test_farming_the_format_reward() -> None:
    with MathVerifier(MathVerifier.Config(kind="math", format_reward=0.1)) as verifier:
        words = "Step 1: Step 2: wait, because, so."
        for text in ("<think></think>", "<think></think>" * 9 + r"\boxed{3}", words, "<think>"):
            assert judge(verifier, "4", text).reward == 0.0, text
        best_without_answer = judge(verifier, "4", r"<think>" + "Step 1: wait. " * 99 + r"</think>\boxed{3}")
        assert best_without_answer.reward == 0.1  # the format part alone, whatever the words
