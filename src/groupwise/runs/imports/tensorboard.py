"""Scalars of TensorBoard's event files, read without TensorBoard.

A file is a row of records: the length as 8 bytes, its checksum, the event, its checksum (tensorflow's record_writer.cc;
checksums are CRC-32C, rotated and shifted). An event (event.proto) has `step` = 2 and `summary` = 5, whose `value` = 1
has `tag` = 1 and `simple_value` = 2, or a `tensor` = 8 of one number (tensor.proto: `dtype` = 1, `tensor_content` = 4,
`float_val` = 5, `double_val` = 6).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from groupwise.errors import DataError
from groupwise.runs.imports.protobuf import BYTES, FLOAT, fields, inner, text, whole

POLYNOMIAL = 0x82F63B78
_TABLE = []
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (POLYNOMIAL if _value & 1 else 0)
    _TABLE.append(_value)


def read_events(source: Path) -> tuple[dict[int, dict[str, float]], list[str]]:
    """Scalars by step and tag, and what could not be read, of a file or of all event files in a folder.

    Raises:
        DataError: there is no event file, or one is none.
    """
    files = [source] if source.is_file() else sorted(source.rglob("events.out.tfevents.*"))
    if not files:
        raise DataError(f"{source} has no event files of TensorBoard (events.out.tfevents.*)")
    found: dict[int, dict[str, float]] = {}
    damage: list[str] = []
    for path in files:
        try:
            for event in _records(path, damage):
                step = whole(event, 2)
                for summary in inner(event, 5):
                    found.setdefault(step, {}).update(_scalars(summary))
        except DataError as error:
            raise DataError(f"{path} is no event file of TensorBoard: {error}") from None
    return {step: values for step, values in found.items() if values}, damage


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


def _scalars(summary: bytes) -> dict[str, float]:
    found = {}
    for value in inner(summary, 1):
        if (number := _number(value)) is not None:
            found[text(value, 1)] = number
    return found


def _number(value: bytes) -> float | None:
    for number, kind, content in fields(value):
        if number == 2 and kind == FLOAT:
            return float(content)
        if number == 8 and isinstance(content, bytes):
            return _of_tensor(content)
    return None


def _of_tensor(tensor: bytes) -> float | None:
    """The number of a tensor that has one, of 32 or 64 bits."""
    layout = {1: "<f", 2: "<d"}.get(whole(tensor, 1))
    packed = {number: content for number, kind, content in fields(tensor) if kind == BYTES and number in (4, 5, 6)}
    content = next(iter(packed.values()), b"")
    if layout is None or not isinstance(content, bytes) or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


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
