"""Guards: the size of an answer is bounded without computing it, and what parsers misread never reaches them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.verifiers.math.guards import MAX_SIZE, refusal, restates, size, too_long, unreadable

MODEST = [
    "12", "-3.75", r"\frac{1}{2004!}", "2^{2005}+1", r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", "x^{100}+1", "10^{-99}",
    r"x^{\frac{2024}{2025}}", r"\sqrt[3]{2}", "n!", r"\binom{n}{k}", r"\binom{100}{50}", "(a+b)^{12}", "e^{-\\sec^2 t}",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "9" * 999, r"10^{100}, 10^{1/100}", r"\lfloor \frac{n}{2} \rfloor",
]  # fmt: skip


@pytest.mark.parametrize("text", MODEST)
def test_modest_answers_pass(text: str) -> None:
    assert size(text) <= MAX_SIZE
    assert unreadable(text) is None


@given(st.integers(0, 10**40), st.integers(1, 10**20))
def test_size_bounds_the_digits_of_sums_products_and_quotients(a: int, b: int) -> None:
    digits = math.log10(a + 1) + math.log10(b + 1)
    for text in (f"{a}+{b}", f"{a} \\cdot {b}", f"\\frac{{{a}}}{{{b}}}", f"({a})({b})"):
        assert digits - 1e-9 <= size(text) <= digits + 3


@given(st.integers(2, 30), st.integers(1, 400))
def test_size_bounds_the_digits_of_powers_and_factorials(base: int, exponent: int) -> None:
    assert size(f"{base}^{{{exponent}}}") >= math.log10(base**exponent)
    assert size(f"{exponent}!") >= math.log10(math.factorial(exponent)) - 1
    assert size(f"\\binom{{{base + exponent}}}{{{base}}}") >= math.log10(math.comb(base + exponent, base)) - 1


@given(st.text(alphabet=r"\{}()[]^_!+-0123456789xfracbinomexp .,", max_size=200))
def test_any_text_has_a_size(text: str) -> None:
    assert size(text) >= 0


@pytest.mark.parametrize("text", ["9^" * 3000 + "9", "(" * 3000, "!" * 3000, "^" * 3000, r"\frac" * 3000, "9" * 9000])
def test_size_takes_no_long_and_no_deep_recursion(text: str) -> None:
    assert size(text) >= 0


@pytest.mark.parametrize(
    "text", ["1 2", "3 % 4", r"4\text{ not }3", r"4\text{ 3}", r"1 \mp 2", r"[-\infty, 3)", "|x|" * 9, "2^{9^{9}}"]
)
def test_what_parsers_misread(text: str) -> None:
    assert unreadable(text) is not None


def test_restating_is_relative_to_the_reference() -> None:
    assert restates("55", r"\sum_{k=1}^{10} k")
    assert restates("6", r"\gcd(12,18)")
    assert not restates(r"\sum_{k=1}^{n} k!", r"\sum_{j=1}^{n} j!")
    assert not restates("55", r"\sin x + \limsup")


def test_length_is_relative_to_the_reference() -> None:
    assert too_long("3", "x+" * 200) is not None
    assert too_long("x+" * 200, "x+" * 200) is None


@pytest.mark.parametrize("text", ["3" * 10_001, "{" * 51, "=" * 21, "3\u200b", "\u202e3", "\ud800", "a\x00"])
def test_refusals(text: str) -> None:
    assert refusal(text) is not None
