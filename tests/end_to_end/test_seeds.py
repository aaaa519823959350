"""Several seeds of a pipeline, a process each: what they make, what they say, what an interrupt leaves."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import processes
import pytest
from typer.testing import CliRunner

import groupwise as gw
from groupwise.cli.main import app
from groupwise.errors import GroupwiseError
from groupwise.pipeline import run_at_once
from groupwise.runs.processes import share_of_threads

pytestmark = pytest.mark.usefixtures("imports_are_found_once")
RECIPE = """
[sampling]
max_tokens = 16
[tasks.reasoning]
kind = "arithmetic"
num_problems = 40
num_eval_problems = 8
[measure]
num_problems = 4
num_samples = 2
sampling = { max_tokens = 16 }
[stages.zero]
algorithm = "grpo"
task = "reasoning"
run = { num_steps = 2 }
grpo = { prompts_per_step = 2, group_size = 4 }
evaluation = { every = 2, num_problems = 2, num_samples = 2, test_problems = 0 }
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


def command(recipe: Path, folder: Path, *more: str) -> list[str]:
    return ["pipeline", str(recipe), "--seeds", "2", "--set", f"pipeline.directory={json.dumps(str(folder))}", *more]


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory, imports_are_found_once: None) -> Path:
    """Two seeds, one after the other, by the command."""
    folder = tmp_path_factory.mktemp("turn")
    (folder / "recipe.toml").write_text(RECIPE)
    done = CliRunner().invoke(app, command(folder / "recipe.toml", folder / "seeds"))  # on one thread, as all tests
    assert done.exit_code == 0, done.output
    return folder / "seeds"


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.slow)])
def popen(request: pytest.FixtureRequest, server: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What starts a process; forked, they need not import everything anew."""
    if request.param == "started":
        # where the tests themselves run in the background, an interrupt would be ignored from the start
        attended = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        return partial(subprocess.Popen, preexec_fn=attended, text=True)
    monkeypatch.setattr("groupwise.runs.processes.subprocess", processes)
    return processes.Popen


def test_more_jobs_than_seeds_are_refused(recipe: Path, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, command(recipe, tmp_path, "--jobs", "3"))
    assert str(refused.exception) == "jobs = 3 with seeds = 2: at most as many jobs as seeds are allowed"


def test_seeds_at_one_time_make_what_seeds_in_turn_make(
    recipe: Path, in_turn: Path, tmp_path: Path, popen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # one thread each
    done = CliRunner().invoke(app, command(recipe, tmp_path / "once", "--jobs", "2"))
    assert done.exit_code == 0, done.output
    for seed in (0, 1):
        places = [folder / f"seed-{seed}" / "stages" / "zero" for folder in (in_turn, tmp_path / "once")]
        for name in ("facts.json", "run/ledger.jsonl"):
            assert len({(place / name).read_bytes() for place in places}) == 1, name
        assert f"seed {seed} │ [1/1] zero (grpo) runs: not run yet" in done.output
    assert (tmp_path / "once" / "seeds.md").exists()


def test_seeds_from_python_make_what_the_command_makes(recipe: Path, in_turn: Path, tmp_path: Path) -> None:
    changes = {"pipeline.directory": str(tmp_path / "python")}
    assert gw.run_seeds(recipe, changes, seeds=2)
    page = gw.seeds_report(tmp_path / "python", seeds=2)
    tables = [json.loads((folder / "seeds.json").read_text()) for folder in (tmp_path / "python", in_turn)]
    assert tables[0] == tables[1]
    assert page.read_text().startswith("# 2 seeds\n")
    with pytest.raises(gw.ConfigError, match=r"jobs = 2: each process reads the recipe from its file"):
        gw.run_seeds(tomllib.loads(RECIPE), changes, seeds=2, jobs=2)


def test_a_seed_that_fails_is_named_and_the_others_come_to_their_end(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    with pytest.raises(GroupwiseError, match=r"^seed 0: .*missing\.toml") as caught:
        run_at_once(
            {"seed 0": ["train", str(tmp_path / "missing.toml")], "seed 1": ["train", "--help"]},
            1,
            lambda name, line: lines.append((name, line)),
        )
    assert "seed 1" not in str(caught.value)
    assert any(name == "seed 1" and line.startswith(" Usage:") for name, line in lines)


def test_each_has_its_share_of_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [share_of_threads(jobs)["OMP_NUM_THREADS"] for jobs in (1, 2, 3, 8, 9)] == ["8", "4", "2", "1", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # a user's own wins
    assert share_of_threads(2)["OMP_NUM_THREADS"] == "3"


def test_an_interrupt_stops_every_seed_after_its_step_and_the_same_command_goes_on(
    recipe: Path, tmp_path: Path, popen: Any
) -> None:
    recipe.write_text(RECIPE.replace("num_steps = 2", "num_steps = 2000"))
    words = command(recipe, tmp_path / "runs", "--jobs", "2")
    started = [sys.executable, "-m", "groupwise", *words]
    with popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        begun: set[str] = set()
        for line in process.stdout:  # a step of both has been reported
            if line[:1] == "s" and line.split("│")[-1].strip()[:1].isdigit():
                begun.add(line[:6])
            if begun == {"seed 0", "seed 1"}:
                break
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 0
    assert said.rstrip().endswith("Stopped; the same command resumes there."), said
    ledgers = list((tmp_path / "runs").glob("seed-[01]/stages/zero/run/ledger.jsonl"))
    assert len(ledgers) == 2
    assert all(0 < len(path.read_text().splitlines()) < 2000 for path in ledgers)
    assert CliRunner().invoke(app, [*words, "--dry-run"]).output.count("resumes") == 2
