"""Numbers per token of every completion: a critic's values and the divergence from a reference, without gradient.

And all that a step's updates computed for every token, kept for the record: nothing is computed again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.algorithms.importance import ImportanceWeights
from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.algorithms.objective import TokenLoss
from groupwise.models.cores import shared_out
from groupwise.models.packed import Pack, Sequences, micro_batch_tokens, micro_batches, pack
from groupwise.models.policy import Policy
from groupwise.training.config import LossConfig
from groupwise.types import Group, ScoredGroup

Arrays = list[NDArray[np.float32]]  # One array (T,) per completion of a group


def sequences_of(group: Group) -> Sequences:
    """Return a group as the model reads it; only sampled tokens are predicted."""
    completions = group.completions
    return Sequences(group.prompt.token_ids, [c.token_ids for c in completions], [c.sampled for c in completions])


@torch.no_grad()
def per_token(
    groups: Sequence[Group], compute: Callable[[Pack], Tensor], budget: int, device: torch.device
) -> list[Arrays]:
    """Run `compute`, which gives (M,) for the M sampled tokens of a pack, over all completions of the groups.

    The arrays are (T,), 0 at tokens that were not sampled. `budget`: most tokens in one forward, 0 for the device's
    default; a larger group stands alone.
    """
    sequences = [sequences_of(group) for group in groups]
    sizes = [sequence.num_read for sequence in sequences]
    arrays: list[Arrays] = []
    chunks = list(micro_batches(sizes, micro_batch_tokens(budget, device)))

    def values_of(chunk: range) -> NDArray[np.float32]:
        values: NDArray[np.float32] = compute(pack([sequences[i] for i in chunk], device)).float().cpu().numpy()
        return values

    for chunk, values in zip(chunks, shared_out(values_of, chunks, device), strict=True):
        lengths = [completion.num_tokens for i in chunk for completion in groups[i].completions]
        pieces = iter(np.split(values, np.cumsum(lengths)[:-1]))
        arrays += [[completion.spread(next(pieces)) for completion in groups[i].completions] for i in chunk]
    return arrays


def logprobs_of(policy: Policy, groups: Sequence[Group], temperature: float, budget: int) -> list[Arrays]:
    """Return a policy's log-probabilities of all sampled tokens of the groups, as `per_token` does."""
    return per_token(groups, lambda packed: policy.token_logprobs(packed, temperature).logprobs, budget, policy.device)


def token_penalties(groups: Sequence[Group], reference: Policy, config: LossConfig, temperature: float) -> list[Arrays]:
    """Return β · KL estimate of every token of every completion, under the distribution that sampled it."""
    estimator = KL_ESTIMATORS[config.kl_estimator]
    logprobs = logprobs_of(reference, groups, temperature, config.tokens_per_micro_batch)
    return [
        [
            (config.kl_coef * estimator(torch.from_numpy(completion.sampling_logprobs), torch.from_numpy(ref))).numpy()
            for completion, ref in zip(group.completions, references, strict=True)
        ]
        for group, references in zip(groups, logprobs, strict=True)
    ]


def with_kl_part(
    scored: Sequence[ScoredGroup], reference: Policy | None, config: LossConfig, temperature: float
) -> list[ScoredGroup]:
    """Add the reward part `kl` = -β Σₜ KLₜ to every verdict, where the recipe asks for it (`loss.kl_in = "reward"`)."""
    if reference is None or config.kl_in != "reward":
        return list(scored)
    penalties = token_penalties([group.group for group in scored], reference, config, temperature)
    return [
        replace(
            group,
            verdicts=tuple(
                replace(verdict, parts={**verdict.parts, "kl": -float(penalty.sum())})
                for verdict, penalty in zip(group.verdicts, group_penalties, strict=True)
            ),
        )
        for group, group_penalties in zip(scored, penalties, strict=True)
    ]


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
