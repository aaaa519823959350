"""Weights for an inference server: a plain directory in which nothing is left to be guessed."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from groupwise.models.backbone import no_progress_bars
from groupwise.models.policy import Policy
from groupwise.randomness import key

WEIGHTS = "model.safetensors"


def save_for_serving(policy: Policy, directory: Path) -> None:
    """Write weights, configuration and tokenizer.

    The head's weights are always there, also where they are those of the embedding: a server may keep a copy of the
    head in a form of its own, which it renews only when it reads weights of that name.
    """
    save_file(serving_weights(policy), directory / WEIGHTS, metadata={"format": "pt"})
    policy.model.config.save_pretrained(directory)
    if policy.model.generation_config is not None:
        policy.model.generation_config.save_pretrained(directory)
    with no_progress_bars():
        policy.tokenizer.save_pretrained(directory)


def serving_weights(policy: Policy) -> dict[str, Tensor]:
    """Weights by name on the processor, the head under its own name even if it is tied.

    Adapters are added to the weights that they stand on, in fp32, so a server samples with no product beside them.
    """
    weights = {name: weight.detach().cpu().contiguous() for name, weight in policy.plain_state()}
    head = policy.model.get_output_embeddings()
    [name] = [name for name, module in policy.model.named_modules() if module is head]
    if f"{name}.weight" not in weights:
        embedding = policy.model.get_input_embeddings()
        [tied] = [name for name, module in policy.model.named_modules() if module is embedding]
        weights[f"{name}.weight"] = weights[f"{tied}.weight"].clone()  # a file may not hold one memory twice
    return weights


@torch.no_grad()
def changed_a_little(policy: Policy, share: float = 0.05) -> Policy:
    """A copy in which every tensor differs by noise of this share of its size: so much that any of them is missed."""
    changed = policy.copy()
    for name, weight in changed.state():
        generator = torch.Generator().manual_seed(key("changed a little", name) >> 1)
        noise = torch.randn(weight.shape, generator=generator).to(weight)
        size = weight.float().square().mean().sqrt().clamp_min(1e-2)
        weight.add_(noise * (share * size).to(weight.dtype))
    return changed
