"""What is not finite in the runs of other systems: kept by every importer, and the doctor's finding with its step."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from groupwise.checks import Severity
from groupwise.checks.doctor import doctor
from groupwise.cli.main import app
from groupwise.runs.records import Records

NAN, INF = float("nan"), float("inf")
STEPS = range(1, 9)
Steps = Sequence[tuple[int, Any]]


def text(value: Any) -> str:
    """JSON with what Python's own writer would not write: a number beyond every float."""
    return json.dumps(value).replace('"1e400!"', "1e400")


def trl(out: Path, losses: Steps) -> list[str]:
    history = [{"step": step, "loss": loss, "grad_norm": 0.5, "reward": 0.25} for step, loss in losses]
    (out / "checkpoint-8").mkdir(parents=True)
    (out / "checkpoint-8" / "trainer_state.json").write_text(text({"log_history": history}))
    return ["trl", str(out)]


def wandb_jsonl(out: Path, losses: Steps) -> list[str]:
    out.mkdir()
    rows = [{"_step": step, "train/loss": loss, "train/reward": 0.25} for step, loss in losses]
    (out / "history.jsonl").write_text("".join(text(row) + "\n" for row in rows))
    return ["wandb", str(out / "history.jsonl")]


def csv(out: Path, losses: Steps) -> list[str]:
    out.mkdir()
    cells = [f"{step},{'' if loss is None else str(loss).strip('!')},0.25\n" for step, loss in losses]
    (out / "history.CSV").write_text("step,loss,reward\n" + "".join(cells))
    return ["wandb", str(out / "history.CSV")]


def tensorboard(out: Path, losses: Steps) -> list[str]:
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(out))
    for step, loss in losses:
        writer.add_scalar("train/loss", NAN if loss is None else float(str(loss).strip("!")), step)
        writer.add_scalar("train/reward", 0.25, step)
    writer.close()
    return ["tensorboard", str(out)]


def verl(out: Path, losses: Steps) -> list[str]:
    out.mkdir()
    for step, _ in losses:
        (out / f"{step}.jsonl").write_text(text({"input": "1 + 1", "output": "2", "score": 1.0}) + "\n")
    rows = [{"step": step, "data": {"actor/pg_loss": loss}} for step, loss in losses]
    (out / "log").write_text("".join(text(row) + "\n" for row in rows))
    return ["verl", str(out), "--scalars", str(out / "log")]


def prime_rl(out: Path, losses: Steps) -> list[str]:
    out.mkdir()
    rows = [{"step": step, "loss/mean": loss, "reward/all/mean": 0.25} for step, loss in losses]
    (out / "metrics.jsonl").write_text("".join(text(row) + "\n" for row in rows))
    return ["prime-rl", str(out)]


SYSTEMS = (trl, wandb_jsonl, csv, tensorboard, verl, prime_rl)


def imported(arguments: list[str], target: Path) -> Any:
    result = CliRunner().invoke(app, ["import", *arguments, str(target)])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result


@pytest.mark.parametrize("value", [NAN, INF, -INF, "NaN", "inf", None, "1e400!"], ids=str)
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.__name__)
def test_a_number_that_is_none_is_critical_with_its_first_step(
    system: Callable[[Path, Steps], list[str]], value: Any, tmp_path: Path
) -> None:
    imported(system(tmp_path / "out", [(step, value if step >= 5 else 0.125) for step in STEPS]), tmp_path / "run")
    assert len(Records.open(tmp_path / "run").metrics()) == 8  # no step is left out
    (worst,) = (one for one in doctor(tmp_path / "run").findings if one.check == "not_finite")
    assert (worst.severity, worst.since_step) == (Severity.CRITICAL, 5)
    assert re.search(r"loss is -?(nan|inf) at step 5 and at 3 later", worst.evidence)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.__name__)
def test_steps_that_go_back_or_stand_twice_are_said(system: Callable[[Path, Steps], list[str]], tmp_path: Path) -> None:
    losses = [(step, 0.125) for step in (1, 2, 3, 4, 2, 3, 5, 6)]
    said = imported(system(tmp_path / "out", [*losses, (6, 0.5)]), tmp_path / "run").output.replace("\n", " ")
    assert re.search(r"the steps go back: it was resumed, or two runs are mixed \(\S+ from step 4 to 2", said)
    assert re.search(r"of two numbers for one step the later counts \(\S+ of step 6 is 0.125, then 0.5\)", said)
    damaged = [one for one in doctor(tmp_path / "run").findings if one.check == "record_damaged"]
    assert [one.severity for one in damaged] == [Severity.WARNING]


def test_rewards_and_advantages_that_are_no_numbers_are_found_and_pay_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out" / "completions"
    out.mkdir(parents=True)
    for step in (1, 2, 3):
        columns = {"step": [step] * 4, "prompt": ["1 + 1"] * 4, "completion": list("abcd"),
                   "right": [1.0, 0.0, INF if step == 2 else 1.0, 0.0], "advantage": [1.0, NAN, 1.0, -1.0]}  # fmt: skip
        pq.write_table(pa.table(columns), out / f"completions_{step:05d}.parquet")
    (out / "completions_00004.parquet").write_bytes(b"PAR1")
    said = imported(["trl", str(out.parent)], tmp_path / "run").output
    assert "completions_00004.parquet holds no completions of TRL" in said.replace("\n", " ")
    assert [line["reward"] for line in Records.open(tmp_path / "run").metrics()] == pytest.approx([0.5, 1 / 3, 0.5])
    (worst,) = (one for one in doctor(tmp_path / "run").findings if one.check == "not_finite")
    assert "advantage of completions is not finite at step 1 and at 2 later" in worst.evidence
    assert "reward of completions is not finite at step 2" in worst.evidence


def test_nothing_is_left_out_without_a_word(tmp_path: Path) -> None:
    history = [{"step": 1, "loss": 0.5, "own/spread": 3.0}, 7, {"loss": 0.5}, {"step": 1.5, "loss": 1.0},
               {"step": 2, "loss": "about 3", "completions/clipped_ratio": 35.0, "note": "x"}]  # fmt: skip
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    said = imported(["trl", str(tmp_path)], tmp_path / "run").output.replace("\n", " ")
    for part in ("log_history[1] is no table of numbers: 7", "a step is a whole number (log_history[2] has None, and 1",
                 "log_history[4]: loss is 'about 3'", "truncated is in another unit, or another quantity, and is left",
                 "No numbers, and left out: note"):  # fmt: skip
        assert part in said
    assert Records.open(tmp_path / "run").metrics()[0]["theirs"] == {"own/spread": 3.0}
    assert "truncated" not in Records.open(tmp_path / "run").metrics()[1]


def test_a_run_of_one_step_says_what_nobody_could_judge(tmp_path: Path) -> None:
    imported(trl(tmp_path / "out", [(1, NAN)]), tmp_path / "run")
    diagnosis = doctor(tmp_path / "run")
    assert [one.check for one in diagnosis.findings] == ["not_finite"]
    assert diagnosis.not_judged["gradient_spikes"] == ["2 steps"]
