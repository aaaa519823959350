"""Formulas chosen by kind: a user's own in a file, and published ones as recipes."""

from pathlib import Path

import pytest
import torch

from groupwise.algorithms.advantages import GroupNormalised, step_advantages
from groupwise.algorithms.objective import Tokens, token_loss
from groupwise.algorithms.policy_losses import policy_loss
from groupwise.config import dump_toml
from groupwise.errors import ConfigError
from groupwise.trainers import load_recipe
from groupwise.trainers.grpo import GrpoRecipe

RECIPE = """
algorithm = "grpo"
run = { directory = "unused", num_steps = 1 }
task = { kind = "arithmetic" }
"""
OWN = """
from pydantic import Field
from groupwise.algorithms.advantages import AdvantageEstimator
from groupwise.algorithms.policy_losses import PolicyLoss, TokenLosses

class Share(PolicyLoss):
    share: float = Field(0.5, ge=0)

    def __call__(self, logprobs, old_logprobs, advantages, lengths):
        ratio = (logprobs - old_logprobs).exp()
        return TokenLosses(-self.share * ratio * advantages, ratio.detach(), ratio.detach() > 9)

class AboveBest(AdvantageEstimator):
    margin: float = 0.0

    def within(self, rewards):
        return rewards - rewards.max() - self.margin

def alone(logprobs, old_logprobs, advantages, lengths):
    return -advantages * logprobs
"""


def write(folder: Path, text: str) -> Path:
    (folder / "own.py").write_text(OWN)
    (folder / "recipe.toml").write_text(RECIPE + text)
    return folder / "recipe.toml"


def grpo(path: Path, *overrides: str) -> GrpoRecipe:
    recipe = load_recipe(path, overrides)
    assert isinstance(recipe, GrpoRecipe)
    return recipe


def test_a_policy_loss_of_ones_own_with_a_dial(tmp_path: Path) -> None:
    recipe = grpo(write(tmp_path, 'loss.policy = { kind = "own.py:Share", share = 0.25 }'))
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-1.0, -2.0], dtype=torch.float64) - torch.tensor([1.0, 2.0], dtype=torch.float64).log()
    known = Tokens(logprobs, logprobs.detach(), old, torch.tensor([2.0, -1.0]), torch.tensor([2]))
    found = token_loss(known, recipe.loss.objective)
    assert found.loss.tolist() == pytest.approx([-0.5, 0.5])  # -0.25 · 1 · 2 and -0.25 · 2 · -1
    (slopes,) = torch.autograd.grad(found.loss.sum(), logprobs)
    assert slopes.tolist() == pytest.approx([-0.5, 0.5])  # of e^x it is itself


def test_an_advantage_of_ones_own_with_a_dial(tmp_path: Path) -> None:
    recipe = grpo(write(tmp_path, 'advantage = { kind = "own.py:AboveBest", margin = 0.5 }'))
    rewards = [(1.0, None, 0.25), (1.0, 1.0)]
    parts = [[[reward or 0.0] for reward in group] for group in rewards]
    assert step_advantages(rewards, parts, recipe.advantage) == [(-0.5, None, -1.25), (0.0, 0.0)]  # no signal: zeros


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ("-ratio * advantages", "gave Tensor for 2 tokens; allowed are TokenLosses"),
        ("TokenLosses(-(ratio * advantages)[:, None], ratio, ratio > 9)", r"gave \[\(2, 1\), \(2,\), \(2,\)\] for 2"),
        ("TokenLosses(-(ratio * advantages).mean(), ratio, ratio > 9)", r"gave \[\(\), \(2,\), \(2,\)\] for 2 tokens"),
        ("TokenLosses(-ratio * advantages, ratio, None)", r"gave \[\(2,\), \(2,\), \(\)\] for 2 tokens"),
        ("TokenLosses(-ratio * advantages, ratio, ratio)", "the last of truth values"),
    ],
)
def test_a_loss_that_is_not_one_number_for_each_token_is_refused(tmp_path: Path, gives: str, says: str) -> None:
    path = write(tmp_path, 'loss.policy = "own.py:Share"')
    own = OWN.replace("TokenLosses(-self.share * ratio * advantages, ratio.detach(), ratio.detach() > 9)", gives)
    (tmp_path / "own.py").write_text(own)
    known = Tokens(*(torch.zeros(2) for _ in range(4)), torch.tensor([2]))
    with pytest.raises(ConfigError, match=says):
        token_loss(known, grpo(path).loss.objective)


def test_a_loss_without_a_gradient_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 'loss.policy = "own.py:Share"')
    (tmp_path / "own.py").write_text(OWN.replace("(logprobs - old", "(logprobs.detach() - old"))
    known = Tokens(torch.zeros(2, requires_grad=True), *(torch.zeros(2) for _ in range(3)), torch.tensor([2]))
    with pytest.raises(ConfigError, match=r"own\.py:Share' gave a loss without a gradient; allowed is one that"):
        token_loss(known, grpo(path).loss.objective)


@pytest.mark.parametrize("gives", ["rewards.mean()", "rewards[:1]", "rewards[:, None]", "rewards / 0"])
def test_advantages_that_are_not_one_number_for_each_reward_are_refused(tmp_path: Path, gives: str) -> None:
    says = r"gave (the shapes .*|numbers that are not finite); finite ones of \[\(2,\)\] are allowed"
    path = write(tmp_path, 'advantage = "own.py:AboveBest"')
    (tmp_path / "own.py").write_text(OWN.replace("rewards - rewards.max() - self.margin", gives))
    with pytest.raises(ConfigError, match=says):
        step_advantages([(1.0, 0.0)], [[[1.0], [0.0]]], grpo(path).advantage)


def test_ones_own_is_written_and_read_back(tmp_path: Path) -> None:
    recipe = grpo(write(tmp_path, 'loss.policy = { kind = "own.py:Share", share = 0.25 }'))
    (tmp_path / "config.toml").write_text(dump_toml(recipe))
    assert load_recipe(tmp_path / "config.toml") == recipe


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('loss.policy = { kind = "own.py:Share", share = -1 }', r"loss\.policy\.share = -1"),
        ('loss.policy = { kind = "own.py:Share", shar = 1 }', r"loss\.policy\.shar: unknown key; did you mean 'share'"),
        (
            'loss.policy = { kind = "own.py:Share", tau_pos = 1 }',
            "without effect: soft_gate reads it, .*Share does not",
        ),
        ('loss.policy = "own.py:AboveBest"', "is no policy loss: allowed is a class that builds on PolicyLoss"),
        ('loss.policy = "own.py:alone"', "is no policy loss: allowed is a class that builds on PolicyLoss"),
        ('advantage = "own.py:Share"', "is no advantage: allowed is a class that builds on AdvantageEstimator"),
        ('advantage = "own.py:Best"', r"did you mean 'AboveBest'"),
        (
            "loss.policy.tau_pos = 2",
            r"loss\.policy\.tau_pos: a setting without effect: soft_gate reads it, clipped_ratio",
        ),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_recipe(write(tmp_path, text))


def test_a_published_algorithm_is_extended_from_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path, 'extends = ["algorithms/dapo.toml"]\nloss.policy.clip_high = 0.3')
    path.write_text(path.read_text().replace('algorithm = "grpo"\n', ""))
    recipe = grpo(path)
    assert recipe.loss.policy == policy_loss("clipped_ratio", clip_high=0.3)
    assert isinstance(recipe.advantage, GroupNormalised)
    assert (recipe.grpo.refill_rounds, recipe.loss.aggregation, recipe.loss.truncated) == (3, "token", "mask")


def test_a_published_algorithm_over_a_recipe_replaces_the_loss_of_another_kind(tmp_path: Path) -> None:
    path = write(tmp_path, 'loss = { aggregation = "token", policy = { kind = "soft_gate", tau_pos = 2 } }')
    recipe = load_recipe(path, ["loss.mini_batches=2"], extends=["algorithms/gspo.toml"])
    assert isinstance(recipe, GrpoRecipe)
    assert recipe.loss.policy == policy_loss("sequence_ratio", clip_low=3e-4, clip_high=4e-4)
    assert (recipe.loss.aggregation, recipe.loss.mini_batches) == ("sequence", 2)
