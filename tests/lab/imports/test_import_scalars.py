"""Scalars of TensorBoard and W&B: real event files, logs by W&B's own format, and what was damaged is named."""

import gzip
import json
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groupwise_lab.imports import read_scalars, stores, write_imported
from groupwise_lab.imports.foreign import Scalars
from groupwise_lab.imports.stores import BLOCK, START
from typer.testing import CliRunner

from groupwise.checks.doctor import doctor
from groupwise.cli.main import app
from groupwise.errors import ConfigError, DataError
from groupwise.runs.records import Records

Read = tuple[dict[int, dict[str, float]], list[str]]


def read(path: Path, reader: Callable[[Path, Scalars], None] = stores.read_history) -> Read:
    reader(path, scalars := Scalars({}))
    return scalars.steps, scalars.damage


def tensorboard_run(folder: Path, steps: int = 12, prefix: str = "train/") -> Path:
    """As a trainer writes it, with tensorboardX."""
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(folder))
    for step in range(steps):
        writer.add_scalar(f"{prefix}reward", 0.25 * step, step)
        writer.add_scalar(f"{prefix}frac_reward_zero_std", 0.75, step)
        writer.add_scalar(f"{prefix}completions/clipped_ratio", 0.5, step)
        writer.add_text("notes", "<script>", step)
        writer.add_histogram("weights", [0.0, 1.0], step)
    writer.close()
    return folder


def test_event_files_have_the_numbers_that_were_written(tmp_path: Path) -> None:
    found, damage = read(tensorboard_run(tmp_path / "logs"), stores.read_events)
    assert damage == []
    same = {"train/frac_reward_zero_std": 0.75, "train/completions/clipped_ratio": 0.5}
    assert found == {step: {"train/reward": 0.25 * step, **same} for step in range(12)}


def test_an_event_file_that_is_being_written_is_read_to_its_last_event(tmp_path: Path) -> None:
    (path,) = tensorboard_run(tmp_path / "logs").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    found, (said,) = read(path, stores.read_events)
    assert "its last event has no end" in said
    assert len(found) >= 11


@pytest.mark.parametrize("place", [3, 9, 14, 60])
def test_a_changed_event_file_is_named(tmp_path: Path, place: int) -> None:
    (path,) = tensorboard_run(tmp_path / "logs").iterdir()
    content = bytearray(path.read_bytes())
    content[place] ^= 64
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"is no event file of TensorBoard: the checksum of the \w+ at byte"):
        read(path, stores.read_events)


def field(number: int, content: bytes | int) -> bytes:
    """A field of a protocol buffer, by the format's own words."""

    def varint(value: int) -> bytes:
        return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])

    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def wandb_log(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As W&B's datastore writes it: records in blocks, split where a block ends."""
    out = bytearray(START)

    def add(kind: int, data: bytes) -> None:
        out.extend(struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data)

    for row in rows:
        items = b"".join(
            field(1, field(1 if "/" in name else 2, name.encode()) + field(16, json.dumps(value).encode()))
            for name, value in row.items() if name != "_step"
        )  # fmt: skip
        data = field(1, 7) + field(2, items + field(2, field(1, row["_step"])))
        room = BLOCK - len(out) % BLOCK
        if room < 7:
            out.extend(bytes(room))
            room = BLOCK
        if len(data) + 7 <= room:
            add(1, data)
            continue
        add(2, data[: room - 7])
        data = data[room - 7 :]
        while len(data) > BLOCK - 7:
            add(3, data[: BLOCK - 7])
            data = data[BLOCK - 7 :]
        add(4, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(out))
    return path


ROWS = [
    {"_step": step, "critic/rewards/mean": 0.5, "actor/entropy": 1.0 / (step + 1), "note/long": "x" * 5000}
    for step in range(30)
]


@pytest.mark.filterwarnings("default")  # its client's own
def test_a_run_of_wandbs_own_client_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run = client.init(mode="offline", project="p", settings=client.Settings(silent=True, console="off"))
    for step in range(12):
        note = {"note": "x" * 40_000, "nan": float("nan"), "deep": {"er": step}} if step == 5 else {}
        run.log({"train/reward": 0.25 * step, "actor/entropy": 0.5, **note})
    run.finish()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    found, damage = read(folder)
    for _ in range(600):  # `finish` returns before its service has written the log to its end, and the reader says so
        if not damage:
            break
        time.sleep(0.1)
        found, damage = read(folder)
    assert damage == []
    assert [values["train/reward"] for values in found.values()] == [0.25 * step for step in range(12)]
    fifth = {"train/reward": 1.25, "actor/entropy": 0.5, "deep.er": 5.0, "nan": float("nan")}
    assert found[5] == pytest.approx(fifth, nan_ok=True)


def test_a_log_of_wandb_is_read_over_the_ends_of_its_blocks(tmp_path: Path) -> None:
    path = wandb_log(
        tmp_path / "offline-run-1" / "run-1.wandb", [*ROWS, {**ROWS[0], "_step": 30, "note/long": "y" * 90_000}]
    )
    assert path.stat().st_size > 3 * BLOCK
    found, damage = read(path.parent)
    assert damage == []
    assert list(found) == list(range(31))
    assert found[3] == {"critic/rewards/mean": 0.5, "actor/entropy": 0.25}


def test_a_log_of_wandb_that_was_cut_or_changed_is_named(tmp_path: Path) -> None:
    path = wandb_log(tmp_path / "run-1.wandb", ROWS)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    found, (said,) = read(path)
    assert (len(found), "its last record has no end" in said) == (29, True)
    path.write_bytes(content[:BLOCK])
    assert "its last record has no end" in read(path)[1][0]
    path.write_bytes(content[:50] + b"!" + content[51:])
    with pytest.raises(DataError, match="the record at byte 7 does not have its checksum"):
        read(path)
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(DataError, match="is no log of W&B"):
        read(path)
    with pytest.raises(DataError, match=r"has 0 files \*\.wandb"):
        read(tmp_path / "nothing")


@pytest.mark.parametrize("kind", ["csv", "chart", "jsonl", "csv.gz", "semicolons", "cut", "in turns"])
def test_an_exported_history_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"history.{kind if kind in ('jsonl', 'csv.gz') else 'csv'}"
    content = {
        "csv": "_step,train/reward,train/kl\n0,0.5,\n1,0.75,NaN\n", "csv.gz": "_step,train/reward\n0,0.5\n1,0.75\n",
        "semicolons": "\ufeff_step;train/reward\r\n0;0,5\r\n1;7,5e-1\r\n",
        "cut": "_step,train/reward,x\n0,0.5,1\n1,0.75,2\n2,0.",
        "in turns": "_step,train/reward,train/kl\n" + "0,0.5,\n0,,1\n" * 5 + "1,0.75,\n1,,1\n" * 5,
        "chart": '"Step","my run - train/reward","my run - train/reward__MIN"\n0,0.5,0\n1,0.75,0\n',
        "jsonl": '{"_step": 0, "train": {"reward": 0.5}}\nnot json\n{"_step": 1, "train/reward": 0.75, "x": NaN}',
    }[kind].encode()  # fmt: skip
    path.write_bytes(gzip.compress(content) if kind == "csv.gz" else content)
    found, damage = read(path)
    assert [next(iter(values.values())) for values in found.values()] == [0.5, 0.75]
    assert len(damage) == (kind in ("jsonl", "cut"))


def test_names_of_known_trainers_become_ours_and_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert read_scalars("wandb", path).scalars[1] == {"reward": 0.5, "entropy": 0.5}
    path.write_text('{"_step": 4, "charts/return": 3.0, "frac_reward_zero_std": 0.25}\n{"_step": 5, "other": 1.0}\n')
    assert read_scalars("wandb", path).scalars == {4: {"signal": 0.75}}
    assert read_scalars("wandb", path, ["reward=charts/return"]).scalars[4] == {"signal": 0.75, "reward": 3.0}
    for wrong, says in (("prize=other", "'prize' is no scalar of a step"), ("reward=gone", "'gone' was not recorded")):
        with pytest.raises(ConfigError, match=says):
            read_scalars("wandb", path, [wrong])
    path.write_text('{"_step": 4, "train/response_length": 3.0, "train/actor_lr": 0.5}\n')
    assert read_scalars("wandb", path).scalars[4] == {"length": 3.0, "lr": 0.5}  # OpenRLHF's
    path.write_text('{"_step": 4, "charts/return": 3.0}\n')
    with pytest.raises(DataError, match=r"no scalar whose name is known.*charts/return"):
        read_scalars("wandb", path)


def test_the_doctor_reads_imported_scalars_and_says_what_is_missing(tmp_path: Path) -> None:
    source = tensorboard_run(tmp_path / "logs")
    result = CliRunner().invoke(app, ["import", "tensorboard", str(source), str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "12 steps, 0 completions" in result.output
    assert "Not recorded there: sampled_correct, entropy" in result.output
    lines = Records.open(tmp_path / "run").metrics()
    assert [line["reward"] for line in lines] == [0.25 * step for step in range(12)]
    diagnosis = doctor(tmp_path / "run")
    assert [finding.check for finding in diagnosis.findings] == ["truncation"]
    assert diagnosis.not_judged["no_signal"] == ["sampled_correct"]


def test_dev_and_parts_of_the_reward_come_with_the_scalars(tmp_path: Path) -> None:
    """An evaluation that was logged apart is no step."""
    rows = [{"_step": i, "train/reward": 0.5, "train/rewards/form/mean": 0.25} for i in range(2)]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"_step": 2, "eval/accuracy": 0.75}]))
    named = read_scalars("wandb", path, ["sampled_correct=train/rewards/form/mean"]).scalars[0]
    assert (named["sampled_correct"], named["part/form/mean"]) == (0.25, 0.25)
    foreign = read_scalars("wandb", path, ["dev=eval/accuracy"])
    made = write_imported(foreign, "wandb", path, tmp_path / "run", None)
    assert (made.num_steps, made.num_evaluations) == (2, 1)
    told = CliRunner().invoke(app, ["import", "wandb", str(path), str(tmp_path / "again")]).output
    assert "Unless it is one of these (--scalar OURS=THEIRS): eval/accuracy" in told
    assert "--correct NAME, one of form" in told
    records = Records.open(tmp_path / "run")
    assert [line["parts"] for line in records.metrics()] == [{"part/form/mean": 0.25}] * 2
    assert [(line["step"], line["pass_at_1"][0]) for line in records.metrics("dev")] == [(2, 0.75)]


def test_steps_are_the_trainers_where_tables_are_logged_between_them(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    rows = [{"_step": 2 * i, "train/global_step": 5 * i, "train/reward": 0.5} for i in range(1, 4)]
    tables = [{"_step": 2 * i + 1, "completions": {"_type": "table-file"}, "profiling/s": 0.1} for i in range(1, 4)]
    path.write_text("".join(json.dumps(row) + "\n" for pair in zip(rows, tables, strict=True) for row in pair))
    foreign = read_scalars("wandb", path)
    assert sorted(foreign.scalars) == [5, 10, 15]
    assert "no train/global_step: 3, the first is row 2 (completions, profiling/s)" in foreign.damage[0]
    path.write_text(path.read_text() + '{"_step": 9, "own": 1.0, "train/reward": 0.5}\n')  # one that has no such step
    assert sorted(read_scalars("wandb", path).scalars) == [2, 4, 6, 9]


def test_only_what_there_is_can_be_imported() -> None:
    for arguments, says in (
        (["weights", "x", "y"], "there is no import from 'weights'"),
        (["trl", "x", "y", "--scalars", "z"], "are for verl"),
        (["wandb", "x", "y", "--dev", "z"], "--scalars and --dev are for verl"),
        (["trl", "x", "y", "--scalar", "a=b"], "--scalar is for wandb and tensorboard"),
    ):
        result = CliRunner().invoke(app, ["import", *arguments])
        assert says in str(result.exception)


def test_what_our_own_sink_writes_comes_back(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path / "logs"))
    from groupwise.runs.sinks import Line

    entry = {"kind": "step", "step": 3, "time": 1.0, "reward": 0.5, "entropy": 0.25, "parts": {"format": 1.0}}
    for name, value in Line.of(entry).values.items():
        writer.add_scalar(name, value, 3)
    writer.close()
    assert read_scalars("tensorboard", tmp_path / "logs").scalars == {3: {"reward": 0.5, "entropy": 0.25}}
