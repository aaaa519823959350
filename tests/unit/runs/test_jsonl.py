"""The reader of JSON lines: which lines there are, and what is said about one that cannot be used."""

import gzip
import json
from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.runs.jsonl import read_jsonl


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_a_line_ends_at_a_line_feed_and_nowhere_else(tmp_path: Path, character: str) -> None:
    path, row = tmp_path / "rows.jsonl", {"text": f"a{character}b"}
    bare = json.dumps(row, ensure_ascii=False)
    escaped = json.dumps(row)
    path.write_bytes(f"{bare if ord(character) > 31 else escaped}\n{escaped}".encode())
    assert [record.fields for record in read_jsonl(path)] == [row, row]


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}\n{"a": 2}', b'{"a": 1}\r\n{"a": 2}\r\n', b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b' {"a": 1}\t\n{"a": 2}\n',
    ],
)  # fmt: skip
def test_ends_of_lines_and_a_byte_order_mark_change_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    assert [(r.place, r.number, r.fields) for r in read_jsonl(path)] == [
        (f"{path}, line {number}", number, {"a": number}) for number in (1, 2)
    ]


def test_blank_lines_are_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\n\n{"a": 1}\r\n \t\r\n{"a": 2}\n\n')
    assert [record.number for record in read_jsonl(path)] == [3, 5]
    path.write_bytes(b"")
    assert not list(read_jsonl(path))


def test_a_compressed_file_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n', mtime=0))
    assert [record.fields for record in read_jsonl(str(path))] == [{"a": 1}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a"', r"rows\.jsonl, line 2 is not JSON: .*; it begins with '{\"a\"'"),
        (b"\n[1]", r"rows\.jsonl, line 2 is a JSON list; an object is needed"),
        (b'{"a": "\xff"}', r"rows\.jsonl, line 1 is not UTF-8"),
        (b'{"a": ' + b"[" * 100_000, r"rows\.jsonl, line 1: lists and objects stand in one another more than 100 deep"),
        (b'{"a": 1}\n\xef\xbb\xbf{"a": 2}', r"line 2 is not JSON"),
    ],
)
def test_a_fault_is_named_by_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_jsonl(path))


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b'{"a": 1}\n' * 9999, mtime=0)[:50], None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "rows.jsonl.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz cannot be read"):
        list(read_jsonl(path))
