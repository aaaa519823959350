"""From groups with advantages to new weights: pack, loss, gradient, optimizer step, with one global denominator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from groupwise.algorithms.importance import importance_weights
from groupwise.algorithms.objective import Tokens, clipped_value_loss, token_loss
from groupwise.errors import InvariantError
from groupwise.models.policy import Critic, Policy
from groupwise.ranks.group import RANKS
from groupwise.training.config import LossConfig
from groupwise.training.gradient import accumulate
from groupwise.training.invariants import Agreement, check_agreement, check_gradient
from groupwise.training.micro_batches import MicroBatch, make_micro_batches
from groupwise.training.optimizer import Optimizer
from groupwise.training.tokens import Arrays, Seen, UpdateTrace, logprobs_of
from groupwise.types import AdvantagedGroup


class CriticLoss(NamedTuple):
    """A critic that is trained together with the policy."""

    critic: Critic
    coef: float  # Weight of the value loss
    clip: float
    """Largest distance of a value from the one at sampling, in units of the reward; 0: any distance."""


class UpdateMetrics(NamedTuple):
    """Report of one or several updates; what `StepReport` has too is described there."""

    surrogate: float
    """Value of the loss. On-policy it is about 0 whatever happens; its gradient is what counts."""
    grad_norm: float
    """Norm of the policy's gradient before clipping, mean over updates."""
    clipped: float
    """Share of tokens at which a bound of the policy loss held."""
    kl: float
    """Mean estimate of KL(π ‖ reference) in nats per token; 0 without a reference."""
    ratio_max: float
    """Largest π/π_old."""
    logprob_difference: float
    num_updates: int
    num_tokens: int
    logprob_bias: float = 0.0
    value_loss: float = 0.0
    """Mean value loss per token; 0 without a critic."""
    weights_bounded: float = 0.0
    effective_samples: float = 1.0
    expert_load: float = 0.0
    router_entropy: float = 0.0


NO_UPDATE = UpdateMetrics(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class Updater:
    """Everything that an update works with besides the groups."""

    policy: Policy
    optimizer: Optimizer
    loss: LossConfig
    temperature: float  # At which the completions were drawn
    max_tokens: int
    reference: Policy | None = None
    critic: CriticLoss | None = None

    @property
    def weights(self) -> list[Tensor]:
        trained = (self.policy, self.critic.critic) if self.critic else (self.policy,)
        return [weight for part in trained for _, weight in part.trainable()]


def update_policy(
    updater: Updater, groups: Sequence[AdvantagedGroup], step: int, trace: UpdateTrace | None = None
) -> UpdateMetrics:
    """Update the weights once or several times on a step's groups; groups without a gradient are skipped.

    The first update runs on the weights that sampled: its old_logprobs are its own, detached, so the ratio is exactly
    1, and they are compared with the sampler's. Later updates divide by the sampler's, or, where `config.correction`
    says that the sampler is another engine, and where sums are fixed (`ranks.partial_sums`), by the trainer's from
    before the first update. The `trace` collects what was computed for every token.

    Raises:
        InvariantError: sampler and trainer disagree, or the gradient is not finite.
    """
    reports: list[UpdateMetrics] = []
    policy, config, trace = updater.policy, updater.loss, trace or UpdateTrace()
    old: list[Arrays] | None = None
    # the last bits of the sampler's depend on how many completions a rank samples side by side
    if config.num_updates > 1 and (config.correction.bound != "none" or RANKS.are_sums_fixed):
        sampled = [group.scored.group for group in groups]
        old = logprobs_of(policy, sampled, updater.temperature, config.tokens_per_micro_batch)
    with policy.routers.watched():
        for _ in range(config.epochs):
            for part in np.array_split(np.arange(len(groups)), min(config.mini_batches, len(groups))):
                chosen, chosen_old = [groups[i] for i in part], [old[i] for i in part] if old else None
                shares = not policy.is_recurrent
                batch = make_micro_batches(chosen, config, updater.max_tokens, policy.device, chosen_old, shares)
                if not batch:
                    continue
                compute = partial(_loss, updater, first=not reports)
                costs = [micro.packed.input_ids.numel() for micro in batch]
                sums = Sums()
                for of_micro, seen in accumulate(compute, batch, updater.weights, policy.device, costs):
                    sums = sums.added(of_micro)
                    trace.add(seen._replace(places=[(int(part[group]), place) for group, place in seen.places]))
                agreement = Agreement(0.0, 0.0, 0.0)
                if sums.differences:  # of a step's first update, before the weights change
                    # where importance weights correct for another sampler, only a stated bound holds
                    stated = config.max_logprob_difference or (math.inf if config.correction.bound != "none" else None)
                    differences = torch.cat(sums.differences)
                    agreement = check_agreement(differences, updater.temperature, policy.compute_dtype, stated)
                reports.append(_report(sums, agreement, updater.optimizer.update(step)))
                trace.grad_norms.append(reports[-1].grad_norm)
        routes = policy.routers.routes()
    if not reports:
        return NO_UPDATE
    means = [float(np.mean([report[i] for report in reports])) for i in range(len(UpdateMetrics._fields))]
    return UpdateMetrics._make(means)._replace(
        ratio_max=max(report.ratio_max for report in reports),
        logprob_difference=reports[0].logprob_difference,
        logprob_bias=reports[0].logprob_bias,
        num_updates=len(reports),
        num_tokens=sum(report.num_tokens for report in reports),
        expert_load=routes.load,
        router_entropy=routes.entropy,
    )


class Sums(NamedTuple):
    """Sums over the tokens of micro-batches, of which an update's report is made."""

    surrogate: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    value_loss: float = 0.0
    num_tokens: int = 0
    bounded: float = 0.0
    weight_sum: float = 0.0
    weight_squares: float = 0.0
    num_weights: int = 0  # Importance weights: one per token or per completion
    differences: tuple[Tensor, ...] = ()
    """(M,) trainer - sampler of each micro-batch; none after the first update."""
    ratio_max: float = 0.0  # The largest, no sum
    has_advantage: bool = False

    def added(self, other: "Sums") -> "Sums":
        pairs: Any = zip(self, other, strict=True)
        return Sums._make(a + b for a, b in pairs)._replace(
            ratio_max=max(self.ratio_max, other.ratio_max), has_advantage=self.has_advantage or other.has_advantage
        )


def _loss(updater: Updater, micro: MicroBatch, *, first: bool) -> tuple[Tensor, tuple[Sums, Seen]]:
    """The loss of one micro-batch, its sums, and what it computed for every token.

    Several micro-batches may be computed at one time, so nothing is changed here.
    """
    policy, config, critic = updater.policy, updater.loss, updater.critic
    logprobs, entropy, states = policy.token_logprobs(micro.packed, updater.temperature)
    before = logprobs.detach()
    old = micro.sampling_logprobs if micro.old_logprobs is None else micro.old_logprobs
    old_logprobs = before if first else old
    importance, correction = None, config.correction
    if correction.bound != "none":
        importance = importance_weights(
            old_logprobs, micro.sampling_logprobs, micro.lengths, correction.level, correction.bound, correction.cap
        )
    reference = None
    if updater.reference is not None:
        with torch.no_grad():
            reference = updater.reference.token_logprobs(micro.packed, updater.temperature).logprobs
    weights = importance.weights if importance else None
    tokens = Tokens(logprobs, entropy, old_logprobs, micro.advantages, micro.lengths, reference, weights)
    losses = token_loss(tokens, config.objective)
    loss = (micro.weights * losses.loss).sum()
    sums = Sums(
        surrogate=loss.item(),
        clipped=float(losses.clipped.sum()),
        kl=losses.kl.sum().item(),
        num_tokens=len(logprobs),
        differences=(before - micro.sampling_logprobs,) if first else (),
        ratio_max=losses.ratio.max().item(),
        has_advantage=bool(micro.advantages.any()),
    )
    if importance:
        sums = sums._replace(
            bounded=importance.bounded.sum().item(),
            weight_sum=importance.sum.item(),
            weight_squares=importance.sum_squares.item(),
            num_weights=len(micro.lengths) if config.correction.level == "sequence" else len(logprobs),
        )
    if critic is not None:
        if micro.values is None or micro.returns is None:
            raise InvariantError("a critic is trained on completions whose values and returns were never computed")
        values = critic.critic.values(micro.packed, states)
        value_loss = clipped_value_loss(values, micro.values, micro.returns, critic.clip).sum() * micro.value_weight
        sums = sums._replace(value_loss=value_loss.item())
        loss = loss + critic.coef * value_loss
    trainer = before if first else micro.old_logprobs
    seen = Seen(
        micro.places, micro.lengths, micro.weights, trainer, reference, losses._replace(loss=losses.loss.detach()),
        importance, "sampler" if trainer is None else "trainer",
    )  # fmt: skip
    return loss, (sums, seen)


def _report(sums: Sums, agreement: Agreement, grad_norm: float) -> UpdateMetrics:
    check_gradient(grad_norm, sums.has_advantage, is_bounded=bool(sums.clipped or sums.bounded))
    count, squares = sums.num_tokens, sums.weight_squares
    return UpdateMetrics(
        surrogate=sums.surrogate,
        grad_norm=grad_norm,
        clipped=sums.clipped / count,
        kl=sums.kl / count,
        ratio_max=sums.ratio_max,
        logprob_difference=agreement.largest,
        num_updates=1,
        num_tokens=count,
        logprob_bias=agreement.bias,
        value_loss=sums.value_loss,
        weights_bounded=sums.bounded / count,
        effective_samples=sums.weight_sum**2 / (squares * sums.num_weights) if squares else float(not sums.num_weights),
    )
