"""`groupwise train`: what it prints and leaves, what it resumes, and what it refuses to touch."""

import json
import os
import re
import shutil
import signal
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from commands import Trained, contents, ledger, refuse, succeed, write_recipe

import groupwise.cli.train as cli_train
from groupwise.trainers.report import StepReport

NUM_STEPS = 3


def test_train_leaves_everything_that_looking_at_it_needs(trained: Trained) -> None:
    run = trained.path
    for name in ("config.toml", "environment.json", "ledger.jsonl", "metrics.jsonl", "finished.json"):
        assert (run / name).stat().st_size, name
    assert (run / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert (run / "rollouts" / "index.jsonl").stat().st_size
    assert {file.stem for file in (run / "rollouts").glob("*.parquet")} == {
        *(f"step-{step:06d}" for step in range(NUM_STEPS)),
        *(f"dev-step-{step:06d}" for step in (0, 2, 3)), "test-before", "test-after",
    }  # fmt: skip
    assert (run / "checkpoints" / "step-000003" / "model.safetensors").exists()
    assert (run / "checkpoints" / "best").resolve().name.startswith("step-")
    kinds = [line.get("evaluation", "step") for line in map(json.loads, ledger(run).splitlines())]
    assert kinds == ["dev", "step", "step", "dev", "step", "dev", "test-before", "test-after"]


def test_train_prints_steps_evaluations_and_where_the_report_is(trained: Trained) -> None:
    lines = trained.out.splitlines()
    assert sum(line.split()[:2] == ["step", "reward"] for line in lines) == 1
    assert [line.split()[0] for line in lines if re.match(r" +\d+  +\d\.\d{3}", line)] == ["0", "1", "2"]
    dev = [line for line in lines if line.startswith("  dev  pass@1 ")]
    assert [re.search(r"after (\d) steps", line)[1] for line in dev] == ["0", "2", "3"]  # type: ignore[index]
    assert dev[0].endswith("(best so far)")
    assert "3 of 3 steps, finished" in trained.out
    assert "Test split, start against best checkpoint: 4 problems × 2 samples" in trained.out
    assert lines[-1] == f"Report: {trained.path / 'report.html'}"
    assert " loss" not in trained.out


@pytest.mark.slow  # every day in test_examples.py, with one step
def test_the_resolved_recipe_reruns_the_run(trained: Trained, without_report: None, tmp_path: Path) -> None:
    succeed("train", trained.path / "config.toml", "--set", f"run.directory={tmp_path / 'other'}")
    assert ledger(tmp_path / "other") == ledger(trained.path)


def test_ctrl_c_stops_after_the_step_and_the_same_command_goes_on(
    trained: Trained, without_report: None, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "run")
    printed = cli_train.step_line

    def interrupt(report: Any) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return printed(report)

    with patch.object(cli_train, "step_line", interrupt):
        said = succeed("train", recipe)
    assert "Stopped after step 1 with a checkpoint; the same command resumes there." in said
    assert not (tmp_path / "run" / "finished.json").exists()
    assert "1/3" in succeed("runs", tmp_path)
    again = succeed("train", recipe)
    assert "3 of 3 steps, finished" in again
    assert not re.search("^  dev .* after 0 steps", again, re.MULTILINE)
    assert ledger(tmp_path / "run") == ledger(trained.path)


def test_a_finished_run_is_left_alone_until_restart(copy: Path) -> None:
    before = contents(copy)
    sentence = refuse("train", copy / "config.toml")
    assert "is finished (3 steps): there is nothing left to do" in sentence
    assert "--restart" in sentence
    assert contents(copy) == before
    (copy / "report.html").unlink()
    succeed("train", copy / "config.toml", "--restart", "--set", "run.seed=7", "--set", "run.num_steps=1")
    assert (copy / "report.html").exists()
    assert ledger(copy) != before["ledger.jsonl"]
    assert tomllib.loads((copy / "config.toml").read_text())["run"]["seed"] == 7


def test_a_step_says_how_many_scores_lie_beyond_their_clip() -> None:
    numbers = dict.fromkeys(StepReport._fields, 1)
    parts = {"part/accuracy/mean": 0.5, "part/helpful/mean": 0.7, "part/harmless/mean": 0.2}
    cuts = {"measure/cut/helpful/mean": 0.43, "measure/cut/harmless/mean": 0.0}
    line = cli_train.step_line(StepReport(**{**numbers, "parts": parts | cuts}))
    assert "helpful +0.700  43% of helpful beyond its clip" in line
    assert "harmless beyond" not in line


def test_a_damaged_checkpoint_is_named_on_resume(trained: Trained, without_report: None, copy: Path) -> None:
    """The copy is a run that was killed before its end, whose newest checkpoint then lost a bit."""
    (copy / "finished.json").unlink()
    weights = copy / "checkpoints" / "step-000003" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    sentence = refuse("train", copy / "config.toml")
    assert "step-000003 is damaged: model.safetensors" in sentence
    assert "delete" in sentence
    shutil.rmtree(weights.parent)
    succeed("train", copy / "config.toml")
    assert ledger(copy) == ledger(trained.path)


def test_a_restart_that_cannot_begin_deletes_nothing(copy: Path) -> None:
    before = ledger(copy)
    refuse("train", copy / "config.toml", "--restart", "--set", f"model.path={copy / 'missing'}")
    assert ledger(copy) == before


def test_a_changed_recipe_is_refused_and_named(trained: Trained) -> None:
    sentence = refuse("train", trained.recipe, "--set", "optimizer.lr=0.5")
    assert "was begun with another recipe: optimizer.lr was" in sentence
