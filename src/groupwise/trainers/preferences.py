"""Learning from preference pairs: recipe, encoding, loop and held-out pairs, which `dpo` has too; and a reward model.

It is a Bradley-Terry model, as InstructGPT trained it (arXiv:2203.02155, section 3.5).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.preferences import bradley_terry, calibration_error, centring, preferred, reliability
from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.models.backbone import Backbone
from groupwise.models.cores import shared_out
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches
from groupwise.models.prompts import ended, prompt_ids
from groupwise.models.reward_model import RewardModel, start_reward_model
from groupwise.models.sharded import sharded
from groupwise.models.steps import refuse_unknown
from groupwise.randomness import shuffled_epochs
from groupwise.tasks.base import ChatArguments
from groupwise.tasks.preferences import Pair, PairsData, load_pairs
from groupwise.trainers.base import (
    NUM_HELD_OUT,
    FineTuningRecipe,
    Gradient,
    HeldOutConfig,
    OnReport,
    Trainer,
    accumulate_rows,
    learn,
)
from groupwise.trainers.turns import Dialogue, turns
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start


class PairsConfig(HeldOutConfig):
    """The batches of pairs."""

    pairs_per_step: int = Field(64, ge=1)
    """Pairs per step (InstructGPT's reward model and DPO: 64)."""


class PairsRecipe(FineTuningRecipe):
    """Base of all recipes that learn from pairs."""

    data: PairsData
    """The pairs."""

    @property
    def pairs(self) -> PairsConfig:
        raise NotImplementedError


class EncodedPair(NamedTuple):
    """A pair as token ids; the end token is part of the completions."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    margin: float = 0.0
    ref_chosen: float = math.nan
    ref_rejected: float = math.nan
    learnt: tuple[list[bool], list[bool]] | None = None
    """Of both completions, the tokens that the assistant wrote; None: all. A reward model reads the end of each."""

    @property
    def sequences(self) -> Sequences:
        masks = None if self.learnt is None else [np.array(side) for side in self.learnt]
        return Sequences(self.prompt, [self.chosen, self.rejected], masks)


class HeldOut(NamedTuple):
    """A model's figures on the held-out pairs."""

    step: int
    accuracy: Estimate
    """Share of pairs whose chosen completion scores higher; equal scores count half."""
    margin: float
    calibration_error: float
    """Expected calibration error of the probability σ(score difference)."""
    mean_score: float
    """Mean over all completions; only differences are learnt, so a mean near 0 is centring's doing."""


def encode(model: Backbone, pairs: Sequence[Pair], chat: Section | None = None) -> list[EncodedPair]:
    """Write pairs as token ids, the end token added; raises DataError or ModelError where a pair cannot be written."""
    return [_encode(model, pair, chat if isinstance(chat, ChatArguments) else ChatArguments()) for pair in pairs]


def _encode(model: Backbone, pair: Pair, chat: ChatArguments) -> EncodedPair:
    tokenizer = model.tokenizer
    if isinstance(pair.prompt, list):
        place = f"the pair that begins {pair.prompt[0]['content'][:60]!r}"
        sides = [
            turns(model, Dialogue(pair.prompt, side, pair.tools, place), chat)
            for side in (pair.chosen, pair.rejected)
            if isinstance(side, list)
        ]
        shared = min(side.prompt for side in sides)
        chosen, rejected = (side.ids[shared:] for side in sides)
        # where one answer's first token holds the prompt's last characters, both are compared from there on
        first, second = ([i < side.prompt or own for i, own in enumerate(side.trained)][shared:] for side in sides)
        return EncodedPair(sides[0].ids[:shared], chosen, rejected, pair.margin, learnt=(first, second))
    ids = prompt_ids(model, pair.prompt, f"the prompt {pair.prompt[:60]!r}")
    chosen, rejected = tokenizer([pair.chosen, pair.rejected], add_special_tokens=False)["input_ids"]
    encoded = EncodedPair(ids, ended(model, chosen), ended(model, rejected), pair.margin)
    longest = len(ids) + max(len(encoded.chosen), len(encoded.rejected))
    if not ids or longest > model.context_length:
        raise DataError(
            f"the pair that begins {pair.prompt[:60]!r} has {longest} tokens, {len(ids)} of them prompt; allowed: a "
            f"prompt of at least 1 token, {model.context_length} in all"
        )
    text, what = "".join(map(str, pair[:3])), f"the pair that begins {pair.prompt[:60]!r}"
    refuse_unknown(tokenizer, text, [*ids, *chosen, *rejected], what)
    return encoded


def pairs_of_step(num_pairs: int, size: int, seed: int, step: int) -> list[int]:
    """Choose the pairs of a step, in shuffled epochs."""
    return shuffled_epochs(num_pairs, size, step, seed, "pair order")


def chunks(pairs: Sequence[EncodedPair], budget: int) -> list[list[int]]:
    """Cut pairs, sorted by length, into micro-batches; returns their places."""
    sizes = [pair.sequences.num_read for pair in pairs]
    order = sorted(range(len(pairs)), key=sizes.__getitem__)
    return [[order[i] for i in part] for part in micro_batches([sizes[i] for i in order], budget)]


Scores = Callable[[list[EncodedPair]], Tensor]
"""A micro-batch of pairs -> (B, 2) scores of chosen and rejected completions."""


def train_on_pairs(
    recipe: PairsRecipe,
    session: Session,
    train: Sequence[EncodedPair],
    held_out: Sequence[EncodedPair],
    gradient: Callable[[Sequence[EncodedPair]], Gradient],
    scores: Scores,
    on_report: OnReport,
) -> Session:
    """Run the loop: draw pairs, do the step, record, measure on held-out pairs."""
    config, run, first = recipe.pairs, recipe.run, held_out[:NUM_HELD_OUT]

    def of_step(number: int) -> Gradient:
        return gradient([train[i] for i in pairs_of_step(len(train), config.pairs_per_step, run.seed, number)])

    def measured(done: int) -> HeldOut | None:
        if not first or not config.is_due(done, run.num_steps):
            return None
        return measure(done, first, scores, config.tokens_per_micro_batch, session.policy.device)

    return learn(session, of_step, on_report, measured)


@torch.no_grad()
def measure(step: int, pairs: Sequence[EncodedPair], scores: Scores, budget: int, device: torch.device) -> HeldOut:
    """Accuracy with its interval, margin, calibration and mean of the scores of some pairs."""
    pieces = [[pairs[i] for i in part] for part in chunks(pairs, micro_batch_tokens(budget, device))]
    pair_scores = torch.cat(list(shared_out(scores, pieces, device))).double().cpu()
    chosen, rejected = pair_scores.T.numpy()
    return HeldOut(
        step=step,
        accuracy=mean_share(preferred(chosen, rejected)),
        margin=float((chosen - rejected).mean()),
        calibration_error=calibration_error(reliability(chosen, rejected)),
        mean_score=float(pair_scores.mean()),
    )


class RewardModelConfig(PairsConfig):
    """The loss and its batches."""

    centring: float = Field(0.01, ge=0)
    """Weight of (r_c + r_r)², which keeps the mean score near 0; 0: off (Eisenstein et al.: 0.01)."""


class RewardModelRecipe(PairsRecipe):
    """A whole reward model run."""

    algorithm: Literal["reward_model"] = "reward_model"
    """The trainer of this recipe."""
    reward_model: RewardModelConfig = RewardModelConfig()
    """The loss."""

    @property
    def pairs(self) -> PairsConfig:
        return self.reward_model


def train_reward_model(recipe: RewardModelRecipe, restart: bool, on_report: OnReport) -> Session:
    """Run a recipe, or resume an interrupted run; `on_report` gets every `DataStep` and `HeldOut`."""
    pairs = load_pairs(recipe.data)
    start = Start(recipe, recipe.run, restart)
    model = sharded(start_reward_model(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True))
    train, held_out = (encode(model, part, recipe.data) for part in pairs)
    session = start.begin(model, Optimizer(model.trainable(), recipe.optimizer, recipe.run.num_steps))
    gradient = partial(reward_model_step, model, config=recipe.reward_model)
    return train_on_pairs(recipe, session, train, held_out, gradient, partial(pair_scores, model), on_report)


def reward_model_step(model: RewardModel, pairs: Sequence[EncodedPair], config: RewardModelConfig) -> Gradient:
    """Accumulate the gradient of a step."""
    loss, scores = reward_model_gradient(model, pairs, config)
    chosen, rejected = scores.unbind(1)
    measured = {
        "accuracy": sum(preferred(chosen, rejected)) / len(pairs),
        "margin": (chosen - rejected).mean().item(),
        "mean_score": scores.mean().item(),
    }
    return Gradient(loss, sum(pair.sequences.num_read for pair in pairs), measured)


def reward_model_gradient(
    model: RewardModel, pairs: Sequence[EncodedPair], config: RewardModelConfig
) -> tuple[float, Tensor]:
    """Accumulate the gradient of the mean loss; returns that mean and the (B, 2) scores, detached, by length."""

    def loss_of(chunk: list[EncodedPair]) -> tuple[Tensor, Tensor]:
        scores = pair_scores(model, chunk)
        chosen, rejected = scores.unbind(1)
        margins = scores.new_tensor([pair.margin for pair in chunk])
        losses = bradley_terry(chosen, rejected, margins) + config.centring * centring(chosen, rejected)
        return losses.sum() / len(pairs), scores.detach().cpu()

    size = config.tokens_per_micro_batch
    loss, scores = accumulate_rows(loss_of, pairs, lambda pair: pair.sequences, model, size)
    return loss, torch.cat(scores)


def pair_scores(model: RewardModel, pairs: Sequence[EncodedPair]) -> Tensor:
    """Return (B, 2) scores of chosen and rejected completions, with gradient."""
    return model.scores([pair.sequences for pair in pairs]).view(-1, 2)


TRAINER = Trainer(RewardModelRecipe, train_reward_model, makes="reward_model")
