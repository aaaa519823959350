"""Protocol buffers without their schema: the fields of a message, as far as event files and W&B's logs need them.

The wire format is that of protobuf.dev/programming-guides/encoding. Nothing is compiled and no package is needed.
"""

import struct
from collections.abc import Iterator

from groupwise.errors import DataError

Value = int | float | bytes
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
_LONGEST = 10


def fields(message: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field.

    >>> list(fields(bytes([0x08, 0x96, 0x01])))
    [(1, 0, 150)]

    Raises:
        DataError: it is no message.
    """
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, kind, value
        elif kind in (DOUBLE, FLOAT):
            layout = "<d" if kind == DOUBLE else "<f"
            end = at + struct.calcsize(layout)
            if end > len(message):
                raise DataError("a number is cut off")
            yield number, kind, float(struct.unpack(layout, message[at:end])[0])
            at = end
        elif kind == BYTES:
            size, at = varint(message, at)
            if at + size > len(message):
                raise DataError("a field is cut off")
            yield number, kind, message[at : at + size]
            at += size
        else:
            raise DataError(f"a field has the wire type {kind}, which does not exist")


def varint(message: bytes, at: int) -> tuple[int, int]:
    """A whole number and where it ends. Raises DataError: it has no end."""
    value = 0
    for place in range(_LONGEST):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise DataError("a whole number has no end")


def inner(message: bytes, number: int) -> Iterator[bytes]:
    """The messages, texts and packed lists in a field."""
    yield from (value for field, _, value in fields(message) if field == number and isinstance(value, bytes))


def text(message: bytes, number: int) -> str:
    """The text in a field; empty where there is none."""
    return next((value.decode("utf-8", "replace") for value in inner(message, number)), "")


def whole(message: bytes, number: int) -> int:
    """The whole number in a field, which may be negative; 0 where there is none, as the format says."""
    found = next((value for field, kind, value in fields(message) if field == number and kind == VARINT), 0)
    assert isinstance(found, int)
    return found - (1 << 64) if found >> 63 else found
