"""PPO's bridge: token rewards, values, generalised advantages and whitening against loops written from the papers."""

from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.models.policy import Critic, Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Template
from groupwise.trainers.ppo import PpoLearner, PpoRecipe, with_critic
from groupwise.training.optimizer import Optimizer
from groupwise.types import Outcome, Problem, ScoredGroup, Verdict
from groupwise.verifiers.unjudged import Unjudged

REWARDS: list[list[float | None]] = [[1.0, 0.0, None], [0.0, 0.5, 1.0]]


def recipe(**ppo: Any) -> PpoRecipe:
    values = {"run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}, "ppo": ppo}
    return parse(PpoRecipe, values, ["loss.kl_coef=0.1", "loss.tokens_per_micro_batch=20"])


@pytest.fixture
def scored(policy: Policy) -> list[ScoredGroup]:
    actors, problems = Actors.of(policy, Template(), Unjudged()), [Problem("a", "?", ""), Problem("b", "???", "")]
    drawn = sample_and_score(actors, problems, 3, SamplingConfig(max_tokens=8), Draws(0, Purpose.TRAIN))
    verdicts = [
        tuple(Verdict(Outcome.CRASHED, {}, "") if r is None else Verdict(Outcome.WRONG, {"r": r}, "") for r in earned)
        for earned in REWARDS
    ]
    return [ScoredGroup(one.group, found) for one, found in zip(drawn, verdicts, strict=True)]


def learner(policy: Policy, critic: Critic, reference: Policy | None, recipe: PpoRecipe) -> PpoLearner:
    actors = Actors.of(policy, Template(), Unjudged())
    optimizer = Optimizer(policy.trainable(), recipe.optimizer, 1)
    return PpoLearner(actors, reference, {}, optimizer, recipe, critic)


@pytest.fixture
def critic(policy: Policy) -> Critic:
    made = Critic(policy, None)
    with torch.no_grad():
        made.head.weight.copy_(0.3 * torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    return made


@pytest.mark.parametrize("whiten", [False, True])
def test_advantages_equal_the_papers_double_sums(
    policy: Policy, scored: list[ScoredGroup], critic: Critic, tiny_policy: Any, eager_logprobs: Any, whiten: bool
) -> None:
    reference = tiny_policy(seed=3).freeze()
    settings = recipe(gamma=0.9, lam=0.8, whiten=whiten)
    groups, variance = with_critic(learner(policy, critic, reference, settings), scored)
    expected, returns, values = [], [], []
    for group, found in zip(scored, groups, strict=True):
        assert found.advantages[0] is not None
        pairs = [(group.group.prompt.token_ids, c.token_ids.tolist()) for c in group.group.completions]
        for i, (pair, reward) in enumerate(zip(pairs, group.rewards, strict=True)):
            if reward is None:
                assert found.advantages[i] is None
                assert found.critic[i] is None
                continue
            view = found.critic[i]
            assert view is not None
            _, ref, _ = eager_logprobs(reference, [pair])
            sampled = group.group.completions[i].sampling_logprobs
            T = len(sampled)
            r = [-0.1 * (float(sampled[t]) - ref[t].item()) for t in range(T)]
            r[-1] += reward
            v = [float(x) for x in view.values] + [0.0]
            deltas = [r[t] + 0.9 * v[t + 1] - v[t] for t in range(T)]
            advantages = [sum((0.9 * 0.8) ** k * deltas[t + k] for k in range(T - t)) for t in range(T)]
            expected.append(advantages)
            np.testing.assert_allclose(view.returns, np.array(advantages) + np.array(v[:-1]), atol=1e-5)
            returns += list(view.returns)
            values += list(view.values)
    every = np.concatenate(expected)
    if whiten:
        expected = [(np.array(one) - every.mean()) / (every.std() + 1e-4) for one in expected]
    found_advantages = [a for group in groups for a in group.advantages if a is not None]
    for ours, theirs in zip(found_advantages, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    left = 1 - np.var(np.array(returns) - np.array(values)) / np.var(returns)
    assert variance == pytest.approx(left, abs=1e-4)
    assert len({round(float(x), 4) for x in found_advantages[0]}) > 1


def test_a_new_critic_says_zero_and_leaves_plain_returns(policy: Policy, scored: list[ScoredGroup]) -> None:
    groups, _ = with_critic(learner(policy, Critic(policy, None), None, recipe(lam=1.0, whiten=False)), scored)
    for group, found in zip(scored, groups, strict=True):
        for reward, advantage in zip(group.rewards, found.advantages, strict=True):
            if reward is not None:
                np.testing.assert_array_equal(advantage, np.full_like(advantage, reward))


def test_a_step_in_which_nothing_was_judged_has_no_advantages(policy: Policy, scored: list[ScoredGroup]) -> None:
    nothing = Verdict(Outcome.NONE, {}, "")
    abstained = [ScoredGroup(one.group, (nothing,) * len(one.verdicts)) for one in scored]
    groups, variance = with_critic(learner(policy, Critic(policy, None), None, recipe()), abstained)
    assert [group.advantages for group in groups] == [(None,) * 3] * 2
    assert variance is None


def test_a_shared_critic_has_one_layer_and_an_own_one_a_trunk(policy: Policy, tiny_policy: Any) -> None:
    shared, own = Critic(policy, None), Critic(policy, tiny_policy(seed=1))
    assert {name for name, _ in shared.trainable()} == {"head.weight", "head.bias"}
    trunk = sum(p.numel() for p in policy.model.base_model.parameters())
    assert sum(p.numel() for p in own.parameters()) == trunk + 32 + 1
    assert dict(own.trainable()).keys() == dict(own.named_parameters()).keys()


def test_contradictions_are_named() -> None:
    values = {"run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}
    with pytest.raises(ConfigError, match=r"mini_batches = 9 .*prompts_per_step = 2"):
        parse(PpoRecipe, values, ["ppo.prompts_per_step=2", "loss.mini_batches=9"])
    with pytest.raises(ConfigError, match=r"ppo\.lam = 1\.5"):
        parse(PpoRecipe, values, ["ppo.lam=1.5"])
