"""Drawing tokens: one keyed uniform number per token, by inverse transform sampling."""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from groupwise.config import Section
from groupwise.rollout.tools import ToolSections


class SamplingConfig(Section):
    """The draws of completions."""

    temperature: float = Field(1.0, ge=0)
    """Divides the logits; 1 samples from the model itself, 0 takes the likeliest token (evaluation only)."""
    max_tokens: int = Field(256, ge=1)
    """Most tokens in a completion, the stop token included; tokens that a tool puts in do not count."""
    max_live_completions: int = Field(256, ge=1)
    """Most completions sampled at one time; bounds the memory of keys and values, never changes what is drawn."""
    top_k: int = Field(0, ge=0)
    """Keep the k likeliest tokens; 0 keeps all. Evaluation only."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Keep the smallest set of likeliest tokens with at least this mass; 1 keeps all. Evaluation only."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion, which is judged without them. Evaluation only."""
    cuda_graphs: bool = True
    """On a CUDA device, record decode steps as CUDA graphs: faster, but keys, values and graphs stay allocated between
    steps (rollout/cuda_graphs.py). Without effect elsewhere."""
    tools: ToolSections = Field(default_factory=dict)
    """Tools that completions may use, by names that you choose: `[sampling.tools.NAME]`."""


class Drawn(NamedTuple):
    """One token for each of n rows."""

    tokens: Tensor
    logprobs: Tensor
    """(n,) fp32 log-probability under the distribution drawn from."""
    entropy: Tensor


NUMBERS_AT_A_TIME = 1 << 17
"""Logits that a processor draws from together: what a draw computes on its way then stays in the caches."""


def draw(logits: Tensor, uniforms: Tensor, config: SamplingConfig) -> Drawn:
    """Draw one token per row: the first whose cumulative probability exceeds the row's uniform number.

    `logits` (n, V) are the raw output of the head, `uniforms` (n,) float64 in [0, 1).
    """
    rows = max(1, NUMBERS_AT_A_TIME // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    if len(logits) <= rows:
        return _draw(logits, uniforms, config)
    pieces = zip(logits.split(rows), uniforms.split(rows), strict=True)
    return Drawn(*map(torch.cat, zip(*(_draw(*piece, config) for piece in pieces), strict=True)))


def _draw(logits: Tensor, uniforms: Tensor, config: SamplingConfig) -> Drawn:
    logits = logits.float()
    if config.temperature == 0:
        tokens = logits.argmax(-1)
        nothing = torch.zeros(len(tokens), device=logits.device)
        return Drawn(tokens, nothing, nothing)
    scaled = logits if config.temperature == 1 else logits / config.temperature
    logprobs = torch.log_softmax(_truncate(scaled, config), dim=-1)
    probabilities = logprobs.exp()
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    # scaled by the last sum, which rounding keeps from being exactly 1; `right` skips tokens of probability 0
    tokens = torch.searchsorted(cumulative, (uniforms * cumulative[:, -1])[:, None], right=True)
    tokens.clamp_(max=logits.shape[1] - 1)
    chosen = logprobs.gather(1, tokens)[:, 0]
    entropy = -logprobs.clamp_min_(-1e30).mul_(probabilities).sum(-1)
    return Drawn(tokens[:, 0], chosen, entropy)


def _truncate(logits: Tensor, config: SamplingConfig) -> Tensor:
    if config.top_k and config.top_k < logits.shape[1]:
        kth = logits.topk(config.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if config.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        dropped = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, order, before >= config.top_p)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits
