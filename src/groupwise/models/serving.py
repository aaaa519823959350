"""Weights for an inference server: a plain directory in which nothing is left to be guessed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from groupwise.models.backbone import no_progress_bars
from groupwise.models.policy import Policy
from groupwise.randomness import key
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import own_rows, settle, sharded_like, whole_tensor

WEIGHTS = "model.safetensors"


def save_for_serving(policy: Policy, directory: Path, weights: dict[str, Tensor]) -> None:
    """Write `serving_weights`, configuration and tokenizer."""
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})
    policy.model.config.save_pretrained(directory)
    if policy.model.generation_config is not None:
        policy.model.generation_config.save_pretrained(directory)
    with no_progress_bars():
        policy.tokenizer.save_pretrained(directory)


def serving_weights(policy: Policy) -> dict[str, Tensor]:
    """Weights by name on the processor, the head under its own name even if it is tied.

    A server may keep a copy of the head in a form of its own, which it renews only when it reads weights of that name.
    Adapters are added to the weights that they stand on, in fp32, so a server samples with no product beside them. All
    ranks have to ask; the others than the first get nothing.
    """
    weights = {}
    for name, weight in policy.plain_state():
        if RANKS.is_first:
            weights[name] = weight.detach().cpu().contiguous()
    if not RANKS.is_first:
        return {}
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
        weight.add_(_noise(name, weight, share))
    return changed


@contextmanager
def changing_a_little(policy: Policy, share: float = 0.05) -> Iterator[None]:
    """While the context is open, the policy itself is changed so; its weights then have their bits again.

    Of a policy on ranks there is no copy. All of them have to ask.
    """
    settle(policy.root)
    kept = []
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            own = own_rows(weight.detach())
            kept.append((own, own.clone()))
            own.add_(own_rows(sharded_like(_noise(name, whole_tensor(weight.detach()), share), weight)))
    try:
        yield
    finally:
        settle(policy.root)  # else what a forward gathered would stay
        for own, before in kept:
            own.copy_(before)


def _noise(name: str, weight: Tensor, share: float) -> Tensor:
    generator = torch.Generator().manual_seed(key("changed a little", name) >> 1)
    noise = torch.randn(weight.shape, generator=generator).to(weight)
    size = weight.float().square().mean().sqrt().clamp_min(1e-2)
    return noise * (share * size).to(weight.dtype)
