"""Parsing: an expression written at random is read as what it was written for, and common misreadings are put right."""

from fractions import Fraction
from typing import NamedTuple

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.verifiers.math.normalise import normalise
from groupwise.verifiers.math.parsing import UnreadableError, evaluate, parse, parse_both

POINT = {"x": Fraction(7, 5), "y": Fraction(11, 3)}


class Written(NamedTuple):
    """A value and a way to write it; brackets are needed around what is no single factor."""

    value: Fraction
    latex: str
    is_factor: bool = True

    @property
    def factor(self) -> str:
        return self.latex if self.is_factor else rf"\left({self.latex}\right)"


LEAVES = st.one_of(
    st.integers(0, 30).map(lambda n: Written(Fraction(n), str(n))),
    st.integers(1, 99).map(lambda n: Written(Fraction(n, 10), f"{n / 10:.1f}")),
    st.sampled_from(sorted(POINT)).map(lambda name: Written(POINT[name], name)),
    st.tuples(st.integers(1, 9), st.integers(1, 6)).map(
        lambda n: Written(n[0] + Fraction(n[1], 7), rf"\left({n[0]}\frac{{{n[1]}}}{{7}}\right)")
    ),
    st.integers(0, 5).map(lambda n: Written(Fraction([1, 1, 2, 6, 24, 120][n]), rf"\left({n}!\right)")),
)


def combined(children: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: Written(p[0].value + p[1].value, f"{p[0].latex}+{p[1].latex}", False)),
        pairs.map(lambda p: Written(p[0].value - p[1].value, f"{p[0].latex}-{p[1].factor}", False)),
        pairs.map(lambda p: Written(p[0].value * p[1].value, rf"{p[0].factor} \cdot {p[1].factor}", False)),
        pairs.map(lambda p: Written(p[0].value * p[1].value, f"({p[0].latex})({p[1].latex})", False)),
        pairs.filter(lambda p: p[1].value != 0).map(
            lambda p: Written(p[0].value / p[1].value, rf"\dfrac{{{p[0].latex}}}{{{p[1].latex}}}", False)
        ),
        pairs.filter(lambda p: p[1].value != 0).map(
            lambda p: Written(p[0].value / p[1].value, rf"\left({p[0].latex}\right)/\left({p[1].latex}\right)", False)
        ),
        st.tuples(children, st.integers(1, 3)).map(
            lambda p: Written(p[0].value ** p[1], rf"\left({p[0].latex}\right)^{p[1]}")
        ),
    )


@settings(max_examples=60, deadline=None)
@given(st.recursive(LEAVES, combined, max_leaves=6))
def test_an_expression_is_read_as_it_was_written(written: Written) -> None:
    expression = parse(normalise(written.latex), True, True)
    point = {symbol: POINT[symbol.name] for symbol in expression.free_symbols}
    with mpmath.workdps(60):
        error = evaluate(expression, point) - mpmath.mpf(written.value.numerator) / written.value.denominator
        assert abs(error) <= mpmath.mpf(10) ** -40 * (1 + abs(error))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2(3)", "6"), ("(2)(3)", "6"), (r"2\binom{4}{2}", "12"), (r"\ln 2 \cdot 3", r"3 \cdot (\ln 2)"),
        ("1/2x", r"\frac{x}{2}"), (r"\sin^2(x) \cdot 3", r"3 \sin^2(x)"), (r"\log_2 8 \cdot 5", "15"),
        (r"2\frac12 x", r"\frac{5x}{2}"), ("e^{0.5}", r"\sqrt{e}"), (r"\cos x \cdot \sin x", r"\sin(x) \cos(x)"),
        (r"\sin 2x", r"\sin(2x)"), (r"\sin 30^\circ", r"\frac12"), (r"\ln|x| \cdot 2", r"2\ln(|x|)"),
        (r"|\sin x| \cdot 2", r"2|\sin(x)|"),
    ],
)  # fmt: skip
def test_what_the_grammar_alone_would_misread(written: str, meant: str) -> None:
    left, right = (parse(normalise(text), True, True) for text in (written, meant))
    with mpmath.workdps(40):
        values = [evaluate(one, {symbol: Fraction(2, 3) for symbol in one.free_symbols}) for one in (left, right)]
        assert abs(values[0] - values[1]) < mpmath.mpf(10) ** -30


@pytest.mark.parametrize("text", [r"\gcd(m,n)", "x+204_5", "(f+g)'", r"3\frac{5}{2}", r"\frac{1}{", r"\zzz"])
def test_what_cannot_be_read_is_refused_and_whose_fault_it_is(text: str) -> None:
    for pair in ((text, "1"), ("1", text)):
        with pytest.raises(UnreadableError) as caught:
            parse_both(*pair)
        assert caught.value.of_reference == (pair[0] == text)


def test_capitals_differ_from_small_letters_only_where_both_occur() -> None:
    assert len(set(parse_both("N", "n"))) == 1
    assert len(set(parse_both("a+A", "2a"))) == 2
    assert parse_both("a+A", "2a")[0].free_symbols != parse_both("a+b", "2a")[0].free_symbols
