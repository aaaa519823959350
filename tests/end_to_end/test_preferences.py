"""Learning from pairs, whole runs: it learns on the shipped base model, and a killed run ends in the same ledger."""

import json
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from commands import save_random, succeed
from signalled_run import exit_code

from groupwise.config import parse
from groupwise.models.new_model import character_tokenizer
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import TRAINERS
from groupwise.trainers.preferences import HeldOut

NUM_STEPS = 6
ALGORITHMS = pytest.mark.parametrize("algorithm", ["reward_model", "dpo"])
SUMS = {
    "source": "task",
    "task": {"kind": "arithmetic", "kinds": ["sum"], "digits": [2, 2], "num_problems": 3000, "num_eval_problems": 200},
}


class Trained(NamedTuple):
    """What a run reported."""

    steps: list[Any]
    held_out: list[HeldOut]


def train(algorithm: str, directory: Path, **sections: Any) -> Trained:
    values = {
        "run": {"directory": str(directory), "num_steps": 1, "checkpoint_every": 1000},
        "model": {"num_threads": 1},
    }
    recipe = parse(TRAINERS.find(algorithm).recipe, {**values, "data": SUMS, **sections})
    reports: list[Any] = []
    TRAINERS.find(algorithm).run(recipe, False, reports.append)
    held_out = [one for one in reports if isinstance(one, HeldOut)]
    return Trained([one for one in reports if not isinstance(one, HeldOut)], held_out)


def test_a_reward_model_learns_which_sum_is_right(tmp_path: Path) -> None:
    """Chance is 0.5; the rejected result differs in one digit, and no problem is seen twice."""
    found = train(
        "reward_model", tmp_path / "run",
        run={"directory": str(tmp_path / "run"), "num_steps": 24, "checkpoint_every": 1000},
        optimizer={"lr": 1e-3, "warmup_steps": 5},
        reward_model={"pairs_per_step": 16, "evaluate_every": 1000},
    )  # fmt: skip
    [held_out] = found.held_out
    assert held_out.accuracy.low > 0.55, held_out
    assert found.steps[0].loss == pytest.approx(0.6931, abs=1e-4)
    assert held_out.margin > 0.2
    assert held_out.calibration_error < 0.25


def test_dpo_raises_the_margin_on_pairs_it_never_saw(tmp_path: Path) -> None:
    found = train(
        "dpo", tmp_path / "run",
        run={"directory": str(tmp_path / "run"), "num_steps": 12, "checkpoint_every": 1000},
        optimizer={"lr": 3e-4, "warmup_steps": 5},
        dpo={"pairs_per_step": 16, "evaluate_every": 1000},
    )  # fmt: skip
    [held_out] = found.held_out
    assert abs(found.steps[0].measured["margin"]) < 1e-4  # policy and reference are the same
    assert held_out.margin > 0.1, held_out
    assert held_out.accuracy.low > 0.5, held_out
    fell = found.steps[0].measured["chosen_logprob"] - found.steps[-1].measured["chosen_logprob"]
    assert found.steps[0].measured["rejected_logprob"] - found.steps[-1].measured["rejected_logprob"] > fell


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = character_tokenizer("0123456789 What is?+-\\{}\n")
    return save_random(tmp_path_factory.mktemp("model") / "random", tokenizer)


def recipe(algorithm: str, model: Path, directory: Path) -> Any:
    values = {
        "run": {"directory": str(directory), "num_steps": NUM_STEPS, "checkpoint_every": 2, "seed": 1},
        "model": {"path": str(model), "device": "cpu", "num_threads": 1},
        "data": {**SUMS, "task": {**SUMS["task"], "num_problems": 20, "num_eval_problems": 9}},  # type: ignore[dict-item]
        "optimizer": {"lr": 1e-2, "schedule": "cosine"},
        algorithm: {"pairs_per_step": 8, "evaluate_every": 3, "tokens_per_micro_batch": 128},
    }
    return parse(TRAINERS.find(algorithm).recipe, values)


@ALGORITHMS
def test_a_killed_run_ends_in_the_same_ledger_and_weights(
    algorithm: str, model: Path, server: None, tmp_path: Path
) -> None:
    whole, killed = (recipe(algorithm, model, tmp_path / name) for name in ("whole", "killed"))
    assert exit_code(whole, "nowhere") == 0
    place, kills = 5, 0
    while exit_code(killed, place) == -signal.SIGKILL:
        kills, place = kills + 1, place + 12
    assert kills >= 3
    expected, found = (RunDirectory(Path(one.run.directory)) for one in (whole, killed))
    assert found.ledger.path.read_bytes() == expected.ledger.path.read_bytes()
    lines = list(found.ledger.lines())
    assert [line["step"] for line in lines if "weights" in line] == list(range(NUM_STEPS))
    assert [line["step"] for line in lines if line.get("evaluation") == "held_out"] == [3, 6]
    assert len({line["weights"] for line in lines if "weights" in line}) == NUM_STEPS
    for name in ("model.safetensors", "optimizer.safetensors"):
        ours, theirs = ((run.checkpoint(NUM_STEPS) / name).read_bytes() for run in (found, expected))
        assert ours == theirs


def test_from_a_file_of_pairs_to_a_reward_in_grpo(model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {i} + {i}?\n", "chosen": str(2 * i), "rejected": "?"} for i in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for algorithm in ("reward_model", "dpo"):
        (tmp_path / f"{algorithm}.toml").write_text(f'''
algorithm = "{algorithm}"
[run]
directory = "{tmp_path / algorithm}"
num_steps = 11
[model]
path = "{model}"
num_threads = 1
[data]
source = "file"
path = "{tmp_path / "pairs.jsonl"}"
''')
        out = succeed("train", tmp_path / f"{algorithm}.toml", "--set", f"{algorithm}.pairs_per_step=4")
        assert "step     0  loss 0.6931  lr 1.0e-05" in out
        assert "accuracy" in out
        assert "held out  accuracy" in out
        assert "after 11 steps" in out
        assert "Trained on" in out
    assert "11/11" in succeed("runs", tmp_path)
    (tmp_path / "grpo.toml").write_text(f'''
algorithm = "grpo"
[run]
directory = "{tmp_path / "grpo"}"
num_steps = 3
[model]
path = "{model}"
num_threads = 1
[task]
kind = "arithmetic"
num_problems = 8
num_eval_problems = 2
digits = [1, 1]
kinds = ["sum"]
[reward_models.preference]
path = "{tmp_path / "reward_model/checkpoints/step-000011"}"
first_step = 1
[grpo]
prompts_per_step = 2
group_size = 4
[sampling]
max_tokens = 48
[evaluation]
num_problems = 2
test_problems = 0
''')
    succeed("train", tmp_path / "grpo.toml")
    metrics = RunDirectory(tmp_path / "grpo").metrics.lines()
    first, *rest = [line for line in metrics if line["kind"] == "step"]
    assert "part/preference/mean" not in first["parts"]
    for step in rest:
        assert step["parts"]["measure/preference/mean"] != 0
        assert step["reward"] == pytest.approx(step["parts"]["part/preference/mean"])
    last = problem(tmp_path / "grpo", 2)  # whose weights the score of step 1 made
    assert "identical" in succeed("replay", tmp_path / "grpo", "--step", 2, "--problem", last, "--sample", 1)
    assert torch.get_num_threads() == 1


def problem(run: Path, step: int) -> str:
    [line] = [line for line in RunDirectory(run).ledger.lines() if "problems" in line and line["step"] == step]
    return str(line["problems"][0][0])
