"""The calculator: exact, bounded, and strict about what is a call."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.rollout.tools import Call, Fault, put_in_spans
from groupwise.rollout.tools.calculator import Calculator, ExpressionError, value_of, written
from groupwise.types import CallOutcome

Tree = Any


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("45×77", "3465"), ("45*77", "3465"), ("16-3-4", "9"), ("80000×1.5", "120000"), ("7÷2", "3.5"), ("1/3", "1/3"),
        ("2+3×4", "14"), ("(2+3)×4", "20"), ("2^10", "1024"), ("2**3**2", "512"), ("-2^2", "-4"), ("2^-1", "0.5"),
        ("20%×50", "10"), ("1,000×3", "3000"), ("$3×2", "6"), ("0.1+0.2", "0.3"), ("-" * 100 + "5", "5"), ("5−7", "-2"),
        (" 1 + 1 ", "2"), (".5+.5", "1"), ("0^0", "1"), ("(-1)^1000000001", "-1"), ("1/8", "0.125"),
    ],
)  # fmt: skip
def test_values_worked_by_hand(text: str, value: str) -> None:
    assert Calculator().run(text).text == value


@pytest.mark.parametrize(
    "text",
    ["", "1+", "2+*3", "(1+2", "1)", "x", "1 000", "3.5.2", "1/0", "0^-1", "2^0.5", "9^9^9", "10^1000000000",
     "2^-99999999", "9" * 201, "(" * 100, "2(3)", "()", "9^999*9^999*9^999", "１＋１", "__import__('os')",
     "<<1+1", "1=1"],
)  # fmt: skip
def test_what_has_no_value_is_an_error_at_once(text: str) -> None:
    result = Calculator().run(text)
    assert (result.text, result.outcome) == ("error", CallOutcome.ERROR)
    assert result.evidence


def test_where_an_engine_may_pause() -> None:
    """Every call and every fault ends with a text that was asked for."""
    tool = Calculator()
    assert tool.stops("1+1=2 ") == ("<<",)
    for text in ("<<1+1=", "<<1<<", "<<1>>"):
        assert tool.look(text) is not None
        assert text[2:].endswith(tool.stops("<<"))


@st.composite
def trees(draw: Any, depth: int = 3) -> tuple[str, Fraction | None]:
    """An expression, fully bracketed, and its value by Python's own fractions."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(0, 999))
        return str(number), Fraction(number)
    left, a = draw(trees(depth - 1))
    right, b = draw(trees(depth - 1))
    sign = draw(st.sampled_from("+-×÷"))
    text = f"({left}{sign}{right})"
    if a is None or b is None or (sign == "÷" and not b):
        return text, None
    return text, {"+": a + b, "-": a - b, "×": a * b, "÷": a / b if b else a}[sign]


@given(trees())
def test_values_are_those_of_fractions(tree: tuple[str, Fraction | None]) -> None:
    text, value = tree
    if len(text) > 200:
        return
    if value is None:
        with pytest.raises(ExpressionError, match="division by zero"):
            value_of(text)
    else:
        assert value_of(text) == value


@given(st.fractions(max_denominator=10**9))
def test_what_is_written_reads_as_the_same_number(value: Fraction) -> None:
    assert value_of(written(value)) == value
    assert Fraction(written(value)) == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("So <<45×77=", Call("45×77", 3, closing=">>")),
        ("So <<45×77", None),
        ("45×77=3465", None),
        ("a < b = c", None),
        ("x>>2", None),
        ("<<45×77=3", Fault("a result that the calculator did not write")),
        ("<<45<<7", Fault("a call within a call")),
        ("<<45>>", Fault("a call that was closed before it had a result")),
        ("<<" + "1" * 201 + "=", Fault("a call of more than 200 characters")),
    ],
)
def test_what_a_text_ends_with(text: str, found: Any) -> None:
    assert Calculator().look(text) == found


def test_results_in_a_written_text() -> None:
    text = "<think><<45×77=3465>> and <<3465+1=3466>>.</think>3466, cut <<1+1=2"
    tools = {"calculator": Calculator()}
    assert [text[begin:end] for begin, end in put_in_spans(text, tools)] == ["3465>>", "3466>>", "2"]
    with pytest.raises(ValueError, match=r"a call within a call, at character 5: '<<1<<'"):
        put_in_spans("<<1<<2=3>>", tools)
    assert put_in_spans("no call, 1=1", tools) == []
