"""From groups with advantages to new weights: pack, loss, gradient, optimizer step, with one global denominator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from groupwise.algorithms.importance import ImportanceWeights, importance_weights
from groupwise.algorithms.objective import TokenLoss, Tokens, clipped_value_loss, token_loss
from groupwise.errors import InvariantError
from groupwise.models.policy import Critic, Policy
from groupwise.ranks.group import RANKS
from groupwise.training.config import LossConfig
from groupwise.training.forward import Arrays, per_token
from groupwise.training.gradient import accumulate
from groupwise.training.invariants import Agreement, check_agreement, check_gradient
from groupwise.training.micro_batches import MicroBatch, make_micro_batches
from groupwise.training.optimizer import Optimizer
from groupwise.training.trace import Seen, UpdateTrace
from groupwise.types import AdvantagedGroup


class CriticLoss(NamedTuple):
    """A critic that is trained together with the policy."""

    critic: Critic
    coef: float
    """Weight of the value loss."""
    clip: float
    """How far a value may move from the one at sampling, in units of the reward; 0: any distance."""


class UpdateMetrics(NamedTuple):
    """Report of one or several updates."""

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
    """Largest difference between sampler and trainer on the same weights; 0 is perfect."""
    num_updates: int
    num_tokens: int
    """Completion tokens trained on."""
    logprob_bias: float = 0.0
    """Mean of trainer - sampler over the same tokens, with its sign."""
    value_loss: float = 0.0
    """Mean value loss per token; 0 without a critic."""
    weights_bounded: float = 0.0
    """Share of tokens whose importance weight was truncated or masked; 0 without correction."""
    effective_samples: float = 1.0
    """Effective sample size of the importance weights as a share of the sample; 1 without correction."""


NO_UPDATE = UpdateMetrics(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class Updater:
    """What an update works with besides the groups."""

    policy: Policy
    optimizer: Optimizer
    loss: LossConfig
    temperature: float
    """At which the completions were drawn."""
    max_tokens: int
    """Most tokens that one could have."""
    reference: Policy | None = None
    critic: CriticLoss | None = None

    @property
    def weights(self) -> list[Tensor]:
        """All that an update changes: the policy's weights, and the critic's."""
        trained = (self.policy, self.critic.critic) if self.critic else (self.policy,)
        return [weight for part in trained for _, weight in part.trainable()]


def update_policy(
    updater: Updater, groups: Sequence[AdvantagedGroup], step: int, trace: UpdateTrace | None = None
) -> UpdateMetrics:
    """One or several optimizer updates on a step's groups; groups without a gradient are skipped before the forward.

    The first update runs on the weights that sampled: its old_logprobs are its own, detached, so the ratio is exactly
    1, and they are compared with the sampler's. Later updates divide by the sampler's, or, where `config.correction`
    says that the sampler is another engine, and where sums are fixed (`ranks.partial_sums`), by the trainer's from
    before the first update. A `trace` collects what was computed for every token.

    Raises:
        InvariantError: sampler and trainer disagree, or the gradient is not finite.
    """
    reports: list[UpdateMetrics] = []
    config = updater.loss
    old = _old_logprobs(updater, groups)
    for _ in range(config.epochs):
        for part in np.array_split(np.arange(len(groups)), min(config.mini_batches, len(groups))):
            chosen, chosen_old = [groups[i] for i in part], [old[i] for i in part] if old else None
            batch = make_micro_batches(chosen, config, updater.max_tokens, updater.policy.device, chosen_old)
            if batch:
                update = _Update(updater, first=not reports, traced=trace is not None)
                costs = [micro.packed.input_ids.numel() for micro in batch]
                for measured in accumulate(update.loss, batch, updater.weights, updater.policy.device, costs):
                    update.add(measured)
                    if trace is not None and (seen := measured.seen) is not None:
                        places = [(int(part[group]), completion) for group, completion in seen.places]
                        trace.add(seen._replace(places=places))
                update.compare()
                reports.append(update.report(updater.optimizer.update(step)))
                if trace is not None:
                    trace.grad_norms.append(reports[-1].grad_norm)
    return _mean_report(reports) if reports else NO_UPDATE


def _mean_report(reports: Sequence[UpdateMetrics]) -> UpdateMetrics:
    means = [float(np.mean([report[i] for report in reports])) for i in range(len(UpdateMetrics._fields))]
    return UpdateMetrics._make(means)._replace(
        ratio_max=max(report.ratio_max for report in reports),
        logprob_difference=reports[0].logprob_difference,
        logprob_bias=reports[0].logprob_bias,
        num_updates=len(reports),
        num_tokens=sum(report.num_tokens for report in reports),
    )


def _old_logprobs(updater: Updater, groups: Sequence[AdvantagedGroup]) -> list[Arrays] | None:
    """The trainer's log-probabilities before the first update, where the sampler's will not do.

    Where sums are fixed they will not: their last bits depend on how many completions a rank samples side by side.
    """
    policy, config = updater.policy, updater.loss
    if config.num_updates == 1 or (config.correction.bound == "none" and not RANKS.are_sums_fixed):
        return None
    return per_token(
        [group.scored.group for group in groups],
        lambda packed: policy.token_logprobs(packed, updater.temperature).logprobs,
        config.tokens_per_micro_batch,
        policy.device,
    )


class _Measured(NamedTuple):
    """What is known of a micro-batch beside its loss: sums over its tokens, unless said otherwise."""

    surrogate: float
    clipped: float
    kl: float
    ratio_max: float
    """The largest ratio."""
    num_tokens: int
    has_advantage: bool
    """Whether any advantage is not 0."""
    value_loss: float
    difference: Tensor | None
    """(M,) trainer - sampler; None after the first update."""
    importance: ImportanceWeights | None
    num_weights: int
    """Importance weights: one per token or per completion."""
    seen: Seen | None
    """What it computed for every token, where that is traced."""


class _Update:
    """One optimizer update: the loss of its micro-batches, and the sums that are reported of them."""

    def __init__(self, updater: Updater, *, first: bool, traced: bool = False) -> None:
        self.policy, self.config, self.temperature = updater.policy, updater.loss, updater.temperature
        self.reference, self.critic, self.first = updater.reference, updater.critic, first
        self.traced = traced
        self.surrogate = self.clipped = self.kl = self.value_loss = 0.0
        self.ratio_max = 0.0
        self.differences: list[Tensor] = []
        self.agreement = Agreement(0.0, 0.0, 0.0)
        self.bounded = self.weight_sum = self.weight_squares = 0.0
        self.num_weights = self.num_tokens = 0
        self.has_advantage = False

    def loss(self, micro: MicroBatch) -> tuple[Tensor, _Measured]:
        """The loss of one micro-batch; several may be computed at one time, so nothing here is changed by it."""
        logprobs, entropy, states = self.policy.token_logprobs(micro.packed, self.temperature)
        before = logprobs.detach()
        old_logprobs = before if self.first else self._old(micro)
        importance = self._importance(old_logprobs, micro)
        tokens = Tokens(
            logprobs,
            entropy,
            old_logprobs,
            micro.advantages,
            micro.lengths,
            self._reference(micro),
            importance.weights if importance else None,
        )
        losses = token_loss(tokens, self.config.objective)
        loss = (micro.weights * losses.loss).sum()
        value_loss = self._value_loss(self.critic, states, micro) if self.critic else None
        measured = _Measured(
            surrogate=loss.item(),
            clipped=float(losses.clipped.sum()),
            kl=losses.kl.sum().item(),
            ratio_max=losses.ratio.max().item(),
            num_tokens=len(logprobs),
            has_advantage=bool(micro.advantages.any()),
            value_loss=0.0 if value_loss is None else value_loss.item(),
            difference=before - micro.sampling_logprobs if self.first else None,
            importance=importance,
            num_weights=len(micro.lengths) if self.config.correction.level == "sequence" else len(logprobs),
            seen=self._seen(micro, before, tokens.ref_logprobs, losses, importance) if self.traced else None,
        )
        if self.critic is not None and value_loss is not None:
            loss = loss + self.critic.coef * value_loss
        return loss, measured

    def _seen(
        self,
        micro: MicroBatch,
        before: Tensor,
        reference: Tensor | None,
        losses: TokenLoss,
        importance: ImportanceWeights | None,
    ) -> Seen:
        by_trainer = self.first or micro.old_logprobs is not None
        return Seen(
            micro.places,
            micro.lengths,
            micro.weights,
            before if self.first else micro.old_logprobs,
            reference,
            losses._replace(loss=losses.loss.detach()),
            importance,
            "trainer" if by_trainer else "sampler",
        )

    def add(self, measured: _Measured) -> None:
        """Add a micro-batch to the sums."""
        self.surrogate += measured.surrogate
        self.clipped += measured.clipped
        self.kl += measured.kl
        self.ratio_max = max(self.ratio_max, measured.ratio_max)
        self.num_tokens += measured.num_tokens
        self.has_advantage |= measured.has_advantage
        self.value_loss += measured.value_loss
        if measured.difference is not None:
            self.differences.append(measured.difference)
        if measured.importance is not None:
            self.bounded += measured.importance.bounded.sum().item()
            self.weight_sum += measured.importance.sum.item()
            self.weight_squares += measured.importance.sum_squares.item()
            self.num_weights += measured.num_weights

    def _old(self, micro: MicroBatch) -> Tensor:
        return micro.sampling_logprobs if micro.old_logprobs is None else micro.old_logprobs

    def _reference(self, micro: MicroBatch) -> Tensor | None:
        if self.reference is None:
            return None
        with torch.no_grad():
            return self.reference.token_logprobs(micro.packed, self.temperature).logprobs

    def _importance(self, old_logprobs: Tensor, micro: MicroBatch) -> ImportanceWeights | None:
        correction = self.config.correction
        if correction.bound == "none":
            return None
        return importance_weights(
            old_logprobs, micro.sampling_logprobs, micro.lengths, correction.level, correction.bound, correction.cap
        )

    def _value_loss(self, critic: CriticLoss, states: Tensor, micro: MicroBatch) -> Tensor:
        if micro.values is None or micro.returns is None:
            raise InvariantError("a critic is trained on completions whose values and returns were never computed")
        values = critic.critic.values(micro.packed, states)
        return clipped_value_loss(values, micro.values, micro.returns, critic.clip).sum() * micro.value_weight

    def compare(self) -> None:
        """Before the weights change: in a step's first update, trainer and sampler agree on all its tokens.

        Where importance weights correct for another sampler, only a stated bound holds.
        """
        if self.differences:
            stated = self.config.max_logprob_difference or (
                math.inf if self.config.correction.bound != "none" else None
            )
            differences = torch.cat(self.differences)
            self.agreement = check_agreement(differences, self.temperature, self.policy.compute_dtype, stated)

    def report(self, grad_norm: float) -> UpdateMetrics:
        """What the update did, after its optimizer step."""
        check_gradient(grad_norm, self.has_advantage, is_bounded=bool(self.clipped or self.bounded))
        count = self.num_tokens
        return UpdateMetrics(
            surrogate=self.surrogate,
            grad_norm=grad_norm,
            clipped=self.clipped / count,
            kl=self.kl / count,
            ratio_max=self.ratio_max,
            logprob_difference=self.agreement.largest,
            num_updates=1,
            num_tokens=count,
            logprob_bias=self.agreement.bias,
            value_loss=self.value_loss,
            weights_bounded=self.bounded / count,
            effective_samples=self.weight_sum**2 / (self.weight_squares * self.num_weights)
            if self.weight_squares
            else float(not self.num_weights),
        )
