"""The demo's curve: GRPO from the shipped base model learns two-digit products on this machine (minutes)."""

import json
from pathlib import Path

import pytest

from groupwise.evaluation.behaviour import behaviour_shares
from groupwise.runs.records import Records
from groupwise.trainers import load_recipe, train
from groupwise.trainers.grpo import GrpoRecipe

RECIPE = Path(__file__).parents[2] / "recipes" / "arithmetic.toml"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_shipped_base_model_learns_products(tmp_path: Path, seed: int) -> None:
    recipe = load_recipe(RECIPE, [f"run.directory={json.dumps(str(tmp_path / 'run'))}", f"run.seed={seed}"])
    assert isinstance(recipe, GrpoRecipe)
    directory = train(recipe).directory
    lines = {line["kind"]: line for line in directory.metrics.lines()}
    before, after = lines["test-before"], lines["test-after"]
    assert before["pass_at_1"][0] <= 0.55
    assert after["pass_at_1"][0] >= 0.90
    assert after["length"] > before["length"]
    first, last = (behaviour_shares(Records.of(directory).rows(name)) for name in ("test-before", "test-after"))
    assert last["answers at once"] < first["answers at once"] / 2
