"""Scalars of TensorBoard's event files, read without TensorBoard.

A record is its length as 8 bytes, a checksum (rotated and shifted CRC-32C), the event, a checksum. An event has
`step` = 2 and `summary` = 5, whose `value` = 1 has `tag` = 1 and `simple_value` = 2, or a `tensor` = 8 of one number.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Scalars

POLYNOMIAL = 0x82F63B78
_TABLE = []
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (POLYNOMIAL if _value & 1 else 0)
    _TABLE.append(_value)


def read_events(source: Path, scalars: Scalars) -> None:
    """Take the scalars of a file, or of all event files in a folder, with what could not be read."""
    files = [source] if source.is_file() else sorted(source.rglob("events.out.tfevents.*"))
    if not files:
        raise DataError(f"{source} has no event files of TensorBoard (events.out.tfevents.*)")
    for path in files:
        try:
            for event in _records(path, scalars.damage):
                for value in (value for summary in inner(event, 5) for value in inner(summary, 1)):
                    if (number := _number(value)) is None:
                        scalars.not_numbers[text(value, 1)] = None
                    else:
                        scalars.add(whole(event, 2), {text(value, 1): number}, path.name)
        except (DataError, OSError) as error:
            raise DataError(f"{path} is no event file of TensorBoard: {error}") from None


def _records(path: Path, damage: list[str]) -> Iterator[bytes]:
    """The events of a file; one whose end is not written yet, or was lost, ends it and is named."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        head = content[at : at + 12]
        if len(head) == 12 and masked(head[:8]) != struct.unpack("<I", head[8:])[0]:
            raise DataError(f"the checksum of the length at byte {at} is wrong")
        size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else 0
        end = at + 16 + size
        if len(head) < 12 or end > len(content):
            damage.append(f"{path.name}: its last event has no end: it is being written, or was cut")
            return
        event = content[at + 12 : end - 4]
        if masked(event) != struct.unpack("<I", content[end - 4 : end])[0]:
            raise DataError(f"the checksum of the event at byte {at} is wrong")
        yield event
        at = end


def _number(value: bytes) -> float | None:
    """Return the number of a value: a simple one, or of a tensor that has one, of 32 or 64 bits."""
    for number, kind, content in fields(value):
        if number == 2 and kind == FLOAT:
            return float(content)
        if number == 8 and isinstance(content, bytes):
            layout = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}.get(whole(content, 1))
            packed = [data for field, kind, data in fields(content) if kind == BYTES and field in (4, 5, 6)]
            data = packed[0] if packed else b""
            if layout is None or not isinstance(data, bytes) or len(data) != struct.calcsize(layout):
                return None
            return float(struct.unpack(layout, data)[0])
    return None


def masked(content: bytes) -> int:
    """The checksum as it stands in the file.

    >>> hex(masked(b"123456789"))  # CRC-32C of these digits is 0xe3069283
    '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# Protocol buffers without their schema, as far as event files and W&B's logs need them; the wire format is that of
# protobuf.dev/programming-guides/encoding. No package is needed.
Value = int | float | bytes
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
_LONGEST = 10


def fields(message: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field.

    >>> list(fields(bytes([0x08, 0x96, 0x01])))
    [(1, 0, 150)]

    Raises DataError: it is no message.
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
    value = next((value for field, kind, value in fields(message) if field == number and kind == VARINT), 0)
    assert isinstance(value, int)
    return value - (1 << 64) if value >> 63 else value
