"""Scalars of stores that any trainer writes to, read without their packages: TensorBoard and W&B.

An event file of TensorBoard has records: a length of 8 bytes, a checksum (rotated and shifted CRC-32C), the event, a
checksum. An event has `step` = 2 and `summary` = 5, whose `value` = 1 has `tag` = 1 and `simple_value` = 2, or a
`tensor` = 8 of one number.

A log of W&B, `run-ID.wandb`, is LevelDB's log format with CRC-32 (wandb/sdk/internal/datastore.py): `:W&B`, 0xBEE1 and
a version, then blocks of 32,768 bytes with records of checksum, length and type (whole, first, middle, last). A record
(wandb_internal.proto) has `history` = 2: `item` = 1 with `key` = 1, `nested_key` = 2 and `value_json` = 16, and
`step` = 2 with `num` = 1. A history exported as CSV or JSON lines is read, too, compressed or not; a table with
semicolons between its columns has decimal commas, as spreadsheets write it in most of Europe.
"""

import csv
import io
import itertools
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.errors import DataError, told_as
from groupwise.runs.jsonl import COMPRESSED, opened
from groupwise.runs.ledger import TORN, Damage
from groupwise_lab.imports.foreign import Scalars, json_lines, number

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
        with told_as(DataError, f"{path} is no event file of TensorBoard", DataError, OSError):
            for event in _events(path, scalars.damage):
                for value in (value for summary in inner(event, 5) for value in inner(summary, 1)):
                    if (number := _number(value)) is None:
                        scalars.not_numbers[text(value, 1)] = None
                    else:
                        scalars.add(whole(event, 2), {text(value, 1): number}, path.name)


def _events(path: Path, damage: list[str]) -> Iterator[bytes]:
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
    for field, kind, content in fields(value):
        if field == 2 and kind == FLOAT:
            return float(content)
        if field == 8 and isinstance(content, bytes):
            layout = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}.get(whole(content, 1))
            packed = [data for inside, kind, data in fields(content) if kind == BYTES and inside in (4, 5, 6)]
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


BLOCK, HEAD = 32_768, 7
START = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
STEP = "_step"
TRAINER_STEP = "train/global_step"
STEPS = (STEP, "step", "Step", "global_step", "trainer/global_step", TRAINER_STEP)
"""Names of a row's step, W&B's own first: any program may write such a file. W&B counts what is logged, tables and
times too, so where every row of `train/` and `eval/` has the step of a Hugging Face trainer, that counts."""
UNFINISHED = "{}: its last record has no end: it is being written, or was cut"


def read_history(source: Path, scalars: Scalars) -> None:
    """Take the scalars of a history, with what could not be read. Raises DataError."""
    path = source
    if not source.is_file():  # the folder of an offline run
        logs = sorted(source.glob("*.wandb"))
        if len(logs) != 1:
            raise DataError(f"{source} has {len(logs)} files *.wandb; name one, or an exported .csv or .jsonl")
        path = logs[0]
    seen, born = dict[str, int](), dict[str, int]()  # by name, the rows that have it, and the first of them
    with told_as(DataError, f"{path} cannot be read", OSError, UnicodeDecodeError, csv.Error):
        rows = [flat(row) for row in _rows(path, scalars.damage)]
        names = {name for row in rows for name in row if name.startswith(("train/", "eval/")) or name in scalars.names}
        own = [row for row in rows if any(number(row.get(name)) is not None for name in names.difference(STEPS))]
        is_trainers = bool(own) and all(row.get(TRAINER_STEP) not in (None, "") for row in own)
        steps = (TRAINER_STEP,) if is_trainers else STEPS
        strays = dict[int, str]()  # by place, what a row without a step has
        for place, named in enumerate(rows, 1):
            step = next((named[name] for name in steps if named.get(name) not in (None, "")), None)
            if step is None:
                strays[place] = ", ".join(name for name in named if name[:1] != "_")
                continue
            named = {name: value for name, value in named.items() if name not in STEPS and not name.startswith("_")}
            blank = [name for name, value in named.items() if value is None or value == ""]
            values = {name: value for name, value in named.items() if name not in blank}
            beside = {(born.get(name), seen.get(name)) for name, value in values.items() if number(value) is not None}
            for name in blank:  # an export has a blank where nothing was logged, and where NaN was
                if seen.get(name, 0) >= _ALWAYS and (born[name], seen[name]) in beside:
                    values[name] = None if name in scalars.names else math.nan
            for name in values:
                seen[name] = seen.get(name, 0) + 1
                born.setdefault(name, place)
            scalars.add(step, values, f"{path.name}, row {place}")
    if not scalars.steps:
        names = {name for row in rows for name in row}
        raise DataError(
            f"{path} has no row of a history with a step ({', '.join(STEPS)}); its {len(rows)} rows have "
            f"{', '.join(sorted(names))[:300] or 'nothing'}"
        )
    if strays:
        step, first = TRAINER_STEP if is_trainers else "step", min(strays)
        what = f"rows that have no {step}: {len(strays)}, the first is row {first} ({strays[first][:100]})"
        scalars.damage.append(f"{path.name}: left out are {what}")


_DECIMAL = re.compile(r"^\s*([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)\s*$")  # 0,5 for 0.5
_ALWAYS = 3  # rows with a name and its neighbours after which a blank beside these is no gap


def _rows(path: Path, damage: list[str]) -> Iterator[Mapping[str, Any]]:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    if path.suffix == ".wandb":
        for record in (record for data in _records(path, damage) for record in inner(data, 2)):
            row: dict[str, Any] = {}
            for item in inner(record, 1):
                nested = [key.decode("utf-8", "replace") for key in inner(item, 2)]
                name = ".".join(nested) if nested else text(item, 1)
                with suppress(ValueError, RecursionError):  # what is no JSON is no scalar
                    row[name] = json.loads(text(item, 16))
            for step in inner(record, 2):
                row.setdefault(STEP, whole(step, 1))
            yield row
    elif plain.suffix.lower() in (".csv", ".tsv"):  # a chart's export has `Step` and columns `RUN - NAME`
        with opened(path) as packed, io.TextIOWrapper(packed, encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            divider = max(",;\t", key=head.count)
            table = csv.DictReader(itertools.chain([head], file), delimiter=divider)
            named = [str(name).rpartition(" - ")[2] for name in table.fieldnames or ()]
            if twice := sorted({name for name in named if named.count(name) > 1}):
                raise DataError(f"{path} has {named.count(twice[0])} columns {twice[0]!r}: export one run alone")
            for place, cells in enumerate(table, 1):
                if None in cells.values():
                    damage.append(str(Damage(path.name, f"{TORN}; row {place} has too few cells, and is left out")))
                    continue
                if divider == ";":
                    cells = {name: _DECIMAL.sub(r"\1.\2", value or "") for name, value in cells.items() if name}
                yield {str(name).rpartition(" - ")[2]: value for name, value in cells.items() if name}
    else:
        yield from (row for _, row in json_lines(path, damage))


def flat(row: Mapping[str, Any], prefix: str = "", depth: int = 4) -> dict[str, Any]:
    """Nested tables under dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and "_type" in value:  # a histogram, a table, a picture
            leaves[f"{prefix}{name}"] = f"a {value['_type']}"
        elif isinstance(value, Mapping) and depth:
            leaves |= flat(value, f"{prefix}{name}.", depth - 1)
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves


def _records(path: Path, damage: list[str]) -> Iterator[bytes]:
    """The records of a log; one without its end is named, and is the last."""
    content = path.read_bytes()
    if content[: len(START)] != START:
        raise DataError(f"{path} is no log of W&B: it does not begin with :W&B and a version that is known")
    at, parts = len(START), b""
    while at < len(content):
        if (rest := BLOCK - at % BLOCK) < HEAD:
            at += rest  # the rest of a block is filled up
            continue
        head = content[at : at + HEAD]
        checksum, size, kind = struct.unpack("<IHB", head) if len(head) == HEAD else (0, len(content), 0)
        data = content[at + HEAD : at + HEAD + size]
        if len(data) < size:
            damage.append(UNFINISHED.format(path.name))
            return
        if kind not in (FULL, FIRST, MIDDLE, LAST) or zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            raise DataError(f"{path}: the record at byte {at} does not have its checksum")
        at += HEAD + size
        parts = data if kind in (FULL, FIRST) else parts + data
        if kind in (FULL, LAST):
            yield parts
            parts = b""
    if parts:  # it was cut exactly where a block ends
        damage.append(UNFINISHED.format(path.name))
