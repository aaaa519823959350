"""Everything a step's updates computed for every token, kept for the record: nothing is computed again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.algorithms.importance import ImportanceWeights
from groupwise.algorithms.objective import TokenLoss

Values = NDArray[np.float32]
Place = tuple[int, int]  # Group and completion within it, among the groups of the step
LOW, HIGH, MASKED = 1, 2, 3
"""The bound that held: of the policy loss; or the importance weight became 0. 0: none."""


@dataclass(slots=True)
class CompletionTrace:
    """One completion in its last update; arrays hold one value per sampled token, fp32."""

    old: Literal["trainer", "sampler"]  # Source of the log-probabilities in the ratio's denominator
    loss_weight: float  # Of each token
    ratio: Values
    bound: NDArray[np.int8]
    trainer_logprobs: Values | None = None
    """On the weights that sampled; None where no update computed them."""
    ref_logprobs: Values | None = None
    kl: Values | None = None
    importance: Values | None = None


class Seen(NamedTuple):
    """Results of one micro-batch; (M,) tensors over its sampled tokens, detached."""

    places: Sequence[Place]
    lengths: Tensor
    weights: Tensor
    trainer_logprobs: Tensor | None
    ref_logprobs: Tensor | None
    losses: TokenLoss
    importance: ImportanceWeights | None
    old: Literal["trainer", "sampler"]


@dataclass(slots=True)
class UpdateTrace:
    """The traces of all updates of one step; `update_policy` fills it."""

    completions: dict[Place, CompletionTrace] = field(default_factory=dict)
    grad_norms: list[float] = field(default_factory=list)  # Of each update, before clipping
    num_low: int = 0  # Tokens at which the lower bound held, over all updates
    num_high: int = 0
    num_tokens: int = 0

    def add(self, seen: Seen) -> None:
        lengths = seen.lengths.tolist()
        clipped, ratio = seen.losses.clipped, seen.losses.ratio
        held = torch.where(clipped, torch.where(ratio < 1, LOW, HIGH), 0)
        if seen.importance is not None:
            held = torch.where(seen.importance.weights == 0, MASKED, held)
        bound = held.to(torch.int8).cpu().numpy()
        self.num_low += int((bound == LOW).sum())
        self.num_high += int((bound == HIGH).sum())
        self.num_tokens += len(bound)
        weights = seen.weights.cpu().numpy()
        ends = np.cumsum(lengths)[:-1]
        columns = [
            None if values is None else np.split(values.detach().float().cpu().numpy(), ends)
            for values in (
                ratio,
                seen.trainer_logprobs,
                seen.ref_logprobs,
                None if seen.ref_logprobs is None else seen.losses.kl,
                None if seen.importance is None else seen.importance.weights,
            )
        ]
        start = 0
        for i, (place, length) in enumerate(zip(seen.places, lengths, strict=True)):
            ratios, trainer, reference, kl, importance = (None if column is None else column[i] for column in columns)
            assert ratios is not None  # every update computes them
            before = self.completions.get(place)
            bounds = bound[start : start + length]
            if trainer is None and before is not None:
                trainer = before.trainer_logprobs
            self.completions[place] = CompletionTrace(
                seen.old, float(weights[start]), ratios, bounds, trainer, reference, kl, importance
            )
            start += length
