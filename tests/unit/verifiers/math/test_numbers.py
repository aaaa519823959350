"""Plain numbers: every rendering of a number is that number, and no other."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groupwise.types import Problem
from groupwise.verifiers import make_verifier
from groupwise.verifiers.math.normalise import normalise
from groupwise.verifiers.math.numbers import Number, equal, parse_number

INTEGERS = st.integers(-(10**30), 10**30)


def number(text: str) -> Number:
    parsed = parse_number(normalise(text))
    assert parsed is not None, text
    return parsed


def renderings(n: int) -> list[str]:
    sign = "-" if n < 0 else ""
    return [
        str(n), f"{n:,}", f"{n}.0", f"{n}.", f" {n} ", f"${n}$", f"\\({n}\\)", f"{n:,}".replace(",", "{,}"),
        f"{n:,}".replace(",", "\\,"), f"{sign}\\frac{{{abs(n)}}}{{1}}", f"{3 * n}/3", f"\\dfrac{{{2 * n}}}{{2}}",
        f"{n}".replace("-", "−"), f"({n})", f"{{{n}}}", f"\\text{{{n}}}", f"{n}.",
    ]  # fmt: skip


@given(INTEGERS)
def test_every_rendering_of_an_integer_is_that_integer_and_not_its_neighbour(n: int) -> None:
    for text in renderings(n):
        assert number(text).exact == n, text
        assert equal(number(str(n)), number(text))
        assert equal(number(text), number(str(n)))
        assert not equal(number(str(n + 1)), number(text)), text


@given(INTEGERS, st.integers(1, 10**12), st.integers(2, 50))
def test_fractions_are_equal_exactly_when_their_values_are(a: int, b: int, k: int) -> None:
    plain, latex = number(f"{a}/{b}"), number(f"\\frac{{{a * k}}}{{{b * k}}}")
    assert plain.value == Fraction(a, b)
    assert equal(plain, latex)
    assert plain.canonical() == latex.canonical()
    assert not equal(plain, number(f"{a + 1}/{b}"))


@given(st.integers(-(10**9), 10**9), st.integers(1, 8))
def test_decimals_are_exact(n: int, places: int) -> None:
    text = f"{'-' if n < 0 else ''}{abs(n) // 10**places}.{abs(n) % 10**places:0{places}d}"
    assert number(text).exact == Fraction(n, 10**places)


@given(st.integers(1, 10**6), st.integers(2, 10**6))
def test_only_a_correct_rounding_to_six_places_stands_for_a_fraction(a: int, b: int) -> None:
    assume(pow(10, 60, b) * a % b)
    rounded = f"{Fraction(round(Fraction(a, b) * 10**8), 10**8).__float__():.8f}"
    assert equal(number(f"{a}/{b}"), number(rounded))
    off = Fraction(rounded) + Fraction(2, 10**8)
    assert not equal(number(f"{a}/{b}"), Number(off, places=8))


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("0.5", "50%", True), ("50", "50\\%", True), ("50\\%", "50", True), ("50\\%", "0.5", True),
        ("50", "0.5", False), ("0.05", "0.05%", False), ("3", "3.0000001", False), ("0.333333", "1/3", True),
        ("0.3333", "1/3", False), ("918\\frac{1}{2}", "918.5", True), ("1 1/2", "3/2", True), ("0", "10^{-30}", False),
        ("2\\times10^{-10}", "2 \\cdot 10^{-10}", True), ("-\\frac12", "\\frac{-1}{2}", True), ("\\$10", "10", True),
        ("0.4", ".4", True), ("+7", "7", True), ("004", "4", True),
    ],
)  # fmt: skip
def test_policies(reference: str, answer: str, same: bool) -> None:
    assert equal(number(reference), number(answer)) is same


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,22", "32, 349", "1 2", "1/0", "\\frac{1}{0}", "٣", "1e", "1_000", "0x10", "2.5.1", "--3", "9" * 1001,
     "3 or 4", "\\pm 3", "1,2,3", "inf", "nan", "3\\frac{5}{2}"],
)  # fmt: skip
def test_what_is_no_plain_number(text: str) -> None:
    assert parse_number(normalise(text)) is None


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("5084", "correct"), ("5,084", "correct"), ("5084.0", "correct"), (r"\text{5084}", "correct"),
        (r"62 \times 82", "wrong"), ("62*82", "wrong"), (r"82 \cdot 62", "wrong"), ("5000+84", "wrong"),
        (r"\sqrt{5084^2}", "wrong"), ("2 \\cdot 2542", "wrong"), ("5085", "wrong"), ("", "unparsable"),
    ],
)  # fmt: skip
def test_only_a_number_is_an_answer(answer: str, outcome: str) -> None:
    verdict = make_verifier("number").verify(
        Problem("p", "What is 62 × 82?", "5084"), rf"<think>x</think>\boxed{{{answer}}}"
    )
    assert verdict.outcome == outcome, verdict.evidence
