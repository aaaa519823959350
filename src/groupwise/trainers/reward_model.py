"""A Bradley-Terry reward model from preference pairs, as InstructGPT trained it (arXiv:2203.02155, section 3.5)."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.preferences import bradley_terry, centring, preferred
from groupwise.models.reward_model import RewardModel, start_reward_model
from groupwise.models.sharded import sharded
from groupwise.tasks.preferences import load_pairs
from groupwise.trainers.base import Trainer, accumulate_rows
from groupwise.trainers.preferences import EncodedPair, PairsConfig, PairsRecipe, encode, train_on_pairs
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start


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


class RewardModelStep(NamedTuple):
    """The report of one step."""

    step: int
    loss: float
    accuracy: float
    margin: float
    mean_score: float
    grad_norm: float
    lr: float
    num_tokens: int
    seconds: float


def train_reward_model(
    recipe: RewardModelRecipe, restart: bool = False, on_report: Callable[[Any], None] = lambda report: None
) -> Session:
    """Run a recipe, or resume an interrupted run; `on_report` gets every `RewardModelStep` and `HeldOut`."""
    pairs = load_pairs(recipe.data)
    start = Start(recipe, recipe.run, restart)
    model = sharded(start_reward_model(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True))
    train, held_out = (encode(model, part, recipe.data) for part in pairs)
    optimizer = Optimizer(model.trainable(), recipe.optimizer, recipe.run.num_steps)
    session = start.begin(model, optimizer)

    def step(number: int, chosen: Sequence[EncodedPair]) -> RewardModelStep:
        return reward_model_step(number, chosen, model, optimizer, recipe.reward_model)

    return train_on_pairs(recipe, session, train, held_out, step, partial(pair_scores, model), on_report)


def reward_model_step(
    step: int, pairs: Sequence[EncodedPair], model: RewardModel, optimizer: Optimizer, config: RewardModelConfig
) -> RewardModelStep:
    """Do one step: score both completions of every pair, compare, update."""
    began = time.perf_counter()
    loss, scores = reward_model_gradient(model, pairs, config)
    lr, grad_norm = optimizer.lr(step), optimizer.update(step)
    chosen, rejected = scores.unbind(1)
    accuracy = sum(preferred(chosen, rejected)) / len(pairs)
    margin, mean, seconds = (chosen - rejected).mean().item(), scores.mean().item(), time.perf_counter() - began
    tokens = sum(pair.num_tokens for pair in pairs)
    return RewardModelStep(step, loss, accuracy, margin, mean, grad_norm, lr, tokens, seconds)


def reward_model_gradient(
    model: RewardModel, pairs: Sequence[EncodedPair], config: RewardModelConfig
) -> tuple[float, Tensor]:
    """Accumulate the gradient of the mean loss; returns that mean and the (B, 2) scores, detached, by length."""
    num_pairs = len(pairs)

    def loss_of(chunk: list[EncodedPair]) -> tuple[Tensor, tuple[float, Tensor]]:
        scores = pair_scores(model, chunk)
        chosen, rejected = scores.unbind(1)
        margins = scores.new_tensor([pair.margin for pair in chunk])
        losses = bradley_terry(chosen, rejected, margins) + config.centring * centring(chosen, rejected)
        loss = losses.sum() / num_pairs
        return loss, (loss.item(), scores.detach().cpu())

    measured = accumulate_rows(loss_of, pairs, lambda pair: pair.num_tokens, model, config.tokens_per_micro_batch)
    losses, scores = zip(*measured, strict=True)
    return sum(losses), torch.cat(scores)


def pair_scores(model: RewardModel, pairs: Sequence[EncodedPair]) -> Tensor:
    """Return (B, 2) scores of chosen and rejected completions, with gradient."""
    return model.scores([pair.sequences for pair in pairs]).view(-1, 2)


TRAINER = Trainer(RewardModelRecipe, train_reward_model, makes="reward_model")
