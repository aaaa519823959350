"""The reader of data files: every form gives the same records, and what cannot be read is one sentence."""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import os
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.errors import ConfigError, DataError, GroupwiseError
from groupwise.runs.jsonl import Record
from groupwise.tasks.data_files import answer_of, field_of, read_file, shards, text_of

ROWS = [{"question": 'a, "b"\u2028\x85\n', "answer": "1.50"}, {"question": "é\x0b", "answer": "x"}]
LINES = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in ROWS)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def fields(path: str | Path) -> list[dict[str, Any]]:
    return [record.fields for record in read_file(path)]


def as_table(rows: list[dict[str, str]], delimiter: str = ",") -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_zstandard(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def as_arrow(rows: list[dict[str, Any]], new: Any) -> bytes:
    table, sink = pa.Table.from_pylist(rows), pa.BufferOutputStream()
    with new(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES), ("a.JSONL", LINES), ("a.ndjson", f"\ufeff{LINES}"),
        ("a", LINES.replace("}\n", "}\r\n\r\n")),
        ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)), ("a.jsonl.bz2", bz2.compress(LINES.encode())),
        ("a.jsonl.xz", lzma.compress(LINES.encode())), ("a.jsonl.zst", as_zstandard(LINES.encode())),
        ("a.json", json.dumps(ROWS)), ("a.json", f"\ufeff{json.dumps(ROWS, indent=1)}"), ("a.json", LINES),
        ("a.json", json.dumps({"version": 1, "data": ROWS})),
        ("a.csv", as_table(ROWS)), ("a.CSV", f"\ufeff{as_table(ROWS)}"),
        ("a.csv.gz", gzip.compress(as_table(ROWS).encode(), mtime=0)),
        ("a.tsv", as_table(ROWS, "\t")),
        ("a.arrow", as_arrow(ROWS, pa.ipc.new_file)), ("a.arrow", as_arrow(ROWS, pa.ipc.new_stream)),
    ],
)  # fmt: skip
def test_every_form_holds_the_same(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert fields(written(tmp_path / name, content)) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "", r"a.txt: its name ends in '.txt'; .jsonl, .ndjson, "),
        ("a.jsonl", '{"a": 1}\n{"a": 2, "a": 3}', "line 2: an object has the field 'a' more than once"),
        ("a.jsonl", '{"a": "\\ud83d"}', r"line 1: a text holds half a character, '\\ud83d'"),
        ("a.json", '[{"\\udc00": 1}]', "half a character"),
        ("a.jsonl", '{"a": %s}'.replace("%s", "9" * 4301), "line 1: a number has 4301 digits"),
        ("a.jsonl", f'{{"a": {"[" * 100}1{"]" * 100}}}', "line 1: lists and objects stand in one another"),
        ("a.json", "[" * 99_999, "a.json: lists and objects stand in one another more than 100 deep"),
        ("a.jsonl", '{"a": 1,}', "line 1 is not JSON"),
        ("a.jsonl", '[{"a": 1},\n{"a": 2}]', "line 1 is a JSON list or begins one; .* the ending .json"),
        ("a.json", '{"a": 1}', "a.json holds a JSON dict"),
        ("a.json", "[1]", "record 1 is a JSON int"),
        ("a.json", "", "a.json is not JSON"),
        ("a.jsonl", '{"a": 1}\n'.encode("utf-16"), "line 1 is not UTF-8: .* the byte order mark of UTF-16; save it as"),
        ("a.csv", "a\n1\n".encode("utf-32"), "line 1 is not UTF-8: .* the byte order mark of UTF-32"),
        ("a.csv", b"a\n\xe9\n", "line 2 is not UTF-8"),
        ("a.csv", "a,b,a\n1,2,3\n", "line 1: the field 'a' stands more than once"),
        ("a.csv", 'a,b\n"1\n",2\n3\n', "line 4 has 1 values; the first line names 2 fields"),
        ("a.tsv", 'a\tb\n1\t"2\n', "line 2 is no row of a table: unexpected end of data"),
        ("a.parquet", b"PAR1", "a.parquet cannot be read"),
        ("a.arrow", b"ARROW1", "a.arrow cannot be read"),
        ("a.jsonl.gz", b"{}", "a.jsonl.gz cannot be read"),
        ("a.jsonl.zst", b"{}", "a.jsonl.zst cannot be read"),
        ("a.jsonl.xz", b"{}", "a.jsonl.xz cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(GroupwiseError, match=f"^{re.escape(str(tmp_path))}.*{said}|^data file .*{said}"):
        fields(written(tmp_path / name, content))


def test_what_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "pipe.parquet")
    for name in ("pipe.jsonl", "pipe.parquet"):
        with pytest.raises(DataError, match=rf"{name} is no regular file; a file is needed"):
            fields(tmp_path / name)
    for name in ("none.jsonl", "none.parquet", "none.csv", f"{'n' * 300}.jsonl", "a\0b.json"):
        with pytest.raises(DataError, match=r"cannot be read: (No such file|File name too long|embedded null byte)"):
            fields(tmp_path / name)


def test_shards_of_one_split_are_read_in_order(tmp_path: Path) -> None:
    for number in range(11):
        written(tmp_path / f"part-{number:02}.jsonl", f'{{"n": {number}}}\n\n{{"n": {-number}}}\n')
    written(tmp_path / "README.md", "no data")
    written(tmp_path / "dataset_info.json", "{}")
    for path in (tmp_path, tmp_path / "part-*.jsonl", f"{tmp_path}/*.jsonl"):
        records = list(read_file(path))
        assert [record.fields["n"] for record in records] == [n for number in range(11) for n in (number, -number)]
        assert [record.number for record in records[:4]] == [1, 3, 4, 6]
        assert records[2].place.endswith("part-01.jsonl, line 1")
    written(tmp_path / "test-00.jsonl", LINES)
    with pytest.raises(ConfigError, match=r"several kinds of files \(part-0\.jsonl, test-0\.jsonl\); name a file"):
        shards(tmp_path)
    with pytest.raises(DataError, match=r"there is no data file .*none"):
        shards(tmp_path / "none*.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no data files"):
        shards(tmp_path / "empty")
    with pytest.raises(ConfigError, match="hub:NAME:SPLIT and hub:NAME:CONFIGURATION:SPLIT"):
        fields("hub:openai/gsm8k")
    assert shards("hub:openai/gsm8k:main:train") == []


def record(value: Any) -> Record:
    return Record("f, line 1", 1, {"a": value})


@pytest.mark.parametrize(
    ("written_number", "text"),
    [
        ("0.00001", "0.00001"), ("1e23", "1e23"), ("1E-7", "1E-7"), ("2.50", "2.50"), ("145.0", "145"), ("7", "7"),
        ("1e400", "1e400"),
        ("0.1000000000000000055", "0.1000000000000000055"), ("-3.00", "-3"),
        ("12345678901234567890", "12345678901234567890"),
        ("NaN", ""), ("Infinity", ""), ("-Infinity", ""), ("null", ""),
        ('" "', ""), ('"nan"', ""), ('"NaN"', ""), ('"banana"', "banana"),
    ],
)  # fmt: skip
def test_numbers_of_json_are_as_written(tmp_path: Path, written_number: str, text: str) -> None:
    [found] = read_file(written(tmp_path / "a.jsonl", f'{{"a": {written_number}}}'))
    assert answer_of(found, "a", None) == text
    json.dumps(found.fields)  # it is still a number for everybody else


def test_numbers_of_tables_are_the_shortest_that_mean_them(tmp_path: Path) -> None:
    columns = {
        "double": pa.array([1e-5, 1e23, math.nan, 0.1]), "single": pa.array([0.1, 3, None, 1e-5], pa.float32()),
        "decimal": pa.array([Decimal("1.50"), None, Decimal("3.00"), Decimal("0.07")], pa.decimal128(9, 2)),
        "nested": pa.array([{"x": [0.1]}] * 4, pa.struct([("x", pa.list_(pa.float32()))])),
        "half": pa.array(np.array([0.1, 3, 2048, 0.5], np.float16)), "day": pa.array([date(2024, 2, 29)] * 4),
        "bytes": pa.array([b"abc"] * 4),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    records = list(read_file(tmp_path / "a.parquet"))
    read = {
        name: [text_of(row, name) for row in records]
        for name in ("double", "single", "half", "decimal", "nested.x.0", "day", "bytes")
    }
    assert read == {
        "double": ["0.00001", "100000000000000000000000", "", "0.1"], "single": ["0.1", "3", "", "0.00001"],
        "half": ["0.1", "3", "2048", "0.5"], "decimal": ["1.50", "", "3", "0.07"],
        "nested.x.0": ["0.1"] * 4, "day": ["2024-02-29"] * 4,
        "bytes": ["abc"] * 4,
    }  # fmt: skip
    json.dumps([row.fields for row in records])


def test_a_dotted_name_leads_into_a_field_unless_there_is_one_of_that_name() -> None:
    row = Record("f, line 1", 1, {"a": {"b": ["x", {"c": 1}]}, "a.b": "literal"})
    assert (field_of(row, "a.b"), field_of(row, "a.b.1.c"), field_of(row, "a.b.0")) == ("literal", 1, "x")
    for name in ("a.c", "a.b.2", "a.b.0.x", "b", "a."):
        with pytest.raises(DataError, match=rf"f, line 1 has no field '{re.escape(name)}'; its fields are a, a\.b"):
            field_of(row, name)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@UNHURRIED
@given(rows=st.lists(st.dictionaries(TEXT, VALUE, max_size=4), min_size=1, max_size=4), ascii=st.booleans())
def test_what_is_written_as_json_is_read_back(tmp_path: Path, rows: list[dict[str, Any]], ascii: bool) -> None:
    lines = "\n".join(json.dumps(row, ensure_ascii=ascii) for row in rows)
    assert fields(written(tmp_path / "a.jsonl", lines)) == rows
    assert fields(written(tmp_path / "a.json", json.dumps(rows, ensure_ascii=ascii))) == rows


@UNHURRIED
@given(rows=st.lists(st.fixed_dictionaries({"a": TEXT, "b": TEXT.filter(bool)}), min_size=1, max_size=4))
def test_what_is_written_as_a_table_is_read_back(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    assert fields(written(tmp_path / "a.csv", as_table(rows))) == rows
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert fields(tmp_path / "a.parquet") == rows


@UNHURRIED
@given(
    content=st.binary(max_size=60)
    | st.text(st.sampled_from('{}[]",:\\ud8e1\n\r\t\ufeff\0'), max_size=40).map(str.encode),
    ending=st.sampled_from(["jsonl", "json", "csv", "tsv", "parquet", "arrow", "jsonl.gz", "json.zst", "csv.xz"]),
)
def test_any_bytes_are_rows_or_one_sentence(tmp_path: Path, content: bytes, ending: str) -> None:
    try:
        for row in read_file(written(tmp_path / f"a.{ending}", content)):
            assert isinstance(row.fields, dict)
            json.dumps(row.fields, ensure_ascii=False).encode()
    except (DataError, ConfigError) as error:
        assert f"a.{ending}" in str(error)  # noqa: PT017
