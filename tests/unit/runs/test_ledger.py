"""The ledger: what was written is read back, and what was edited is found."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import CheckpointError
from groupwise.runs import ledger as ledger_module
from groupwise.runs.ledger import SCHEMA_VERSION, Ledger, LineFile

ENTRIES = [{"step": step, "rewards": [0.1, None, step / 3], "text": "数\n\u2028é"} for step in range(4)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for entry in ENTRIES:
        ledger.append(entry)
    return ledger


def contents(ledger: LineFile) -> list[dict[str, Any]]:
    return [{name: line[name] for name in ENTRIES[0]} for line in ledger.lines()]


def test_entries_are_read_back(ledger: Ledger) -> None:
    assert contents(ledger) == ENTRIES
    assert ledger.check() == len(ENTRIES)
    assert {line["schema"] for line in ledger.lines()} == {SCHEMA_VERSION}


@pytest.mark.parametrize("tail", [1, 7, 100, 1 << 16])
def test_the_hash_of_a_line_of_any_length_is_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    monkeypatch.setattr(ledger_module, "_TAIL", tail)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for length in (0, 1, 70_000, 3, 140_000, 0):
        ledger.append({"text": "x" * length})
    assert ledger.check() == 6


def test_appending_to_a_long_ledger_does_not_read_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.path.touch()
    os.truncate(ledger.path, 1 << 35)  # a hole, more than fits into memory
    last = b'{"step":1}\n'
    with ledger.path.open("ab") as file:
        file.write(b"\n" + last)
    ledger.append({"step": 2})
    with ledger.path.open("rb") as file:
        file.seek((1 << 35) + 1 + len(last))
        assert json.load(file)["previous"] == hashlib.sha256(last).hexdigest()


Change = Callable[[list[bytes]], list[bytes]]
DAMAGE: dict[str, tuple[Change, str]] = {
    **{f"edited {i}": (lambda t, i=i: [*t[:i], t[i].replace(b"0.1", b"0.2"), *t[i + 1 :]],
                       f"line {i + 2}: the line before it was changed") for i in range(3)},
    **{f"missing {i}": (lambda t, i=i: t[:i] + t[i + 1 :], f"line {i + 1}") for i in range(3)},
    "swapped": (lambda t: [t[0], t[2], t[1], t[3]], "line 2"),
    **{text: (lambda t, text=text: [*t[:2], f"{text}\n".encode(), *t[2:]], "line 3")
       for text in ("not json", "[]", '{"step":1}', "")},
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_at_its_line(ledger: Ledger, name: str) -> None:
    change, said = DAMAGE[name]
    before = ledger.path.read_bytes()
    ledger.path.write_bytes(b"".join(change(before.splitlines(keepends=True))))
    assert ledger.path.read_bytes() != before
    with pytest.raises(CheckpointError, match=said):
        ledger.check()


def test_a_torn_last_line_is_ignored(ledger: Ledger) -> None:
    os.truncate(ledger.path, ledger.size - 9)
    assert contents(ledger) == ENTRIES[:-1]
    assert ledger.check() == len(ENTRIES) - 1


def test_no_file_is_an_empty_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.size == 0
    assert list(ledger.lines()) == []
    assert ledger.check() == 0


@pytest.mark.parametrize("keep", [0, 1, 3, 4])
def test_cutting_back_and_writing_again_gives_the_same_bytes(ledger: Ledger, keep: int) -> None:
    whole = ledger.path.read_bytes()
    ledger.truncate(len(b"".join(whole.splitlines(keepends=True)[:keep])))
    assert contents(ledger) == ENTRIES[:keep]
    for entry in ENTRIES[keep:]:
        ledger.append(entry)
    assert ledger.path.read_bytes() == whole


def test_cutting_back_removes_a_torn_line(ledger: Ledger) -> None:
    whole, size = ledger.path.read_bytes(), ledger.size
    with ledger.path.open("ab") as file:
        file.write(b'{"step": 4, "rew')
    ledger.truncate(size)
    assert ledger.path.read_bytes() == whole


def test_a_file_shorter_than_its_checkpoint_says_is_damaged(ledger: Ledger) -> None:
    with pytest.raises(CheckpointError, match=rf"shorter \({ledger.size} bytes\)"):
        ledger.truncate(ledger.size + 1)


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "NaN"), (-float("inf"), "-Infinity")])
def test_numbers_that_json_does_not_have_are_written_as_texts_and_read_as_numbers(
    ledger: Ledger, value: float, text: str
) -> None:
    ledger.append({"parts": {"loss": [value, 1.0]}})
    assert json.loads(ledger.path.read_bytes().splitlines()[-1])["parts"] == {"loss": [text, 1.0]}
    assert list(ledger.lines())[-1]["parts"]["loss"] == pytest.approx([value, 1.0], nan_ok=True)
    assert ledger.check() == len(ENTRIES) + 1


def test_a_full_disk_is_one_sentence(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"ledger\.jsonl cannot be written: No space left"):
        ledger.append(ENTRIES[0])


def test_metrics_are_plain_lines(tmp_path: Path) -> None:
    metrics = LineFile(tmp_path / "metrics.jsonl")
    metrics.append({"a": 1})
    metrics.append({"b": [1.5, None]})
    assert [json.loads(line) for line in metrics.path.read_text().splitlines()] == [{"a": 1}, {"b": [1.5, None]}]
