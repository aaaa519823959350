"""What a run wrote is in each store, every step once, also after a kill and a step back to the last checkpoint.

The stores are read without the packages that wrote them where that is possible: SQLite files and event files.
"""

import json
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Points = list[tuple[int, float]]
"""(step, value) in the order of the steps, doubled ones included."""
REWARDS: Points = [(step, step / 8) for step in range(6)]


@pytest.fixture
def resumed(fake_run: Callable[..., Any]) -> Callable[..., Path]:
    """resumed(kind=..., ...) -> directory of the run, killed and resumed, that had this sink."""

    def run(**section: Any) -> Path:
        made = fake_run(shown=section)
        made.interrupted_and_resumed()
        return Path(made.directory.path)

    return run


def check(points: Callable[[str], Points]) -> None:
    """Every line is there once, the step axis goes on over the resume, an evaluation has its interval."""
    assert points("step/reward") == REWARDS
    assert points("step/parts/part/accuracy/mean") == [(step, 0.5) for step in range(6)]
    assert [points(f"dev/pass_at_1{end}") for end in ("", "/low", "/high")] == [[(2, 0.5)], [(2, 0.25)], [(2, 0.75)]]
    assert points("dev/second") == []


def test_tensorboard(resumed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    # it imports torch where there is one, which takes each of the three processes longer than all it writes
    (tmp_path / "without" / "torch").mkdir(parents=True)
    (tmp_path / "without" / "torch" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"), prepend=os.pathsep)
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (resumed(kind="tensorboard") / "tensorboard").glob("events.out.tfevents.*")
    events = [Event.FromString(record) for record in _event_records(file.read_bytes())]
    found = [(value.tag, (event.step, value.simple_value)) for event in events for value in event.summary.value]
    check(lambda name: [point for tag, point in found if tag == name])


def _event_records(content: bytes) -> Iterator[bytes]:
    """TFRecord: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    while content:
        (size,) = struct.unpack("<Q", content[:8])
        yield content[12 : 12 + size]
        content = content[16 + size :]


def test_mlflow(resumed: Callable[..., Path]) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    resumed(kind="mlflow", wait_s=120)
    store = sqlite3.connect("mlflow.db")
    query = "SELECT step, value FROM metrics WHERE key = ? ORDER BY step, timestamp"
    check(lambda name: store.execute(query, [name]).fetchall())
    assert store.execute("SELECT name FROM runs").fetchall() == [("runs/fake",)]
    assert dict(store.execute("SELECT key, value FROM params"))["run.seed"] == "3"
    store.close()


def test_trackio(resumed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    resumed(kind="trackio", project="mine", wait_s=120)
    store = sqlite3.connect("trackio/mine.db")
    rows = [(step, json.loads(text)) for step, text in store.execute("SELECT step, metrics FROM metrics ORDER BY id")]
    check(lambda name: [(step, row[name]) for step, row in rows if name in row])
    assert len(store.execute("SELECT DISTINCT run_id FROM metrics").fetchall()) == 1
    store.close()


def test_wandb_offline(resumed: Callable[..., Path]) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    path = resumed(kind="wandb", mode="offline", project="mine", wait_s=120)
    rows, runs = list[dict[str, Any]](), set[tuple[str, str]]()
    for file in sorted(Path("wandb").glob("offline-run-*/*.wandb")):
        for record in map(Record.FromString, _wandb_records(file.read_bytes())):
            if record.HasField("history"):
                items = record.history.item
                rows.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
            if record.HasField("run"):
                runs.add((record.run.run_id, record.run.display_name))
    check(lambda name: [(row["step"], row[name]) for row in rows if name in row])
    assert runs == {(json.loads((path / "sinks/shown.json").read_text())["id"], "runs/fake")}
    assert [row["_step"] for row in rows] == list(range(7)), "W&B's own axis counts lines"


def _wandb_records(content: bytes) -> Iterator[bytes]:
    """LevelDB's log: after 7 bytes, 32 KiB blocks of chunks: checksum (4), length (2), which part of a record (1)."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, part = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + size]
        place += 7 + size
        if part in (1, 4):
            yield record
            record = b""
