"""Killed at any moment and started again with the same command, a GRPO run ends in the same ledger, byte for byte.

The runs are real processes. They are forked from a server that has imported the package once, so that a start costs
milliseconds; what they do is `train`, from reading the model to the test split.
"""

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import processes
import pyarrow.parquet as pq
import pytest
from commands import contents, save_random
from signalled_run import PATIENCE_S, exit_code

from groupwise.config import parse
from groupwise.models.new_model import character_tokenizer
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import load_recipe, train
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.ppo import PpoRecipe
from groupwise.trainers.rl_recipe import RlRecipe

NUM_STEPS = 6
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"optimizer": {"lr": 1e-2}},
    "everything on": {
        "optimizer": {"lr": 1e-2, "schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1},
        "loss": {
            "kl_coef": 0.05,
            "mini_batches": 2,
            "epochs": 2,
            "aggregation": "token",
            "policy": {"clip_high": 0.28},
        },
        "grpo": {"prompts_per_step": 4, "group_size": 16, "refill_rounds": 2, "curriculum": True},
        "advantage": {"kind": "group_normalised"},
        "sampling": {"max_tokens": 6, "temperature": 0.9},
    },
    "ppo": {
        "algorithm": "ppo",
        "optimizer": {"lr": 1e-2},
        "loss": {"kl_coef": 0.05},
        "ppo": {"prompts_per_step": 4, "group_size": 16},
        "critic": {"lr": 1e-2},
    },
    "lora": {
        "algorithm": "ppo",
        "lora": {"rank": 2},
        "optimizer": {"lr": 1e-2},
        "loss": {"kl_coef": 0.05},
        "ppo": {"prompts_per_step": 4, "group_size": 16},
        "critic": {"lr": 1e-2},
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, server: None) -> Path:
    """A model with random weights that writes digits so often that some of its answers are right."""
    return save_random(tmp_path_factory.mktemp("model") / "random", character_tokenizer("0123456789 What is?+-\n"))


def recipe(model: Path, directory: Path, **changes: Any) -> RlRecipe:
    values: dict[str, Any] = {
        "run": {"directory": str(directory), "num_steps": NUM_STEPS, "checkpoint_every": 2, "seed": 1},
        "model": {"path": str(model), "device": "cpu", "num_threads": 1},
        "task": {
            "kind": "arithmetic", "kinds": ["sum", "difference"], "digits": [1, 1], "num_problems": 24,
            "num_eval_problems": 3,
        },
        "verifier": {"extraction": "last_number"},
        "grpo": {"prompts_per_step": 4, "group_size": 16},
        "sampling": {"max_tokens": 6},
        "evaluation": {"every": 3, "num_problems": 3, "num_samples": 4, "test_problems": 3, "test_samples": 4},
    }  # fmt: skip
    if "ppo" in changes:
        values.pop("grpo")
    return parse(PpoRecipe if "ppo" in changes else GrpoRecipe, values | changes)


def run_to_the_end(one: RlRecipe) -> RunDirectory:
    process = processes.start(train, one)
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    return RunDirectory(Path(one.run.directory))


EVERY, ONE, OTHER = (
    pytest.mark.parametrize(
        "variant",
        [pytest.param(name, marks=() if name in everyday else pytest.mark.slow) for name in VARIANTS],
        indirect=True,
        scope="module",
    )
    for everyday in (("everything on", "ppo"), ("everything on",), ("ppo",))
)
"""Tests with every variant; all but these are slow. What a critic adds is the same wherever a run is broken off."""


@pytest.fixture(scope="module")
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "lora":
        pytest.importorskip("peft", reason="needs peft: pip install 'groupwise[lora]'")
    return VARIANTS[request.param]


@pytest.fixture(scope="module")
def uninterrupted(model: Path, variant: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_to_the_end(recipe(model, tmp_path_factory.mktemp("runs") / "uninterrupted", **variant))


def assert_same(run: RunDirectory, expected: RunDirectory) -> None:
    assert run.ledger.path.read_bytes() == expected.ledger.path.read_bytes()
    assert run.ledger.check() > NUM_STEPS
    assert contents(run.path / "rollouts") == contents(expected.path / "rollouts")
    last = run.checkpoint(NUM_STEPS)
    for name in (path.name for path in expected.checkpoint(NUM_STEPS).glob("*.safetensors")):
        assert (last / name).read_bytes() == (expected.checkpoint(NUM_STEPS) / name).read_bytes()
    assert run.best.resolve().name == expected.best.resolve().name
    assert run.finished.exists()


@EVERY
def test_the_uninterrupted_run_learns_something(uninterrupted: RunDirectory) -> None:
    lines = list(uninterrupted.ledger.lines())
    steps = [line for line in lines if "groups" in line]
    assert [line["step"] for line in steps] == list(range(NUM_STEPS))
    assert sum(len(set(group["rewards"])) > 1 for line in steps for group in line["groups"]) >= NUM_STEPS
    assert len({line["weights"] for line in steps}) >= NUM_STEPS // 2
    assert [line["evaluation"] for line in lines if "evaluation" in line] == ["dev"] * 3 + ["test-before", "test-after"]


@OTHER  # every day the recorded recipe repeats the one with everything on
def test_a_repeat_gives_the_same_ledger(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path
) -> None:
    assert_same(run_to_the_end(recipe(model, tmp_path / "again", **variant)), uninterrupted)


BEGIN = ["dev-step-000000.parquet", "step-000000", "best", "ledger.jsonl", "step-000000.parquet"]
MIDDLE = ["step-000002", "step-000003.parquet", "step-000004", "step-000005.parquet"]
END = ["dev-step-000006.parquet", "step-000006", "test-before.parquet", "test-after.parquet", "finished.json"]
"""Just before these files get their names: evaluations, checkpoints, rollouts, the mark of the best, the end."""


@ONE
@pytest.mark.parametrize("places", [BEGIN, END], ids=["begin", "end"])
def test_a_run_killed_at_its_ends_ends_in_the_same_ledger(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path, places: list[str]
) -> None:
    check_killed(places, recipe(model, tmp_path / "killed", **variant), uninterrupted)


@EVERY
def test_a_run_killed_between_its_steps_ends_in_the_same_ledger(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path
) -> None:
    check_killed(MIDDLE, recipe(model, tmp_path / "killed", **variant), uninterrupted)


def check_killed(places: list[str], one: RlRecipe, uninterrupted: RunDirectory) -> None:
    for place in places:
        assert exit_code(one, place) == -signal.SIGKILL, place
    assert_same(run_to_the_end(one), uninterrupted)


def test_a_run_with_tools_killed_between_its_steps_ends_in_the_same_ledger(model: Path, tmp_path: Path) -> None:
    """Its tool runs in threads; what it said before the kill is put in from the record."""
    tools = {"counter": {"kind": f"{Path(__file__).with_name('ranked_tool.py')}:Counter", "max_calls": 2}}
    changes = {
        "optimizer": {"lr": 1e-2},
        "sampling": {"max_tokens": 6, "tools": tools},
        "grpo": {"prompts_per_step": 3, "group_size": 8},
    }
    whole = run_to_the_end(recipe(model, tmp_path / "whole", **changes))
    rows = [row for step in range(NUM_STEPS) for row in pq.read_table(whole.rollouts(step)).to_pylist()]
    assert sum(row["sampled"] is not None for row in rows) > len(rows) / 4
    check_killed(MIDDLE[1:3], recipe(model, tmp_path / "killed", **changes), whole)


@pytest.mark.slow
@EVERY
def test_a_run_killed_while_files_are_written_ends_in_the_same_ledger(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path
) -> None:
    one = recipe(model, tmp_path / "killed", **variant)
    run = RunDirectory(Path(one.run.directory))
    half_written = 0
    for name in ("step-000000", "step-000002"):  # before a checkpoint gets its name
        assert exit_code(one, name) == -signal.SIGKILL
        half_written += any(run.checkpoints.glob(".step-*.tmp"))
    assert half_written == 2
    draw, kills, place = random.Random(0), 0, 7  # after the recipe is written
    while exit_code(one, place) == -signal.SIGKILL:
        kills += 1
        place += draw.randint(1, 5)
    assert kills >= 6
    assert_same(run, uninterrupted)


@ONE
def test_a_run_killed_while_it_is_begun_ends_in_the_same_ledger(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path
) -> None:
    one = recipe(model, tmp_path / "killed", **variant)
    for place in (1, 2, "config.toml"):
        assert exit_code(one, place) == -signal.SIGKILL, place
    assert_same(run_to_the_end(one), uninterrupted)


@ONE
def test_a_run_killed_at_random_times_ends_in_the_same_ledger(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path
) -> None:
    one = recipe(model, tmp_path / "killed", **variant)
    run = RunDirectory(Path(one.run.directory))
    draw = random.Random(0)
    for _ in range(6):
        process = processes.start(train, one)
        while not run.config.exists() and process.is_alive():  # what comes before has its own test
            time.sleep(0.001)
        process.join(draw.uniform(0.02, 0.6))
        process.kill()
        process.join()
        if run.finished.exists():
            break
    if not run.finished.exists():
        run_to_the_end(one)
    assert_same(run, uninterrupted)


@ONE
@pytest.mark.parametrize("step", [0, pytest.param(2, marks=pytest.mark.slow), NUM_STEPS - 1])
def test_an_interrupt_finishes_the_step_and_writes_a_checkpoint(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path, step: int
) -> None:
    one = recipe(model, tmp_path / "interrupted", **variant)
    run = RunDirectory(Path(one.run.directory))
    assert exit_code(one, run.rollouts(step).name, number=signal.SIGINT) == 0
    assert not run.finished.exists()
    assert run.steps()[-1] == step + 1
    assert [line["step"] for line in run.ledger.lines() if "groups" in line] == list(range(step + 1))
    assert uninterrupted.ledger.path.read_bytes().startswith(run.ledger.path.read_bytes())
    assert_same(run_to_the_end(one), uninterrupted)


@ONE
def test_an_interrupt_outside_of_the_steps_can_be_resumed(
    model: Path, variant: dict[str, Any], uninterrupted: RunDirectory, tmp_path: Path
) -> None:
    one = recipe(model, tmp_path / "interrupted", **variant)
    run = RunDirectory(Path(one.run.directory))
    for place in ("dev-step-000000.parquet", "test-after.parquet"):
        assert exit_code(one, place, number=signal.SIGINT) == 1
        assert not run.finished.exists()
    assert_same(run_to_the_end(one), uninterrupted)


@ONE
def test_the_recorded_recipe_repeats_the_run(model: Path, uninterrupted: RunDirectory, tmp_path: Path) -> None:
    again = load_recipe(uninterrupted.config, [f"run.directory={json.dumps(str(tmp_path / 'again'))}"])
    assert_same(run_to_the_end(again), uninterrupted)


def test_a_token_budget_ends_the_run_whole_also_when_killed_after_it(model: Path, tmp_path: Path) -> None:
    ended, killed = (recipe(model, tmp_path / name, token_budget=500) for name in ("ended", "killed"))
    run = run_to_the_end(ended)
    steps = [line["step"] for line in run.ledger.lines() if "groups" in line]
    assert 0 < len(steps) < NUM_STEPS
    assert run.steps()[-1] == len(steps)
    assert [line["evaluation"] for line in run.ledger.lines() if "evaluation" in line][-2:] == [
        "test-before",
        "test-after",
    ]
    assert exit_code(killed, "test-before.parquet") == -signal.SIGKILL
    assert run_to_the_end(killed).ledger.path.read_bytes() == run.ledger.path.read_bytes()
