"""Adapters of rank 8 learn two-digit products about as well as the whole model (minutes)."""

import json
from pathlib import Path

import pytest

from groupwise.models.config import ModelConfig
from groupwise.models.export import export
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import load_policy
from groupwise.trainers import load_recipe, train

RECIPES = Path(__file__).parents[2] / "recipes"
SHORT = ["run.num_steps=40", "grpo.prompts_per_step=8", "evaluation.every=20"]
"""A quarter of the completions of the whole recipes; learning rates end at zero as there."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_rank_8_learns_products_to_within_5_points_of_the_whole_model(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("peft", reason="needs peft: pip install 'groupwise[lora]'")
    found = {}
    for name in ("arithmetic", "lora"):
        changes = [f"run.directory={json.dumps(str(tmp_path / name))}", f"run.seed={seed}", *SHORT]
        metrics = train(load_recipe(RECIPES / f"{name}.toml", changes)).directory.metrics
        lines = {line["kind"]: line for line in metrics.lines()}
        found[name] = lines["test-after"]["pass_at_1"][0]
        assert lines["test-before"]["pass_at_1"][0] <= 0.55
    print(f"seed {seed}: {found}")
    assert found["lora"] >= found["arithmetic"] - 0.05, found
    export(tmp_path / "lora", tmp_path / "plain")
    newest = sorted((tmp_path / "lora" / "checkpoints").glob("step-*"))[-1]
    packed = pack([Sequences([5, 6, 7], [[8, 9, 1], [10, 1]])])
    ours, plain = (
        load_policy(ModelConfig(path=str(path), device="cpu")).token_logprobs(packed).logprobs
        for path in (newest, tmp_path / "plain")
    )
    assert (ours - plain).abs().max() < 1e-5
