"""What is missing is run, a kill loses nothing, and what is stale is told."""

import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groupwise_lab.claims import arms
from groupwise_lab.claims.config import Ledger, load_ledger
from groupwise_lab.claims.results import Result, keep_result, read_results
from groupwise_lab.claims.runner import Job, Request, arm_run, missing, run_missing, stale

from groupwise.errors import ConfigError, GroupwiseError

ARMS = ("plain", "other")


def stub(job: Job) -> dict[str, float]:
    """Measures nothing, and writes down that it was called."""
    with (Path(job.run.folder) / "calls.txt").open("a") as file:
        file.write(f"{job.run.name} {job.run.seed}\n")
    return {"after.pass_at_1": 0.5 + 0.3 * (job.run.name == "other"), "minutes": 0.25}


def stub_that_stops(job: Job) -> dict[str, float]:
    """The same, but at its fourth call it never ends."""
    found = stub(job)
    while len(calls(Path(job.run.folder))) >= 4:
        time.sleep(0.01)
    return found


def calls(folder: Path) -> list[str]:
    path = folder / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def request(folder: Path, **changes: object) -> Request:
    ledger = load_ledger(folder)
    return Request(ledger, ledger.claims, **changes)  # type: ignore[arg-type]


def work(folder: Path) -> None:
    run_missing(request(folder), measure=stub_that_stops)


def test_every_arm_and_seed_is_run_once_cheapest_first(folder: Path) -> None:
    assert run_missing(request(folder), measure=stub) == 6
    assert calls(folder) == [f"{arm} {seed}" for seed in range(3) for arm in ARMS]
    assert run_missing(request(folder), measure=stub) == 0
    results = read_results(folder, ARMS)
    assert len(results) == 6
    assert results["other", 2].metrics == {"after.pass_at_1": 0.8}
    assert results["other", 2].minutes == 0.25


def test_a_kill_loses_nothing_that_was_kept(folder: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=work, args=(folder,))
    process.start()
    deadline = time.monotonic() + 60
    while len(calls(folder)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert len(read_results(folder, ARMS)) == 3
    assert run_missing(request(folder), measure=stub) == 3
    whole = {path.name: path.read_bytes() for path in (folder / "results").iterdir()}
    assert sorted(calls(folder)) == sorted([*(f"{a} {s}" for a in ARMS for s in range(3)), calls(folder)[3]])
    for path in (folder / "results").iterdir():
        path.unlink()
    run_missing(request(folder), measure=stub)
    assert {path.name: path.read_bytes() for path in (folder / "results").iterdir()} == whole


def test_a_metric_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(GroupwiseError, match=r"arm 'plain', seed 0, has no 'after.pass_at_1'.*it has x"):
        run_missing(request(folder), measure=lambda job: {"x": 1.0})
    assert read_results(folder, ARMS) == {}


def test_a_rerun_begins_anew(folder: Path) -> None:
    run_missing(request(folder), measure=stub)
    home = arm_run(load_ledger(folder), "plain", 0).home
    home.mkdir(parents=True)
    (home / "old.txt").write_text("old")
    assert run_missing(request(folder, rerun=True), measure=stub) == 6
    assert not (home / "old.txt").exists()


def test_other_recipes_and_models_are_stale_other_code_is_not(
    folder: Path, ledger: Ledger, result: Callable[..., Result]
) -> None:
    today = arm_run(ledger, "plain", 0).marks()
    marks = {
        0: today,
        1: today,  # of other code: every result that the fixture makes is
        2: today._replace(recipe="r"),
        3: today._replace(base="1st 00000000"),
    }
    for seed, of_seed in marks.items():
        keep_result(folder, result("plain", seed, of_seed, after__pass_at_1=0.5))
    faults = stale(ledger)
    assert [fault.partition(":")[0] for fault in faults] == ["arm 'plain', seed 2", "arm 'plain', seed 3"]
    assert "its recipe is r, today's is" in faults[0]
    assert all("run `groupwise claims --arm plain`" in fault for fault in faults)
    wanted = {(job.run.name, job.run.seed) for job in missing(request(folder))}
    assert wanted == {("plain", 2), *(("other", seed) for seed in range(3))}


def test_a_changed_recipe_or_evaluation_has_another_mark_and_a_seed_has_not(folder: Path, ledger: Ledger) -> None:
    first = arm_run(ledger, "plain", 0).marks()
    assert arm_run(ledger, "plain", 7).marks() == first
    assert arm_run(ledger, "other", 0).marks().recipe != first.recipe
    arms = folder / "arms.toml"
    arms.write_text(arms.read_text().replace("minutes = 0.1", 'minutes = 9\nevaluations.more = { task = "countdown" }'))
    assert arm_run(load_ledger(folder), "plain", 0).marks().recipe != first.recipe
    recipe = folder.parent / "tiny.toml"
    recipe.write_text(recipe.read_text() + "[optimizer]\nlr = 1e-6\n")  # the default of it
    assert arm_run(ledger, "plain", 0).marks().recipe != ""


def test_a_reward_of_ones_own_counts_by_its_content_not_its_place(folder: Path, tmp_path: Path) -> None:
    for name in ("here", "there"):
        place = tmp_path / name
        place.mkdir()
        (place / "rewards.py").write_text("def pay(completion, reference):\n    return 1.0\n")
        tiny = (folder.parent / "tiny.toml").read_text()
        (place / "tiny.toml").write_text(tiny + '[verifier]\nkind="rewards.py:pay"\n')

    def mark(name: str) -> str:
        text = (folder / "arms.toml").read_text().replace("../tiny.toml", f"../{name}/tiny.toml")
        other = folder.parent / f"claims-{name}"
        other.mkdir(exist_ok=True)
        (other / "arms.toml").write_text(text)
        return arm_run(load_ledger(other), "plain", 0).marks().recipe

    first = mark("here")
    assert mark("there") == first
    (tmp_path / "there" / "rewards.py").write_text("def pay(completion, reference):\n    return 0.0\n")
    assert mark("there") != first


def test_unknown_arms_and_runs_of_other_recipes_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no arm 'nobody'; there are plain, other"):
        missing(request(folder, arms=("nobody",)))
    place = tmp_path / "elsewhere"
    place.mkdir()
    tiny = (folder.parent / "tiny.toml").read_text()
    (place / "config.toml").write_text(tiny.replace("num_steps = 2", "num_steps = 3"))
    with pytest.raises(ConfigError, match="elsewhere was made by another recipe than arm 'plain'"):
        run_missing(request(folder, finished={"plain": str(place)}), measure=stub)
    assert calls(folder) == []


def test_the_mark_of_the_code_is_that_of_the_trainer_with_the_settings_of_the_arm(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(arms, "code_of", lambda module, settings: asked.append((module, settings)) or "mark")
    assert arms.code_mark(arm_run(ledger, "other", 0)) == "mark"
    [(module, settings)] = asked
    assert (module, settings["advantage"]["kind"]) == ("groupwise.trainers.grpo", "leave_one_out")


@pytest.mark.slow
def test_a_real_claim_that_was_killed_ends_in_the_same_results(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "groupwise", "claims", "--folder", str(folder), "--arm", "plain", "--seeds", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ledger_file = arm_run(load_ledger(folder), "plain", 0).directory / "ledger.jsonl"
    deadline = time.monotonic() + 300
    while not (ledger_file.exists() and ledger_file.read_text()) and time.monotonic() < deadline:
        assert process.poll() is None, (ledger_file.parents[1] / "log.txt").read_text()
        time.sleep(0.02)
    process.kill()
    process.wait()
    with (ledger_file.parent / "lock").open("ab") as lock:  # the training ends when nobody reads what it prints
        fcntl.lockf(lock, fcntl.LOCK_EX)
    assert read_results(folder, ARMS) == {}
    subprocess.run(command, check=True, capture_output=True)
    killed = read_results(folder, ARMS)
    whole_folder = tmp_path / "whole" / "claims"
    shutil.copytree(folder, whole_folder, ignore=shutil.ignore_patterns("results"))
    shutil.copy(folder.parent / "tiny.toml", whole_folder.parent / "tiny.toml")
    arms_file = whole_folder / "arms.toml"
    arms_file.write_text(arms_file.read_text().replace(str(tmp_path / "runs"), str(tmp_path / "others")))
    subprocess.run([*command[:5], str(whole_folder), *command[6:]], check=True, capture_output=True)
    whole = read_results(whole_folder, ARMS)
    assert killed.keys() == whole.keys() == {("plain", 0)}
    measured = ("processor_s", "peak_memory_mb")
    for key, result in killed.items():
        kept = {name: value for name, value in result.metrics.items() if not name.endswith(measured)}
        assert kept == {name: value for name, value in whole[key].metrics.items() if not name.endswith(measured)}
        assert (result.recipe, result.base) == (whole[key].recipe, whole[key].base)
