"""Records of data files: the one reader for tasks, pairs, reward models, process labels and evaluation.

A path is a file, whose name says its format (JSON lines where it has no ending), a directory or pattern of shards, a
directory that `datasets` saved, or `hub:NAME:SPLIT` and `hub:NAME:CONFIGURATION:SPLIT` of the Hugging Face hub. What
cannot be read is a DataError that names the file, the line (or the record's number) and what is wrong. Numbers keep the
decimal that was written.
"""

import base64
import csv
import glob
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.config.places import decoded
from groupwise.errors import ConfigError, DataError
from groupwise.runs.jsonl import COMPRESSED, Record, Written, opened, read_json, read_jsonl
from groupwise.verifiers.extraction import boxes

BOXED = "boxed"
"""As an answer pattern: the content of the last `\\boxed{}`."""
HUB = "hub:"
"""Begins the path of a data set of the hub."""


def read_file(path: str | Path) -> Iterator[Record]:
    """Read the records of a path, shard after shard."""
    if not str(path).startswith(HUB):
        return _numbered(shards(path))
    parts = str(path).removeprefix(HUB).split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(f"{path}: allowed are hub:NAME:SPLIT and hub:NAME:CONFIGURATION:SPLIT")
    return read_hub(parts[0], parts[1] if len(parts) == 3 else None, parts[-1])


def _numbered(files: Sequence[Path]) -> Iterator[Record]:
    """Records of files, whose numbers go on from one to the next."""
    before = number = 0
    for file in files:
        for record in _FORMATS[_format(file) or ".jsonl"](file):
            number = before + record.number
            yield replace(record, number=number) if before else record
        before = number


def shards(path: str | Path) -> list[Path]:
    """Return the files that a path means, in the order of their names; none for a data set of the hub.

    A directory must hold the shards of one split in one format, so that it is never guessed which files are meant.
    """
    path = Path(path)
    if str(path).startswith(HUB):
        return []
    if glob.has_magic(str(path)) and not os.path.exists(path):  # which, unlike Path.exists, never raises
        if not (files := sorted(map(Path, glob.glob(str(path), recursive=True)))):
            raise DataError(f"there is no data file {path}")
    elif os.path.isdir(path):
        if files := _saved(path):
            return files
        try:
            seen = (file for file in path.iterdir() if not file.name.startswith("."))
            files = sorted(file for file in seen if _format(file) and file.stem not in _ABOUT)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        kinds = sorted({re.sub(r"\d+", "0", file.name.split(".")[0]) + _format(file) for file in files})
        if len(kinds) != 1:
            held = f"several kinds of files ({', '.join(kinds)})" if kinds else "no data files"
            raise ConfigError(
                f"{path} holds {held}; name a file, or files by a pattern such as {path / 'train*.parquet'}"
            )
    else:
        files = [path]
    for file in files:
        if not _format(file) and file.suffix:
            raise ConfigError(f"data file {file}: its name ends in {file.suffix!r}; {', '.join(_FORMATS)} are allowed")
    return files


_ABOUT = ("dataset_info", "dataset_infos", "dataset_dict", "metadata")
"""Names of files that lie beside data and hold none."""


def _format(path: Path) -> str:
    """Return the ending that says a file's format, in small letters; empty where it is unknown."""
    name, last = path.name.lower(), path.suffix.lower()
    ending = Path(name.removesuffix(last) if last in COMPRESSED else name).suffix
    return ending if ending in _FORMATS else ""


def _saved(path: Path) -> list[Path]:
    if splits := sorted(file.parent.name for file in path.glob("*/state.json")):
        raise ConfigError(f"{path} holds the splits {', '.join(splits)}; name one, for example {path / splits[0]}")
    state = path / "state.json"
    if not state.exists():
        return []
    try:
        return [path / file["filename"] for file in json.loads(state.read_bytes())["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{state} cannot be read: {error!r}") from None


def _text(path: Path) -> str:
    with opened(path) as file:
        content = file.read()
    try:
        return decoded(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line} is not UTF-8: {error}") from None


def _items(path: Path) -> Iterator[Record]:
    """Records of a list, of a list in the field `data`, or of lines of JSON in a file that is called `.json`."""
    text = _text(path)
    first, _, rest = text.strip().partition("\n")
    if first.startswith("{") and first.rstrip().endswith("}") and rest.lstrip().startswith("{"):
        yield from read_jsonl(path)
        return
    items = read_json(text, str(path))
    if isinstance(items, dict) and isinstance(items.get("data"), list):
        items = items["data"]
    if not isinstance(items, list):
        raise DataError(f"{path} holds a JSON {type(items).__name__}; a .json file must hold a list of objects")
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise DataError(f"{path} record {number} is a JSON {type(item).__name__}; an object is needed")
        yield Record(f"{path} record {number}", number, item)


def _table(path: Path) -> Iterator[Record]:
    """Records of a table, whose first line names the fields and whose values are all text."""
    csv.field_size_limit(sys.maxsize)  # a completion may be longer than the module's 131,072 characters
    text = io.StringIO(_text(path), newline="")
    rows = csv.reader(text, delimiter="\t" if _format(path) == ".tsv" else ",", strict=True)
    names, number = list[str](), 1
    try:
        for row in rows:
            place, number = f"{path}, line {number}", rows.line_num + 1
            if row and names:
                if len(row) != len(names):
                    raise DataError(f"{place} has {len(row)} values; the first line names {len(names)} fields")
                yield Record(place, int(place.rpartition(" ")[2]), dict(zip(names, row, strict=True)))
            elif row:
                names = row
                if twice := [name for name in names if names.count(name) > 1]:
                    raise DataError(f"{place}: the field {twice[0]!r} stands more than once; one is allowed")
    except csv.Error as error:
        raise DataError(f"{path}, line {number} is no row of a table: {error}") from None


def _columns(path: Path) -> Iterator[Record]:
    def tables() -> Iterator[pa.Table]:
        with opened(path) as file:
            if _format(path) == ".parquet":
                for batch in pq.ParquetFile(file).iter_batches():
                    yield pa.Table.from_batches([batch])
                return
            content = file.read()
        table = (pa.ipc.open_file if content.startswith(b"ARROW1") else pa.ipc.open_stream)(content).read_all()
        table.validate(full=True)  # a damaged one would be read beyond its end
        yield table

    return _rows(str(path), tables)


_FORMATS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": _items,
    ".csv": _table,
    ".tsv": _table,
    ".parquet": _columns,
    ".arrow": _columns,
}


def _rows(place: str, load: Callable[[], Iterable[pa.Table]]) -> Iterator[Record]:
    number = 0
    try:
        for table in load():
            types = {field.name: field.type for field in table.schema}
            if len(types) < len(table.schema):
                raise DataError(f"{place}: a column's name stands more than once; one is allowed")
            for row in table.to_pylist():
                number += 1
                fields = {name: _plain(value, types[name]) for name, value in row.items()}
                yield Record(f"{place} record {number}", number, fields)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{place} cannot be read: {error}") from None


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a column as JSON would hold it; decimals and floats keep the shortest text that means them."""
    if value is None or isinstance(value, bool | int | str):
        return value
    kind = getattr(kind, "storage_type", kind)
    if isinstance(value, float):
        if pa.types.is_float64(kind) or not math.isfinite(value):
            return value
        narrow = np.float16 if pa.types.is_float16(kind) else np.float32
        return Written(format(Decimal(str(narrow(value))), "f"))
    if isinstance(value, Decimal):
        return Written(format(value, "f"))
    if isinstance(value, Mapping):
        return {name: _plain(inner, kind.field(name).type) for name, inner in value.items()}
    if pa.types.is_map(kind):
        return {str(_plain(name, kind.key_type)): _plain(inner, kind.item_type) for name, inner in value}
    if isinstance(value, list):
        return [_plain(inner, kind.value_type) for inner in value]
    if isinstance(value, bytes):
        try:
            return value.decode()  # some writers do not say that a column holds text
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def read_hub(name: str, config: str | None, split: str) -> Iterator[Record]:
    """Records of a data set of the Hugging Face hub (or of its local cache)."""
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"the data set {name} needs the library `datasets`: pip install 'groupwise[data]', or give a local `path`"
        ) from None
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # the library raises many kinds; the user can do the same about all of them
        raise DataError(
            f"the data set {name} (configuration {config}, split {split}) cannot be loaded: {error}. Check the names "
            "and the network, or download the file and give its `path`"
        ) from error
    return _rows(f"{name} {split}", lambda: rows.with_format("arrow").iter(batch_size=1000))


def field_of(record: Record, name: str) -> Any:
    """Return a field (DataError: none); `a.b` leads into `a`, unless one is called `a.b`, `a.0` to a list's first."""
    value: Any = record.fields
    if name in record.fields:
        return value[name]
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            names = ", ".join(record.fields) or "none"
            raise DataError(f"{record.place} has no field '{name}'; its fields are {names}")
    return value


def has_field(record: Record, name: str) -> bool:
    """Return whether there is such a field, and something in it."""
    try:
        return field_of(record, name) is not None
    except DataError:
        return False


def text_of(record: Record, field: str) -> str:
    """A field as text without surrounding space; whole numbers without a decimal point; null and NaN as empty text."""
    value = field_of(record, field)
    if isinstance(value, Written):
        return re.sub(r"^([+-]?\d+)\.0*$", r"\1", value.text)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{record.place}: field '{field}' is {value!r:.60}; text or a number is needed")
    return (
        str(value) if isinstance(value, str | int) else format(Decimal(repr(value)), "f").removesuffix(".0")
    ).strip()


def answer_of(record: Record, field: str, pattern: str | None) -> str:
    r"""The reference answer in a field: the whole text, the last match of a pattern, or the last `\boxed{}`.

    Empty where the record has none: NaN, which is how tables write nothing, is no answer as text either.
    """
    text = text_of(record, field)
    if pattern is not None and text:
        last = text[text.rfind("\\boxed{") :]  # one that is not closed is no answer
        answers = boxes(last) if pattern == BOXED else [match[1] for match in re.finditer(pattern, text)]
        if not answers or answers[-1] is None:
            form = "\\boxed{}" if pattern == BOXED else f"answer_pattern {pattern!r}"
            raise DataError(
                f"{record.place}: field '{field}' has nothing that matches {form}; it ends in {text[-40:]!r}"
            )
        text = answers[-1].strip()
    return "" if text.lower() == "nan" else text
