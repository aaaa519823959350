"""Comparison by values: equal expressions agree, and no difference is too fine or too large to be seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.verifiers.math.guards import size
from groupwise.verifiers.math.normalise import normalise
from groupwise.verifiers.math.parsing import agree, constant_ratio, parse, parse_both
from groupwise.verifiers.math.real_sets import same_sets


def compare(left: str, right: str) -> bool | None:
    left, right = normalise(left), normalise(right)
    return agree(*parse_both(left, right), size(left) + size(right))


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("(x+1)^2", "x^2+2x+1", True), ("(x+1)^2", "x^2+2x+2", False), (r"\frac{x^2-1}{x-1}", "x+1", True),
        ("|x|", "x", False), (r"\sqrt{x^2}", "|x|", True), (r"\sqrt{ab}", r"\sqrt{a}\sqrt{b}", True),
        (r"\sqrt[3]{-8}", "-2", True), (r"\ln x^2", r"2\ln|x|", True), (r"\sin^2 x", r"1-\cos^2 x", True),
        ("x", "x+10^{-30}", False),
        ("0", "10^{-300}", False), ("10^{-30}", "10^{-31}", False), ("2^{2005}", "2^{2005}+1", False),
        (r"\pi", r"\pi+10^{-200}", False), (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", True),
        ("0", r"\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt{6}}", True), (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
        ("i^2", "-1", True), (r"\frac{1}{i}", "-i", True),
        ("2(3)", "6", True), ("2(3)", "5", False), ("(2)(3)", "6", True), (r"2\binom{4}{2}", "12", True),
        (r"2\frac12 x", r"\frac{5}{2}x", True), (r"\lceil n/2 \rceil", r"\lfloor (n+1)/2 \rfloor", True),
        (r"\lceil n/2 \rceil", r"\lfloor n/2 \rfloor + 1", False), (r"\lfloor x \rfloor", "x", False),
        ("(-1)^n", "(-1)^{n+2}", True), ("n!", "n(n-1)!", True),
        ("n!", "n^n", False), (r"\infty-\infty", "0", False), (r"\infty", r"\infty", True),
        (r"\infty", r"-\infty", False),
        ("a+A", "2a", False), ("0", "(n-1)(n-2)(n-3)(n-4)(n-5)(n-6)(n-7)(n-8)", False),
        (r"\sin(30^\circ)", r"\frac{1}{2}", True),
    ],
)  # fmt: skip
def test_agree(left: str, right: str, same: bool) -> None:
    assert compare(left, right) is same


@settings(max_examples=20, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9), st.integers(1, 60))
def test_products_agree_with_their_expansion_and_with_nothing_near(a: int, b: int, c: int, places: int) -> None:
    product, expanded = f"(x+{a})(x+{b}){c}", f"{c}x^2+{c * (a + b)}x+{c * a * b}".replace("+-", "-")
    product = product.replace("+-", "-")
    assert compare(product, expanded) is True
    assert compare(product, f"{expanded}+10^{{-{places}}}") is False


def test_nested_functions_take_linear_time() -> None:
    deep = r"\frac{1}{1+" * 20 + "x" + "}" * 20
    assert compare(deep, f"{deep}+1-1") is True


def ratio(left: str, right: str) -> object:
    gold, value = (parse(text, True, True) for text in (left, right))
    return constant_ratio(gold, value, 20.0)


def test_constant_ratio() -> None:
    assert ratio("2x-6", "x-3") == 2
    assert ratio("x-3", "3-x") == -1
    assert ratio("x-3", "x^2-9") is None
    assert ratio("x^2+1", "x^2+2") is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (r"[0,1]\cup[1,2]", "[0,2]", True), (r"[0,1)\cup(1,2]", "[0,2]", False),
        (r"x \neq 1", r"(-\infty,1)\cup(1,\infty)", True),
        (r"(1,4-\sqrt{3})\cup(4+\sqrt{3},7)", r"(1,4-\sqrt{3})\cup(4+\sqrt{3},8)", False),
        ("x<3", r"(-\infty,3)", True), ("x<3", r"(-\infty,3]", False), ("1<x<3", "3>x>1", True), ("x<3", "y<3", None),
        (r"\mathbb{R}", r"(-\infty,\infty)", True), ("(0,10^{-20})", "(-10^{-20},0)", False),
    ],
)  # fmt: skip
def test_sets_of_real_numbers(left: str, right: str, same: bool | None) -> None:
    assert same_sets(normalise(left), normalise(right)) is same
