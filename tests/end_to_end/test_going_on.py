"""A run that goes on: after a signal, with more steps, with changed inputs; its ledger is that of one whole run."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import save_random

from groupwise.config.recipes import dump_tables
from groupwise.errors import CheckpointError, DataError
from groupwise.models.new_model import character_tokenizer
from groupwise.models.policy import load_policy
from groupwise.runs.processes import ENDING, Stopped
from groupwise.runs.run import Run
from groupwise.trainers import Recipe, load_recipe, train
from groupwise.trainers.compare import compare_variants


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fine-tuning of three steps in `run`, all of whose paths are relative to the working directory."""
    save_random(tmp_path / "model", character_tokenizer("0123456789+= "))
    rows = [json.dumps({"prompt": f"{n}+1=", "completion": str(n + 1)}) for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    return {
        "algorithm": "sft", "run": {"directory": "run", "num_steps": 3, "checkpoint_every": 2},
        "model": {"path": "model", "device": "cpu", "num_threads": 1},
        "data": {"source": "jsonl", "path": "rows.jsonl"}, "sft": {"sequences_per_step": 3},
        "optimizer": {"lr": 1e-2, "warmup_steps": 1},
    }  # fmt: skip


def ledger(directory: str) -> list[dict[str, Any]]:
    return [{**line, "previous": None} for line in Run.open(directory).directory.ledger.lines()]


def whole(recipe: dict[str, Any]) -> list[dict[str, Any]]:
    train(load_recipe(recipe, {"run.directory": "whole"}))
    return ledger("whole")


def after_step(step: int, *numbers: int) -> Any:
    def on_report(report: Any) -> None:
        if report.step == step:
            for number in numbers:
                os.kill(os.getpid(), number)

    return on_report


@pytest.fixture
def not_under_nohup() -> Iterator[None]:
    """Hear SIGHUP, also where the tests themselves run under nohup, which ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_run_after_its_step_with_a_checkpoint(
    recipe: dict[str, Any], number: signal.Signals, not_under_nohup: None
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as stopped:
        train(load_recipe(recipe), on_report=after_step(0, number))
    assert stopped.value.code == 128 + number
    assert stopped.value.sentence == (
        f"stopped by {number.name} after step 1, with a checkpoint, and the same command resumes there"
    )
    assert Run.open("run").directory.steps() == [1]
    assert signal.getsignal(number) == before
    assert train(load_recipe(recipe)).finished
    assert ledger("run") == whole(recipe)


def test_a_second_signal_ends_it_at_once_and_an_ignored_one_never(recipe: dict[str, Any]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with pytest.raises(Stopped):
            train(load_recipe(recipe), on_report=after_step(0, signal.SIGTERM, signal.SIGTERM))
        assert Run.open("run").directory.steps() == []
        assert train(load_recipe(recipe), on_report=after_step(0, signal.SIGHUP)).finished
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_finished_run_is_made_longer(recipe: dict[str, Any]) -> None:
    train({**recipe, "run": {**recipe["run"], "num_steps": 2}})
    with pytest.raises(CheckpointError, match=r"run is finished \(2 steps\).* make it longer with another run\.num"):
        train(load_recipe(recipe, {"run.num_steps": 2}))
    with pytest.raises(CheckpointError, match=r"begun with run\.num_steps = 2 and has done 2: it cannot have 1"):
        train(load_recipe(recipe, {"run.num_steps": 1}))
    run = train(load_recipe(recipe))
    assert (run.finished, run.num_steps) == (True, 3)
    assert ledger("run") == whole(recipe)
    assert train(load_recipe(run.directory.config, {"run.num_steps": 4})).num_steps == 4


def test_a_comparison_takes_no_finished_run_of_another_recipe(recipe: dict[str, Any], tmp_path: Path) -> None:
    train(load_recipe(recipe, {"run.directory": "all 😀/a-seed0", "run.seed": 0}))
    (tmp_path / "recipe.toml").write_text(dump_tables(recipe))
    comparison = {"directory": "all 😀", "recipe": "recipe.toml", "seeds": 1, "variants": {"a": {}}}
    with pytest.raises(DataError, match="has no test evaluation"):  # it was taken
        compare_variants(comparison)
    with pytest.raises(
        CheckpointError,
        match=r"a-seed0 was made by another .*\.lr was 0\.01 and is 0\.1\. Put it back, delete",
    ):
        compare_variants(comparison, ['overrides=["optimizer.lr=0.1"]'])
    shutil.copy("rows.jsonl", "moved.jsonl")
    with pytest.raises(DataError, match="has no test evaluation"):  # equal data elsewhere are the same
        compare_variants(comparison, ['overrides=["data.path=moved.jsonl"]'])
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1=", "completion": "2"}')
    with pytest.raises(
        CheckpointError,
        match=r"a-seed0 cannot go on.* was changed .* Put back what was there, .* choose another directory",
    ):
        compare_variants(comparison)


@pytest.mark.parametrize("place", ["groupwise.training.session.write_file", "pathlib.Path.unlink"])
def test_a_run_killed_while_it_is_made_longer_is_not_taken_for_finished(
    recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    train(load_recipe(recipe, {"run.num_steps": 2}))

    def killed(path: Path, *_: object, **__: object) -> None:
        if path.name in ("config.toml", "finished.json"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, killed)
        with pytest.raises(KeyboardInterrupt):
            train(load_recipe(recipe))
    assert train(load_recipe(recipe)).num_steps == 3
    assert ledger("run") == whole(recipe)


def test_a_schedule_that_ends_with_the_run_is_not_made_longer(recipe: dict[str, Any]) -> None:
    falling: Recipe = load_recipe(recipe, {"optimizer.schedule": "cosine", "run.num_steps": 2})
    train(falling)
    before = Run.open("run").directory.config.read_bytes()
    with pytest.raises(CheckpointError, match=r"num_steps = 2, and optimizer\.schedule = 'cosine' .* run of 3\."):
        train(falling.with_changes({"run.num_steps": 3}))
    assert Run.open("run").directory.config.read_bytes() == before
    assert Run.open("run").finished


def test_a_changed_input_is_refused_and_accepted_by_name(recipe: dict[str, Any], tmp_path: Path) -> None:
    train(load_recipe(recipe, {"run.num_steps": 2}))
    rows, longer = tmp_path / "rows.jsonl", load_recipe(recipe)
    rows.write_text(rows.read_text().replace('"2"', '"3"'))
    with pytest.raises(CheckpointError, match=r"data\.path, .*rows\.jsonl, was changed .* --accept-changed NAME"):
        train(longer)
    rows.rename("moved.jsonl")
    with pytest.raises(CheckpointError, match=r"data\.path, .*rows\.jsonl, is missing"):
        train(longer)
    moved = load_recipe(recipe, {"data.path": "moved.jsonl"})
    with pytest.raises(Stopped):  # killed before a checkpoint says that the change was accepted
        train(moved, on_report=after_step(2, signal.SIGTERM, signal.SIGTERM), accept=["data.path"])
    run = train(moved)
    accepted = [line for line in run.directory.ledger.lines() if "accepted" in line]
    assert [(line["step"], line["accepted"]["input"], line["accepted"]["number"]) for line in accepted] == [
        (2, "data.path", 1)
    ]
    assert run.directory.ledger.check() == 4


def test_a_run_resumes_from_another_directory_and_after_it_was_moved(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(recipe)
    train(load_recipe(recipe, {"run.num_steps": 2}))
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    os.utime(tmp_path / "rows.jsonl", (1, 1))
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    config = tmp_path / "elsewhere" / "config.toml"
    run = train(load_recipe(config, {"run.directory": str(tmp_path / "elsewhere"), "run.num_steps": 3}))
    assert run.finished
    assert ledger(str(tmp_path / "elsewhere")) == expected


def test_adapters_find_the_model_that_was_moved_from_under_them(recipe: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    adapted = {**recipe, "lora": {"rank": 2}}
    train(load_recipe(adapted, {"run.num_steps": 2}))
    (tmp_path / "model").rename("moved")
    run = train(load_recipe(adapted, {"model.path": "moved"}), accept=["model.path"])
    assert (run.finished, run.num_steps) == (True, 3)
    assert load_policy(str(run.checkpoints[0])).fingerprint() == ledger("run")[1]["weights"]
