"""Plain data that crosses the border of a sandbox as JSON: exact built-in types, bounded in depth and size.

None, bool, int, float, str, list stand for themselves; others are an object of one key: {"tuple": [...]}, {"set": ...},
{"frozenset": ...}, {"dict": [[key, value], ...]}, {"bytes": hexadecimal}, {"complex": [real, imaginary]}, {"fraction":
[numerator, denominator]}, {"int": hexadecimal} for long integers, and the types themselves: {"type": name}. What is
none of these may travel as {"object": number} where the caller keeps a table of such objects; where none does, a named
tuple is a tuple, and a decimal number the fraction that equals it. Standard library only: the text of this file runs in
sandboxes too. Decoding trusts nothing.
"""

import collections
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 64
MAX_VALUES = 1_000_000
MAX_HASHED = 4096  # entries of a set or dictionary: keys chosen to collide cost their number squared
MAX_DECIMAL_BITS = 14_000  # largest integer that Python turns into decimal digits everywhere

_DICTS = (dict, collections.Counter, collections.OrderedDict, collections.defaultdict)
_TYPES = {kind.__name__: kind for kind in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)}
_SEQUENCES: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class PlainError(ValueError):
    """Not plain data, or too deep, or too much of it."""


def encode(value: Any, keep: Callable[[Any], int] | None = None) -> Any:
    """A value as JSON data; `keep` numbers what is not plain (PlainError: not plain, too deep or too large)."""
    return _Coder(keep).encode(value, 0)


def decode(data: Any, find: Callable[[int], Any] | None = None) -> Any:
    """The value of JSON data; `find` gives the object of a number (PlainError: nothing that `encode` would write)."""
    try:
        return _Coder(find).decode(data, 0)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise PlainError(str(error)[:200]) from None


class _Coder:
    def __init__(self, objects: Callable[[Any], Any] | None) -> None:
        self._objects, self._left = objects, MAX_VALUES

    def _count(self, depth: int) -> None:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise PlainError(f"data deeper than {MAX_DEPTH} levels or of more than {MAX_VALUES} values")

    def encode(self, value: Any, depth: int) -> Any:
        self._count(depth)
        kind = type(value)
        if kind in (bool, float, str, type(None)) or (kind is int and value.bit_length() <= MAX_DECIMAL_BITS):
            return value
        if kind is int:
            return {"int": hex(value)}
        if kind is list:
            return self._all(value, depth)
        if kind in _SEQUENCES.values():
            return {kind.__name__: self._all(value, depth)}
        if kind in _DICTS:
            return {"dict": [self._all(pair, depth) for pair in dict.items(value)]}
        if kind in (bytes, complex):
            return {"bytes": value.hex()} if kind is bytes else {"complex": [value.real, value.imag]}
        if kind is type and value in _TYPES.values():
            return {"type": value.__name__}
        if kind is Fraction or (kind is Decimal and self._objects is None):
            return {"fraction": list(value.as_integer_ratio())}
        if self._objects is None and issubclass(kind, tuple):
            return {"tuple": self._all(tuple.__iter__(value), depth)}
        if self._objects is None:
            raise PlainError(f"a value of type {kind.__name__} is not plain data")
        return {"object": self._objects(value)}

    def _all(self, values: Any, depth: int) -> list[Any]:
        return [self.encode(value, depth + 1) for value in values]

    def decode(self, data: Any, depth: int) -> Any:
        self._count(depth)
        if not isinstance(data, list | dict):
            return data
        if isinstance(data, list):
            return [self.decode(value, depth + 1) for value in data]
        ((kind, content),) = data.items()
        if kind in ("set", "frozenset", "dict") and len(content) > MAX_HASHED:
            raise PlainError(f"a {kind} of more than {MAX_HASHED} entries")
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](self.decode(value, depth + 1) for value in content)
        if kind == "dict":
            return {self.decode(key, depth + 1): self.decode(value, depth + 1) for key, value in content}
        if kind == "bytes":
            return bytes.fromhex(content)
        if kind == "int":
            return int(content, 16)
        if kind == "complex":
            real, imaginary = map(float, content)
            return complex(real, imaginary)
        if kind == "fraction" and all(type(part) is int for part in content):
            return Fraction(*content)
        if kind == "type" and content in _TYPES:
            return _TYPES[content]
        if kind == "object" and self._objects is not None:
            return self._objects(content)
        raise PlainError(f"unknown kind {kind[:20]!r}")
