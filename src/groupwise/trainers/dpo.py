"""Direct Preference Optimization (Rafailov et al. 2023, arXiv:2305.18290) and its kin: a policy from preference pairs.

The reference is the starting model; it is asked once, before the first step, and then leaves memory.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.algorithms.preferences import PREFERENCE_LOSSES, REFERENCE_FREE, PairLogprobs, Strength, preferred
from groupwise.config import ReadIf
from groupwise.config.schema import one_of
from groupwise.models.cores import shared_out
from groupwise.models.packed import micro_batch_tokens, pack
from groupwise.models.policy import Policy, start_policy
from groupwise.models.sharded import sharded
from groupwise.tasks.preferences import PairsFile, load_pairs
from groupwise.trainers.base import (
    NUM_HELD_OUT,
    DataStep,
    Gradient,
    OnReport,
    Trainer,
    accumulate_rows,
    data_line,
    load_reference,
)
from groupwise.trainers.preferences import (
    EncodedPair,
    PairsConfig,
    PairsRecipe,
    chunks,
    encode,
    pairs_of_step,
    train_on_pairs,
)
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start


class DpoConfig(PairsConfig):
    """The loss and its batches."""

    loss: Annotated[str, one_of(PREFERENCE_LOSSES)] = "dpo"
    """`dpo`, `ipo`, or `simpo`, which has no reference."""
    beta: float = Field(0.1, gt=0)
    """β (DPO: 0.1; IPO's τ; SimPO: 2 to 10). Larger stays nearer to the reference."""
    gamma: Annotated[float, ReadIf(lambda dpo: dpo.loss == "simpo", "loss = 'simpo'")] = Field(0.0, ge=0)
    """γ, the reward margin that `simpo` aims at (SimPO: 0.3 to 1.6)."""

    @property
    def strength(self) -> Strength:
        return Strength(self.beta, self.gamma)


class DpoRecipe(PairsRecipe):
    """A whole DPO run."""

    algorithm: Literal["dpo"] = "dpo"
    """The trainer of this recipe."""
    dpo: DpoConfig = DpoConfig()
    """The loss."""

    @property
    def pairs(self) -> PairsConfig:
        return self.dpo

    @model_validator(mode="after")
    def _no_margin(self) -> Self:
        if isinstance(self.data, PairsFile) and self.data.margin_field is not None:
            raise ValueError(f"data.margin_field = '{self.data.margin_field}' is read by reward_model only")
        return self


def train_dpo(recipe: DpoRecipe, restart: bool = False, on_report: OnReport = lambda report: None) -> Session:
    """Run a recipe, or resume an interrupted run; `on_report` gets every `DataStep` and `HeldOut`."""
    pairs = load_pairs(recipe.data)
    start = Start(recipe, recipe.run, restart)
    policy = sharded(start_policy(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True))
    train, held_out = (encode(policy, part, recipe.data) for part in pairs)
    if recipe.dpo.loss not in REFERENCE_FREE:
        train, held_out = _with_reference(recipe, policy, train, held_out)
    session = start.begin(policy, Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps))

    def scores(chunk: Sequence[EncodedPair]) -> Tensor:
        rewards = PREFERENCE_LOSSES[recipe.dpo.loss](pair_logprobs(policy, chunk), recipe.dpo.strength)
        return torch.stack([rewards.chosen, rewards.rejected], 1)

    def gradient(pairs: Sequence[EncodedPair]) -> Gradient:
        return dpo_step(policy, pairs, recipe.dpo)

    return train_on_pairs(recipe, session, train, held_out, gradient, scores, on_report)


def _with_reference(
    recipe: DpoRecipe, policy: Policy, train: list[EncodedPair], held_out: list[EncodedPair]
) -> tuple[list[EncodedPair], list[EncodedPair]]:
    """Ask the reference, always in the same micro-batches, so that a resumed run gets the same numbers to the bit."""
    reference = load_reference(recipe.model, recipe.lora, policy)
    steps = range(recipe.run.num_steps)
    indices = {i for step in steps for i in pairs_of_step(len(train), recipe.dpo.pairs_per_step, recipe.run.seed, step)}
    drawn = sorted(indices)
    by_index = dict(zip(drawn, referred(reference, [train[i] for i in drawn], recipe.dpo), strict=True))
    measured = held_out[:NUM_HELD_OUT]
    return [by_index.get(i, pair) for i, pair in enumerate(train)], referred(reference, measured, recipe.dpo)


@torch.no_grad()
def referred(reference: Policy, pairs: Sequence[EncodedPair], config: PairsConfig) -> list[EncodedPair]:
    """Return the pairs, in order, with the reference's log-probabilities."""
    found, parts = list(pairs), chunks(pairs, micro_batch_tokens(config.tokens_per_micro_batch, reference.device))
    each = shared_out(lambda part: pair_logprobs(reference, [pairs[i] for i in part]), parts, reference.device)
    for part, logprobs in zip(parts, each, strict=True):
        for i, chosen, rejected in zip(part, logprobs.chosen.tolist(), logprobs.rejected.tolist(), strict=True):
            found[i] = pairs[i]._replace(ref_chosen=chosen, ref_rejected=rejected)
    return found


def dpo_step(policy: Policy, pairs: Sequence[EncodedPair], config: DpoConfig) -> Gradient:
    """Accumulate the gradient of a step; log-probabilities are in nats per completion."""
    loss, logprobs = dpo_gradient(policy, pairs, config)
    rewards = PREFERENCE_LOSSES[config.loss](logprobs, config.strength)
    fell = (logprobs.chosen < logprobs.ref_chosen).float().mean().item()  # share that the reference finds likelier
    measured = {
        "accuracy": sum(preferred(rewards.chosen, rewards.rejected)) / len(pairs),
        "margin": (rewards.chosen - rewards.rejected).mean().item(),
        "chosen_logprob": logprobs.chosen.mean().item(),
        "rejected_logprob": logprobs.rejected.mean().item(),
        "chosen_fell": None if config.loss in REFERENCE_FREE else fell,
    }
    return Gradient(loss, sum(pair.sequences.num_read for pair in pairs), measured)


def dpo_gradient(policy: Policy, pairs: Sequence[EncodedPair], config: DpoConfig) -> tuple[float, PairLogprobs]:
    """Accumulate the gradient of the mean loss; returns that mean and detached log-probabilities, by length."""

    def loss_of(chunk: list[EncodedPair]) -> tuple[Tensor, list[Tensor]]:
        logprobs = pair_logprobs(policy, chunk)
        loss = PREFERENCE_LOSSES[config.loss](logprobs, config.strength).loss.sum() / len(pairs)
        return loss, [tensor.detach().cpu() for tensor in logprobs]

    size = config.tokens_per_micro_batch
    loss, logprobs = accumulate_rows(loss_of, pairs, lambda pair: pair.sequences, policy, size)
    return loss, PairLogprobs(*(torch.cat(pieces) for pieces in zip(*logprobs, strict=True)))


def pair_logprobs(policy: Policy, pairs: Sequence[EncodedPair]) -> PairLogprobs:
    """Compute log-probabilities of what the assistant says in completions, with gradient, beside the reference's."""
    packed = pack([pair.sequences for pair in pairs], policy.device)
    lengths = [[int(mask.sum()) for mask in pair.sequences.masks] for pair in pairs]
    pieces = policy.token_logprobs(packed).logprobs.split([length for pair in lengths for length in pair])
    chosen, rejected = torch.stack([piece.sum() for piece in pieces]).view(-1, 2).unbind(1)
    constants = [(*length, pair.ref_chosen, pair.ref_rejected) for length, pair in zip(lengths, pairs, strict=True)]
    chosen_lengths, rejected_lengths, ref_chosen, ref_rejected = chosen.new_tensor(constants).unbind(1)
    return PairLogprobs(chosen, rejected, ref_chosen, ref_rejected, chosen_lengths, rejected_lengths)


def dpo_line(report: DataStep) -> str:
    """Format a step as a line, with a warning where most chosen completions became less likely."""
    fell = "  ! most chosen completions fell" if (report.measured["chosen_fell"] or 0) > 0.5 else ""
    return f"{data_line(report)}{fell}"


TRAINER = Trainer(DpoRecipe, train_dpo, line=dpo_line)
