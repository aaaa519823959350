"""The directory that servers read."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from groupwise.errors import UnsupportedModelError
from groupwise.models.policy import Policy
from groupwise.models.serving import changed_a_little, save_for_serving, serving_weights


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_it_loads_in_transformers_and_always_has_the_head(
    architecture: str, tied: bool, tiny_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    policy = tiny_policy(architecture, tie_word_embeddings=tied, num_hidden_layers=1)
    save_for_serving(policy, tmp_path)
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert (list(report["missing_keys"]), list(report["mismatched_keys"])) == ([], [])
    loaded = dict(model.named_parameters())
    assert all(torch.equal(loaded[name], weight) for name, weight in policy.state())


def test_every_tensor_of_a_rehearsal_differs_and_the_policy_stays(trained: Policy) -> None:
    before = trained.fingerprint()
    changed, whole = serving_weights(changed_a_little(trained)), serving_weights(trained)
    for name, weight in whole.items():
        share = ((changed[name] - weight).square().mean() / weight.square().mean()).sqrt()
        assert 0.02 < share < 0.2, name
    assert trained.fingerprint() == before
    again = serving_weights(changed_a_little(trained))
    assert all(torch.equal(again[name], weight) for name, weight in changed.items())


def test_adapters_are_refused_by_name(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy(num_hidden_layers=1)
    mlp = policy.model.base_model.layers[0].mlp
    mlp.up_proj = torch.nn.ModuleDict({"base_layer": mlp.up_proj})  # as peft puts an adapter in its place
    with pytest.raises(UnsupportedModelError, match=r"up_proj\.base_layer\.weight has an adapter beside it"):
        serving_weights(policy)
