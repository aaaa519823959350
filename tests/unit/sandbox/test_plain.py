"""The codec of plain data: everything plain comes back equal and of the same types, nothing else comes through."""

import collections
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.sandbox.plain import MAX_DEPTH, MAX_HASHED, MAX_VALUES, PlainError, decode, encode

keys = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(
    keys | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys | st.tuples(keys), inner)
    | st.sets(keys) | st.frozensets(keys),
    max_leaves=20,
)  # fmt: skip
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(
            ["tuple", "set", "frozenset", "dict", "bytes", "complex", "fraction", "int", "object", "type", "x"]
        ),
        inner,
        max_size=2,
    ),
    max_leaves=20,
)  # fmt: skip


def shape(value: Any) -> Any:
    """A value with all its types."""
    if isinstance(value, list | tuple):
        return type(value), [shape(each) for each in value]
    if isinstance(value, set | frozenset):
        return type(value), {(type(each), each) for each in value}
    if isinstance(value, dict):
        return dict, {(type(key), key): shape(each) for key, each in value.items()}
    return type(value), value


@given(values)
def test_plain_data_comes_back(value: Any) -> None:
    assert shape(decode(json.loads(json.dumps(encode(value))))) == shape(value)


@given(json_data)
def test_decoding_trusts_nothing(data: Any) -> None:
    try:
        decode(data)
    except PlainError:
        return


def test_special_values() -> None:
    assert math.isnan(decode(json.loads(json.dumps(encode(math.nan)))))
    assert decode(encode(collections.Counter("aab"))) == {"a": 2, "b": 1}
    assert decode(encode([int, str])) == [int, str]
    assert decode(encode("\ud800")) == "\ud800"
    assert decode(json.loads(json.dumps(encode([Fraction(-1, 3), Decimal("0.1")])))) == [
        Fraction(-1, 3),
        Fraction(1, 10),
    ]


class Everything(list[int]):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Number(int):
    def __repr__(self) -> str:
        return "42"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [Everything(), Number(3), [Number(3)], object(), len, range(3), (n for n in ()), nested(MAX_DEPTH + 1),
     cycle(), [0] * (MAX_VALUES + 1), Everything, {1: object()}],
)  # fmt: skip
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(PlainError):
        encode(value)


def test_integers_of_any_length() -> None:
    for value in (10**4000, 10**5000, -(10**60000), {10**5000: [10**5000]}):
        assert decode(json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(
    "data",
    [nested(MAX_DEPTH + 1), [0] * (MAX_VALUES + 1), {"set": list(range(MAX_HASHED + 1))}, {"set": [[1]]}, {"dict": [1]},
     {"dict": [[{"dict": []}, 1]]}, {"bytes": "zz"}, {"complex": ["1", "x"]}, {"object": 1}, {"type": "eval"}, {},
     {"tuple": [], "set": []}, {"tuple": 3}, {"dict": [[1, 2, 3]]}, {"int": 5}, {"int": "0xg"}, {"int": ["1"]}],
)  # fmt: skip
def test_what_encode_would_not_write_is_refused(data: Any) -> None:
    with pytest.raises(PlainError):
        decode(data)


def test_objects_travel_by_number() -> None:
    kept: list[Any] = []

    def keep(value: Any) -> int:
        kept.append(value)
        return len(kept) - 1

    thing = object()
    data = encode([1, thing], keep)
    assert data == [1, {"object": 0}]
    assert decode(data, kept.__getitem__) == [1, thing]
