"""Records of problem files: `.jsonl`, `.json` lists, Parquet, and data sets of the library `datasets` or its hub.

Whatever cannot be read is a DataError that names the file, the line (or the record's number) and what is wrong.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import ConfigError, DataError
from groupwise.runs.jsonl import Record, read_jsonl

BOXED = "boxed"
"""As an answer pattern: the content of the last `\\boxed{}`."""


def read_file(path: Path) -> Iterator[Record]:
    """Records of a `.jsonl` (one object a line; blank lines are skipped), `.json` (a list) or `.parquet` file."""
    if path.is_dir():
        return _read_saved(path)
    if path.suffix not in (".jsonl", ".json", ".parquet"):
        raise ConfigError(
            f"problem file {path}: its name ends in {path.suffix!r}; .jsonl, .json and .parquet are allowed"
        )
    if not path.exists():
        raise DataError(f"there is no problem file {path.absolute()}; give its path, or data_dir for a preset")
    if path.suffix == ".parquet":
        return _rows(path, lambda: pq.read_table(path))
    return read_jsonl(path) if path.suffix == ".jsonl" else _items(path)


def _items(path: Path) -> Iterator[Record]:
    try:
        items = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not isinstance(items, list):
        raise DataError(f"{path} holds a JSON {type(items).__name__}; a .json file must hold a list of objects")
    for number, item in enumerate(items, start=1):
        yield _record(f"{path} record {number}", number, item)


def _read_saved(path: Path) -> Iterator[Record]:
    splits = sorted(file.parent.name for file in path.glob("*/state.json"))
    if splits:
        raise ConfigError(f"{path} holds the splits {', '.join(splits)}; name one, for example {path / splits[0]}")
    if not (path / "state.json").exists():
        raise ConfigError(f"{path} is a directory without a data set that `datasets` saved (it has no state.json)")
    files = [path / file["filename"] for file in json.loads((path / "state.json").read_text())["_data_files"]]
    return _rows(path, lambda: pa.concat_tables(pa.ipc.open_stream(file.read_bytes()).read_all() for file in files))


def _rows(path: Path, load: Callable[[], Any]) -> Iterator[Record]:
    try:
        rows = load().to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    return (Record(f"{path} record {number}", number, row) for number, row in enumerate(rows, start=1))


def _record(place: str, number: int, item: Any) -> Record:
    if not isinstance(item, dict):
        raise DataError(f"{place} is a JSON {type(item).__name__}; an object with the problem's fields is needed")
    return Record(place, number, item)


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
    for number, row in enumerate(rows, start=1):
        yield _record(f"{name} {split} record {number}", number, dict(row))


def text_of(record: Record, field: str) -> str:
    """A field as text without surrounding space; whole numbers without a decimal point; null as empty text."""
    if field not in record.fields:
        raise DataError(f"{record.place} has no field '{field}'; its fields are {', '.join(record.fields) or 'none'}")
    value = "" if record.fields[field] is None else record.fields[field]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{record.place}: field '{field}' is {value!r}; text or a number is needed")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def answer_of(record: Record, field: str, pattern: str | None) -> str:
    r"""The reference answer in a field: the whole text, the last match of a pattern, or the last `\boxed{}`."""
    text = text_of(record, field)
    if pattern is None:
        return text
    answers = [last_boxed(text)] if pattern == BOXED else [match.group(1) for match in re.finditer(pattern, text)]
    if not answers or answers[-1] is None:
        form = "\\boxed{}" if pattern == BOXED else f"answer_pattern {pattern!r}"
        raise DataError(f"{record.place}: field '{field}' has nothing that matches {form}; it ends in {text[-40:]!r}")
    return answers[-1].strip()


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, found by counting braces; None when none closes."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, position = 1, start + len("\\boxed{")
    for end in range(position, len(text)):
        is_escaped = text[end - 1] == "\\" and text[end - 2] != "\\"  # \{ is a literal brace, not a group
        if not is_escaped and text[end] in "{}":
            depth += 1 if text[end] == "{" else -1
        if depth == 0:
            return text[position:end]
    return None
