"""A shipped recipe with the shipped model on two ranks: the ledger of one process, started as a user starts it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NUM_STEPS = 20


@pytest.mark.slow
def test_twenty_steps_of_a_shipped_recipe_on_two_ranks_are_those_of_one_process(tmp_path: Path) -> None:
    for ranks in (1, 2):
        settings = {
            "run.num_steps": NUM_STEPS, "run.directory": str(tmp_path / str(ranks)), "ranks.partial_sums": 2,
            "model.num_threads": 1, "model.device": "cpu", "evaluation.num_problems": 4, "evaluation.test_problems": 0,
        }  # fmt: skip
        changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "groupwise", "train", "recipes/arithmetic.toml", *changes]
        done = subprocess.run([*command, "--ranks", str(ranks), "--anyway"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    one, two = ((tmp_path / str(ranks) / "ledger.jsonl").read_bytes() for ranks in (1, 2))
    steps = [line for line in map(json.loads, one.splitlines()) if "groups" in line]
    assert len(steps) == NUM_STEPS
    assert len({line["weights"] for line in steps}) == NUM_STEPS  # every step learned something
    assert one == two  # tokens, verdicts, rewards, norms and weights of every step, to the bit
