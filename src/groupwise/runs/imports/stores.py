"""Scalars of a run of W&B: its own log `run-ID.wandb`, or its history exported as CSV or JSON lines.

The log is LevelDB's log format with CRC-32 (wandb/sdk/internal/datastore.py): `:W&B`, 0xBEE1 and a version, then blocks
of 32,768 bytes with records of checksum, length and type (whole, first, middle, last). A record (wandb_internal.proto)
has `history` = 2: `item` = 1 with `key` = 1, `nested_key` = 2 and `value_json` = 16, and `step` = 2 with `num` = 1.
"""

import csv
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Scalars, number
from groupwise.runs.imports.tensorboard import inner, text, whole
from groupwise.runs.ledger import Lines

BLOCK, HEAD = 32_768, 7
START = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
STEP = "_step"
STEPS = (STEP, "step", "Step", "global_step", "trainer/global_step", "train/global_step")
"""Names of a row's step, W&B's own first: any program may write such a file."""
UNFINISHED = "{}: its last record has no end: it is being written, or was cut"


def read_history(source: Path, scalars: Scalars) -> None:
    """Take the scalars of a history, with what could not be read. Raises DataError."""
    path = source
    if not source.is_file():  # the folder of an offline run
        logs = sorted(source.glob("*.wandb"))
        if len(logs) != 1:
            raise DataError(f"{source} has {len(logs)} files *.wandb; name one, or an exported .csv or .jsonl")
        path = logs[0]
    seen: dict[str, int] = {}
    try:
        for place, row in enumerate(_rows(path, scalars.damage), 1):
            named = flat(row)
            step = next((named[name] for name in STEPS if named.get(name) not in (None, "")), None)
            if step is None:
                scalars.damage.append(f"{path.name}, row {place}: it has no {STEP}, step or global_step")
                continue
            named = {name: value for name, value in named.items() if name not in STEPS and not name.startswith("_")}
            blank = [name for name, value in named.items() if value is None or value == ""]
            values = {name: value for name, value in named.items() if name not in blank}
            counts = {seen.get(name, 0) for name, value in values.items() if number(value) is not None}
            for name in blank:  # an export has a blank where nothing was logged, and where NaN was
                if seen.get(name, 0) >= _ALWAYS and seen[name] in counts:
                    values[name] = None if name in scalars.names else math.nan
            for name in values:
                seen[name] = seen.get(name, 0) + 1
            scalars.add(step, values, f"{path.name}, row {place}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not scalars.steps:
        raise DataError(f"{path} has no line of a history with {STEP}")


_ALWAYS = 3  # rows with a name and its neighbours after which a blank beside these is no gap


def _rows(path: Path, damage: list[str]) -> Iterator[Mapping[str, Any]]:
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
    elif path.suffix.lower() == ".csv":  # a chart's export has `Step` and columns `RUN - NAME`
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            named = [str(name).rpartition(" - ")[2] for name in table.fieldnames or ()]
            if twice := sorted({name for name in named if named.count(name) > 1}):
                raise DataError(f"{path} has {named.count(twice[0])} columns {twice[0]!r}: export one run alone")
            for cells in table:
                yield {str(name).rpartition(" - ")[2]: value for name, value in cells.items() if name}
    else:
        lines, broken = Lines(path).read()
        damage += [f"{fault.file}, line {fault.line}: {fault.what}" for fault in broken[:20]]
        if len(broken) > 20:
            damage.append(f"{path.name}: {len(broken) - 20} more lines cannot be read")
        yield from (line for _, line in lines)


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
