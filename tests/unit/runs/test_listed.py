"""The list of completions in a file's footer is what its columns say; one that does not fit is passed over."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from groupwise.runs import rollouts
from groupwise.runs.records import Records
from groupwise.runs.rollouts import LISTED, LISTED_KEY, SCHEMA, unpacked_list, write_rows


def a_row(problem: str, sample: int, **more: Any) -> dict[str, Any]:
    return {
        "step": 0, "problem": problem, "sample": sample, "text": "é" * 300, "finish_reason": "stop",
        "outcome": "crashed" if sample else "correct", "reward": None if sample else 0.1 + 0.2, "advantage": -1 / 3,
        "num_tokens": 7, "difficulty": "", "reward_parts": {"accuracy": 0.1 + 0.2, "format": sample}, **more,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "ledger.jsonl").write_text("")
    write_rows(path_of(tmp_path), [[a_row("a", 0), a_row("a", 1)], [a_row("b", 0)]])
    return tmp_path


def path_of(run: Path) -> Path:
    return run / "rollouts" / "step-000000.parquet"


def with_footer(path: Path, footer: dict[bytes, bytes]) -> None:
    """The same rows under another footer."""
    table = pq.read_table(path)
    with pq.ParquetWriter(path, SCHEMA) as writer:
        writer.write_table(table.cast(SCHEMA))
        writer.add_key_value_metadata(footer)


def columns_of(path: Path) -> dict[str, list[Any]]:
    table = pq.read_table(path, columns=list(LISTED))
    columns = {name: table[name].to_pylist() for name in LISTED}
    return {**columns, "text": [text[:160] for text in columns["text"]]}


def test_the_footer_says_what_the_columns_say(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_of(run)
    found = unpacked_list(pq.read_metadata(path).metadata, 3)
    assert found == columns_of(path) == Records.open(run).listed(0)
    assert found["reward"] == [0.1 + 0.2, None, 0.1 + 0.2]  # every bit, and null is no 0
    monkeypatch.setattr(rollouts, "MOST_LISTED_BYTES", 100)
    assert unpacked_list(pq.read_metadata(path).metadata, 3) is None


def packed(columns: object) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(columns).encode()))


GOOD = {name: [None] * 3 for name in LISTED}
BAD: dict[str, bytes] = {
    "no base64": b"\xff\xff", "not compressed": base64.b64encode(b"{}"),
    "no JSON": base64.b64encode(zlib.compress(b"{")), "deep": base64.b64encode(zlib.compress(b"[" * 200_000)),
    "no object": packed([]), "too few rows": packed({**GOOD, "reward": [1.0]}),
    "a column less": packed({"reward": [1.0] * 3}), "another type": packed({**GOOD, "outcome": [3, 3, 3]}),
    "no list": packed({**GOOD, "text": "abc"}), "cut": base64.b64encode(zlib.compress(json.dumps(GOOD).encode())[:-8]),
}  # fmt: skip


@pytest.mark.parametrize("fault", [*BAD, "of another program"])
def test_a_footer_that_does_not_fit_is_passed_over(run: Path, fault: str) -> None:
    path = path_of(run)
    expected = columns_of(path)
    with_footer(path, {LISTED_KEY: BAD[fault]} if fault in BAD else {b"other": b"thing"})
    assert unpacked_list(pq.read_metadata(path).metadata, 3) is None
    assert Records.open(run).listed(0) == expected
