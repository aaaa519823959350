"""One step of GRPO and one of PPO, from known completions to the new weights, every number worked out beside the code.

The completions are scripted. Rewards, advantages and losses are written out here; log-probabilities and gradients are
those of transformers' eager forward in float64, one sequence at a time; AdamW's first step is its formula.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.config import parse
from groupwise.models.policy import Critic, Policy
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.tasks.base import Template
from groupwise.trainers.grpo import GrpoLearner, GrpoRecipe, grpo_step
from groupwise.trainers.ppo import PpoLearner, PpoRecipe, ppo_step
from groupwise.training.optimizer import Optimizer
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request, Verifier

LR, EPS, MAX_TOKENS = 1e-3, 1e-8, 6
SCRIPT = {"a?\n": ["1", "22", "no"], "b?\n": ["333", "1", "x"], "c?\n": ["0", "0", "00"]}
EARNED = {"1": 1.0, "22": 0.5, "333": 1.0}  # everything else earns nothing
PROBLEMS = [Problem("a", "a?", ""), Problem("b", "b?", ""), Problem("c", "c?", "")]
REWARDS = [[1.0, 0.5, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
GROUP_MEAN = [[0.5, 0.0, -0.5], [1 / 3, 1 / 3, -2 / 3], [0.0, 0.0, 0.0]]


class ByText(Verifier):
    """Pays for a completion's text."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        earned = [EARNED.get(one.text, 0.0) for one in requests]
        return [Verdict(Outcome.CORRECT if r == 1 else Outcome.WRONG, {"accuracy": r}, "") for r in earned]


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return tiny_policy()


@pytest.fixture
def actors(policy: Policy) -> Actors:
    return Actors(policy, ScriptedEngine.of(SCRIPT, policy), Template(), ByText())


def values(algorithm: str, **batch: Any) -> dict[str, Any]:
    return {
        "run": {"directory": "unused", "num_steps": 10},
        "task": {"kind": "arithmetic"},
        algorithm: {"prompts_per_step": 3, "group_size": 3, **batch},
        "sampling": {"max_tokens": MAX_TOKENS},
        "optimizer": {"lr": LR, "eps": EPS, "max_grad_norm": 0.0},
    }


def pairs_of(policy: Policy) -> list[tuple[list[int], list[int]]]:
    """(prompt, completion) of every scripted completion, as token ids with the end token."""
    encode = policy.tokenizer
    return [
        (encode(prompt)["input_ids"], [*encode(text)["input_ids"], encode.eos_token_id])
        for prompt, texts in SCRIPT.items()
        for text in texts
    ]


def first_adamw_step(before: Tensor, gradient: Tensor, lr: float = LR) -> Tensor:
    """m = (1-β₁)g and v = (1-β₂)g², both corrected by their decay: w - lr · g / (|g| + ε), whatever the betas."""
    return before.double() - lr * gradient / (gradient.abs() + EPS)


def assert_weights(policy: Policy, before: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
    moved = 0.0
    for name, weight in policy.model.named_parameters():
        known = gradients[name].abs() > 1e-6  # where the gradient is rounding, so is its sign
        expected = first_adamw_step(before[name], gradients[name])
        torch.testing.assert_close(weight.double()[known], expected[known], atol=2e-6, rtol=0)
        moved = max(moved, (weight.detach() - before[name]).abs().max().item())
    assert moved == pytest.approx(LR, rel=1e-3)


def test_a_grpo_step_by_hand(policy: Policy, actors: Actors, eager_logprobs: Any) -> None:
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    recipe = parse(GrpoRecipe, values("grpo"))
    learner = GrpoLearner(actors, None, {}, Optimizer(policy.trainable(), recipe.optimizer, 10), recipe)
    pairs = pairs_of(policy)
    model, logprobs, _ = eager_logprobs(policy, pairs)

    result = grpo_step(learner, 0, PROBLEMS)

    for group, (prompt, texts), rewards, advantages in zip(
        result.groups, SCRIPT.items(), REWARDS, GROUP_MEAN, strict=True
    ):
        assert group.scored.group.prompt.text == prompt
        assert [one.text for one in group.scored.group.completions] == texts
        assert list(group.scored.rewards) == rewards
        for one, array, expected in zip(group.scored.group.completions, group.advantages, advantages, strict=True):
            assert array == pytest.approx(np.full(one.num_tokens, expected), abs=1e-7)
    # Dr. GRPO: minus the sum over tokens of advantage · log π, over 9 completions of at most 6 tokens
    weights = [a for advantages in GROUP_MEAN for a in advantages]
    every = torch.tensor([a for a, (_, ids) in zip(weights, pairs, strict=True) for _ in ids], dtype=torch.float64)
    (-(every * logprobs).sum() / (9 * MAX_TOKENS)).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    norm = sum(float(g.square().sum()) for g in gradients.values()) ** 0.5
    assert result.update.grad_norm == pytest.approx(norm, rel=1e-4)
    # the ratio is 1, so the surrogate is minus the weighted sum of advantages
    assert result.update.surrogate == pytest.approx(-float(every.sum()) / (9 * MAX_TOKENS), abs=1e-6)
    assert result.update.num_tokens == sum(len(ids) for _, ids in pairs[:6])  # the third group is skipped
    assert_weights(policy, before, gradients)
    assert (actors.engine.version, result.problems) == (1, [["a", "b", "c"]])
    sizes = [len(one.token_ids) for group in result.sampled for one in group.group.completions]
    assert sizes == [len(ids) for _, ids in pairs]


def test_groups_without_signal_are_replaced(policy: Policy, actors: Actors) -> None:
    recipe = parse(GrpoRecipe, values("grpo", prompts_per_step=2, refill_rounds=1))
    learner = GrpoLearner(actors, None, {}, Optimizer(policy.trainable(), recipe.optimizer, 10), recipe)
    result = grpo_step(learner, 0, PROBLEMS[1:], PROBLEMS[:1])
    assert result.problems == [["b", "c"], ["a"]]
    assert [group.scored.group.prompt.problem.id for group in result.groups] == ["b", "a"]
    assert len(result.sampled) == 3


def test_a_ppo_step_by_hand(policy: Policy, actors: Actors, eager_logits: Any) -> None:
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    critic_table = {"backbone": "shared", "lr": 2e-3, "coef": 0.1, "clip": 0.0}
    tables = {"critic": critic_table, "loss": {"mini_batches": 1, "epochs": 1}}
    recipe = parse(PpoRecipe, values("ppo", gamma=1.0, lam=1.0, whiten=False) | tables)
    critic = Critic(policy, None)  # its head is zero, so every value is 0
    optimizer = Optimizer(policy.trainable(), recipe.optimizer, 10, critic.trainable(), recipe.critic.lr)
    learner = PpoLearner(actors, None, {}, optimizer, recipe, critic)
    pairs = pairs_of(policy)
    model, logits = eager_logits(policy, [[*prompt, *completion] for prompt, completion in pairs])

    result = ppo_step(learner, 0, PROBLEMS)

    # γ = λ = 1 and values of 0: every token's advantage and return is the completion's reward
    rewards = [r for group in REWARDS for r in group]
    for group, earned in zip(result.groups, REWARDS, strict=True):
        for array, view, reward in zip(group.advantages, group.critic, earned, strict=True):
            assert array == pytest.approx(np.full(len(array), reward))
            assert view.returns == pytest.approx(np.full(len(array), reward))
            assert not view.values.any()
    num_tokens = sum(len(ids) for _, ids in pairs)
    total = torch.zeros((), dtype=torch.float64)
    for row, (prompt, ids), reward in zip(logits, pairs, rewards, strict=True):
        logprobs = row[len(prompt) - 1 : len(prompt) - 1 + len(ids)].log_softmax(-1)
        total = total - reward * logprobs.gather(1, torch.tensor(ids)[:, None]).sum() / num_tokens
    total.backward()
    # the value loss ½(V - R)² has no slope into the shared body while the head is zero
    assert_weights(policy, before, {name: p.grad for name, p in model.named_parameters()})
    squares = sum(reward**2 * len(ids) for (_, ids), reward in zip(pairs, rewards, strict=True))
    assert result.update.value_loss == pytest.approx(squares / 2 / num_tokens, rel=1e-5)
    # the head's bias sees -coef · the mean return, so AdamW moves it up by its whole rate
    assert critic.head.bias.item() == pytest.approx(2e-3, rel=1e-3)
    assert result.update.num_updates == 1
