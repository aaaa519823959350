"""Steps of a working: found, checked exactly, and never a way to hang."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.types import Problem
from groupwise.verifiers import make_verifier
from groupwise.verifiers.steps import equation_steps, value


@pytest.mark.parametrize(
    ("text", "rewards"),
    [
        ("45×70=3150. 45×7=315. 3150+315=3465.", [1, 1, 1]),
        ("45×70=3150. 45×7=314. 3150+314=3464.", [1, 0, 1]),  # a wrong step, then right from it
        ("2 + 3 = 5 = 6 - 1", [1]),
        ("2 + 3 = 5 = 6", [0]),
        ("(2+3)×4=20", [1]),
        ("7÷2=3.5", [1]),
        ("1/3=0.3", [0]),
        ("5/0=0", [0]),
        ("x = 3 and so on", []),
        ("no equations", []),
        ("(1+2=3", [0]),  # an open parenthesis has no value
    ],
)
def test_by_hand(text: str, rewards: list[int]) -> None:
    assert [step.reward for step in equation_steps(text)] == rewards


def test_ends_stand_after_the_equation() -> None:
    text = "so 2×3=6. And 6+1=7!"
    assert [text[: step.end] for step in equation_steps(text)] == ["so 2×3=6", "so 2×3=6. And 6+1=7"]


@given(a=st.integers(0, 999), b=st.integers(0, 999), c=st.integers(1, 99))
def test_values_are_exact(a: int, b: int, c: int) -> None:
    assert value(f"{a}+{b}×{c}") == a + b * c
    assert value(f"({a}-{b})/{c}") * c == a - b
    assert [step.reward for step in equation_steps(f"{a}+{b}={a + b}. {a}+{b}={a + b + 1}.")] == [1, 0]


@given(st.text(alphabet="0123456789+-×=(). \n", max_size=300))
def test_no_text_raises(text: str) -> None:
    ends = [step.end for step in equation_steps(text)]
    assert ends == sorted(set(ends))


@pytest.mark.parametrize("piece", ["1+", "(", "1=", "((1", "1 ", "9" * 13, "1+1=2. "])
def test_long_texts_end_soon(piece: str) -> None:
    began = time.process_time()
    equation_steps(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 5


def test_the_answer_is_the_last_step() -> None:
    with make_verifier({"kind": "math", "steps": "equations"}) as verifier:
        text = r"<think>2×3=6. 6+1=8.</think>\boxed{7}"
        verdict = verifier.verify(Problem("p", "q", "7"), text)
    assert [step.reward for step in verdict.steps] == [1.0, 0.0, 1.0]
    assert verdict.steps[-1].end == len(text)
