"""The directory that servers read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from groupwise.models.checkpoint import changing_a_little, save_for_serving, serving_weights
from groupwise.models.policy import Policy, make_policy
from groupwise.rollout.vllm.canary import trainer_logprobs


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_it_loads_in_transformers_and_always_has_the_head(
    architecture: str, tied: bool, tiny_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    policy = tiny_policy(architecture, tie_word_embeddings=tied, num_hidden_layers=1)
    save_for_serving(policy, tmp_path, serving_weights(policy))
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert (list(report["missing_keys"]), list(report["mismatched_keys"])) == ([], [])
    loaded = dict(model.named_parameters())
    assert all(torch.equal(loaded[name], weight) for name, weight in policy.state())


def test_every_tensor_of_a_rehearsal_differs_and_the_policy_stays(trained: Policy) -> None:
    before, whole = trained.fingerprint(), {name: tensor.clone() for name, tensor in serving_weights(trained).items()}
    with changing_a_little(trained):
        changed = {name: tensor.clone() for name, tensor in serving_weights(trained).items()}
    for name, weight in whole.items():
        share = ((changed[name] - weight).square().mean() / weight.square().mean()).sqrt()
        assert 0.02 < share < 0.2, name
    assert trained.fingerprint() == before
    with changing_a_little(trained):
        assert all(torch.equal(weight, changed[name]) for name, weight in serving_weights(trained).items())


def test_adapters_are_added_to_what_they_stand_on(adapted: Policy, tmp_path: Path) -> None:
    save_for_serving(adapted, tmp_path, serving_weights(adapted))
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert (list(report["missing_keys"]), list(report["unexpected_keys"])) == ([], [])
    served, text = make_policy(model, adapted.tokenizer), tuple(range(5, 25))
    theirs, ours = (trainer_logprobs(policy, text[:1], text[1:]) for policy in (served, adapted))
    base = trainer_logprobs(adapted.base(), text[:1], text[1:])
    assert np.abs(theirs - ours).max() < 1e-5 < 0.1 < np.abs(theirs - base).max()
