"""From groups with advantages to new weights: pack, loss, gradient, optimizer step, with one global denominator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.aggregation import AGGREGATIONS, BatchSize, token_weights
from groupwise.algorithms.kl import k3
from groupwise.algorithms.policy_losses import clipped_ratio
from groupwise.config import Section
from groupwise.errors import InvariantError
from groupwise.models.packed import Pack, Sequences, pack
from groupwise.models.policy import Policy
from groupwise.training.micro_batches import micro_batches
from groupwise.training.optimizer import Optimizer
from groupwise.types import AdvantagedGroup, Completion


class LossConfig(Section):
    """The policy loss."""

    clip_low: float = Field(0.2, ge=0, lt=1)
    """ε_low: the ratio π/π_old may fall to 1 - ε_low before its gradient stops (PPO and GRPO: 0.2)."""
    clip_high: float = Field(0.2, ge=0)
    """ε_high: the ratio may rise to 1 + ε_high (GRPO: 0.2; DAPO's clip-higher: 0.28)."""
    aggregation: str = "constant"
    """How tokens are averaged: `constant` (Dr. GRPO), `token` (DAPO) or `sequence` (GRPO)."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight β of the k3 estimate of KL(π ‖ reference) in the loss; 0 loads no reference (DeepSeekMath: 0.04)."""
    mini_batches: int = Field(1, ge=1)
    """Optimizer updates per step: the groups are cut into this many parts. 1 is strictly on-policy."""
    epochs: int = Field(1, ge=1)
    """Passes over the step's groups."""
    tokens_per_micro_batch: int = Field(4096, ge=1)
    """Most tokens in one forward and backward; changes memory and speed, never the result beyond rounding. 4096 suits
    a processor's caches; a GPU wants more."""
    max_logprob_difference: float = Field(0.0, ge=0)
    """Training stops when a sampled token's log-probability differs by more than this between sampler and trainer;
    0 means 1e-4 in fp32 and 0.5 in bf16."""

    def model_post_init(self, context: object) -> None:
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(f"aggregation = {self.aggregation!r}: allowed are {', '.join(AGGREGATIONS)}")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward and backward; per-token tensors are (M,) in the order of the pack's targets."""

    packed: Pack
    advantages: Tensor
    weights: Tensor
    """Weight of each token's loss; over all micro-batches of an update the loss is Σ weight · token loss."""
    sampling_logprobs: Tensor


class UpdateMetrics(NamedTuple):
    """What one or several updates report."""

    surrogate: float
    """Value of the loss. On-policy it is about 0 whatever happens; its gradient is what counts."""
    grad_norm: float
    """Norm of the gradient before clipping, mean over updates."""
    clipped: float
    """Share of tokens whose gradient the clip stopped."""
    kl: float
    """Mean k3 against the reference in nats; 0 without one."""
    ratio_max: float
    """Largest π/π_old."""
    logprob_difference: float
    """Largest difference between sampler and trainer on the same weights; 0 is perfect."""
    num_updates: int
    num_tokens: int
    """Completion tokens trained on."""


def update_policy(
    policy: Policy,
    optimizer: Optimizer,
    groups: Sequence[AdvantagedGroup],
    config: LossConfig,
    *,
    step: int,
    temperature: float,
    max_tokens: int,
    reference: Policy | None = None,
) -> UpdateMetrics:
    """One or several optimizer updates on a step's groups; groups without signal are skipped before the forward.

    The first update runs on the weights that sampled: its old_logprobs are its own, detached, so the ratio is exactly
    1, and they are compared with the sampler's. Later updates divide by the sampler's.

    Raises:
        InvariantError: sampler and trainer disagree, or the gradient is not finite.
    """
    reports: list[UpdateMetrics] = []
    for _ in range(config.epochs):
        for part in np.array_split(np.arange(len(groups)), min(config.mini_batches, len(groups))):
            chosen = [groups[index] for index in part]
            batch = make_micro_batches(chosen, config, max_tokens, policy.device)
            if batch:
                first = not reports
                reports.append(_one_update(policy, optimizer, batch, config, step, temperature, reference, first))
    if not reports:
        return UpdateMetrics(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0, 0)
    return UpdateMetrics(
        surrogate=float(np.mean([report.surrogate for report in reports])),
        grad_norm=float(np.mean([report.grad_norm for report in reports])),
        clipped=float(np.mean([report.clipped for report in reports])),
        kl=float(np.mean([report.kl for report in reports])),
        ratio_max=max(report.ratio_max for report in reports),
        logprob_difference=reports[0].logprob_difference,
        num_updates=len(reports),
        num_tokens=sum(report.num_tokens for report in reports),
    )


def make_micro_batches(
    groups: Sequence[AdvantagedGroup], config: LossConfig, max_tokens: int, device: torch.device
) -> list[MicroBatch]:
    """Pack an update's groups. The denominator counts every judged completion, also of groups without signal."""
    judged = [_judged(group) for group in groups]
    batch = BatchSize(
        num_completions=sum(len(rows) for rows in judged),
        num_tokens=sum(completion.num_tokens for rows in judged for completion, _ in rows),
        max_tokens=max_tokens,
    )
    # with a KL term every completion has a gradient, also where all advantages are zero
    kept = [
        (group.scored.group.prompt.token_ids, rows)
        for group, rows in zip(groups, judged, strict=True)
        if rows and (group.scored.has_signal or config.kl_coef > 0)
    ]
    pieces = [(prompt, part) for prompt, rows in kept for part in _split(prompt, rows, config.tokens_per_micro_batch)]
    sizes = [len(prompt) + sum(completion.num_tokens for completion, _ in rows) for prompt, rows in pieces]
    chunks = micro_batches(sizes, config.tokens_per_micro_batch)
    return [_micro_batch([pieces[i] for i in chunk], batch, config.aggregation, device) for chunk in chunks]


Row = tuple[Completion, float]
"""A completion and its advantage."""


def _judged(group: AdvantagedGroup) -> list[Row]:
    pairs = zip(group.scored.group.completions, group.advantages, strict=True)
    return [(completion, advantage) for completion, advantage in pairs if advantage is not None]


def _split(prompt: tuple[int, ...], rows: list[Row], budget: int) -> list[list[Row]]:
    """A group that is larger than a micro-batch is cut between completions; its prompt is then computed again."""
    room = max(1, budget - len(prompt))
    return [[rows[i] for i in part] for part in micro_batches([row[0].num_tokens for row in rows], room)]


def _micro_batch(
    pieces: Sequence[tuple[tuple[int, ...], list[Row]]], batch: BatchSize, aggregation: str, device: torch.device
) -> MicroBatch:
    rows = [row for _, part in pieces for row in part]
    lengths = torch.tensor([completion.num_tokens for completion, _ in rows])
    advantages = torch.tensor([advantage for _, advantage in rows], dtype=torch.float32)
    sampling = _sampling_logprobs([completion for completion, _ in rows])
    sequences = [Sequences(prompt, [completion.token_ids for completion, _ in part]) for prompt, part in pieces]
    return MicroBatch(
        packed=pack(sequences, device),
        advantages=advantages.repeat_interleave(lengths).to(device),
        weights=token_weights(lengths, batch, aggregation).to(device),
        sampling_logprobs=torch.from_numpy(sampling).to(device),
    )


def _sampling_logprobs(completions: Sequence[Completion]) -> NDArray[np.float32]:
    """The sampler's log-probabilities of all tokens; one that was never written (0 beside entropy) is a fault."""
    logprobs = np.concatenate([completion.sampling_logprobs for completion in completions])
    entropy = np.concatenate([completion.entropy for completion in completions])
    valid = np.isfinite(logprobs) & (logprobs <= 0) & ((logprobs < 0) | (entropy < 1e-3))
    if not valid.all():
        raise InvariantError(
            f"{(~valid).sum()} sampled tokens have an impossible log-probability, for example {logprobs[~valid][0]}"
        )
    return logprobs


def _one_update(
    policy: Policy,
    optimizer: Optimizer,
    batch: Sequence[MicroBatch],
    config: LossConfig,
    step: int,
    temperature: float,
    reference: Policy | None,
    first: bool,
) -> UpdateMetrics:
    surrogate, clipped, kl, ratio_max, difference, count = 0.0, 0, 0.0, 0.0, 0.0, 0
    for micro in batch:
        logprobs = policy.token_logprobs(micro.packed, temperature).logprobs
        old_logprobs = logprobs.detach() if first else micro.sampling_logprobs
        if first:
            difference = max(difference, _compare(logprobs.detach(), micro.sampling_logprobs, policy, config))
        policy_loss = clipped_ratio(logprobs, old_logprobs, micro.advantages, config.clip_low, config.clip_high)
        token_loss = policy_loss.loss
        if reference is not None:
            with torch.no_grad():
                ref_logprobs = reference.token_logprobs(micro.packed, temperature).logprobs
            token_kl = k3(logprobs, ref_logprobs)
            token_loss = token_loss + config.kl_coef * token_kl
            kl += token_kl.detach().sum().item()
        loss = (micro.weights * token_loss).sum()
        loss.backward()
        surrogate += loss.item()
        clipped += int(policy_loss.clipped.sum())
        ratio_max = max(ratio_max, policy_loss.ratio.max().item())
        count += len(logprobs)
    grad_norm = optimizer.update(step)
    return UpdateMetrics(surrogate, grad_norm, clipped / count, kl / count, ratio_max, difference, 1, count)


def _compare(logprobs: Tensor, sampling_logprobs: Tensor, policy: Policy, config: LossConfig) -> float:
    """Largest difference between trainer and sampler on the same weights and tokens."""
    allowed = config.max_logprob_difference or (1e-4 if policy.compute_dtype is torch.float32 else 0.5)
    difference = (logprobs - sampling_logprobs).abs().max().item()
    if not math.isfinite(difference) or difference > allowed:
        raise InvariantError(
            f"sampler and trainer disagree about a token's log-probability by {difference:.3g} (allowed {allowed:g}): "
            "the completions do not come from the policy that is trained (wrong temperature, other weights, or a fault)"
        )
    return difference
