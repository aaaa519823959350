"""Mixtures of experts: products in an order that repeats, and which experts the tokens of an update went to.

No auxiliary loss is added: `router_aux_loss_coef` of a model's configuration belongs to its pre-training.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.integrations.moe import ExpertsInterface, _grouped_linear

from groupwise.ranks.group import RANKS

NAME = "groupwise"


def groupwise_experts(experts: Any, states: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Compute the chosen (N, k) experts of N states (N, d) and add them up by `weights` (N, k); for transformers.

    Its own way, all tokens of an expert in one product, but for the gradient: where a token's experts meet there, and
    where tokens meet in a bias, transformers adds with atomics from several threads, and two runs would round
    differently.
    """
    ids, order = chosen.flatten().sort(stable=True)
    # a count of each would wait for the device, and a step that waits cannot be recorded
    numbers = torch.arange(experts.num_experts, device=ids.device)
    ends = torch.searchsorted(ids, numbers, right=True, out_int32=True)
    copies = states[:, None].expand(-1, chosen.shape[1], -1).reshape(-1, states.shape[1])
    out = copies.index_select(0, order)

    def project(name: str, out: Tensor) -> Tensor:
        bias = nn.functional.embedding(ids, getattr(experts, f"{name}_bias")) if experts.has_bias else None
        return _grouped_linear(out, getattr(experts, name), ends, bias=bias, is_transposed=experts.is_transposed)

    if experts.has_gate:
        out = experts._apply_gate(project("gate_up_proj", out))
    else:
        out = experts.act_fn(project("up_proj", out))
    out = project("down_proj", out)
    if getattr(experts, "has_post_expert_norm", False):  # since transformers 5.20
        out = experts.post_expert_norm(out)
    out = out.index_select(0, order.argsort()) * weights.reshape(-1, 1)
    return out.view(*chosen.shape, -1).sum(1).to(states.dtype)


ExpertsInterface.register(NAME, groupwise_experts)


class Routes(NamedTuple):
    """Facts of a model's routers; 0 in a model without experts."""

    load: float = 0.0  # Of the busiest expert of a layer, in units of an even load; mean over layers
    entropy: float = 0.0  # Of a router's distribution over the experts, in nats; mean over tokens and layers


class Routers:
    """Counts what the routers of a model decide where gradients are recorded, while it is asked to watch."""

    def __init__(self, model: nn.Module) -> None:
        self.num_experts: list[int] = []
        self.seen: list[tuple[int, Tensor]] | None = None
        """Of every forward of a layer: its number; how often each expert was chosen, sum of entropies, tokens."""
        for module in model.modules():
            if type(module).__name__.endswith("TopKRouter"):
                module.register_forward_hook(partial(self._count, len(self.num_experts)))
                self.num_experts.append(len(module.weight))  # type: ignore[arg-type]

    def _count(self, layer: int, router: nn.Module, inputs: Any, routed: tuple[Tensor, ...]) -> None:
        if self.seen is None or not torch.is_grad_enabled():
            return
        logits, _, chosen = routed
        logprobs = logits.detach().double().log_softmax(-1)
        entropy, num_tokens = -(logprobs.exp() * logprobs).sum(), logprobs.new_tensor(len(chosen))
        counts = chosen.flatten().bincount(minlength=self.num_experts[layer]).double()
        self.seen.append((layer, torch.cat((counts, torch.stack((entropy, num_tokens))))))

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.seen = []
        try:
            yield
        finally:
            self.seen = None

    def routes(self) -> Routes:
        """Return what has been seen by all ranks, which have to ask together."""
        if not self.num_experts or self.seen is None:
            return Routes()
        sums = torch.zeros(len(self.num_experts), max(self.num_experts) + 2, dtype=torch.float64)
        for layer, facts in self.seen:
            sums[layer] += facts.cpu()
        *_, entropy, num_tokens = (sums := RANKS.total(sums)).T
        counts = sums[:, :-2]
        if not num_tokens.all():
            return Routes()
        load = counts.amax(1) / counts.mean(1)
        return Routes(load.mean().item(), (entropy / num_tokens).mean().item())
