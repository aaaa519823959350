"""The oracle's own arithmetic: against going through ordered tuples one by one, and against plain sampling."""

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
import torch
from groupwise_lab.oracle.batches import MAX_BATCHES, all_batches, signal_chances
from groupwise_lab.oracle.estimate import Estimated, estimate
from groupwise_lab.oracle.setting import Policies, Setting
from groupwise_lab.oracle.token_advantages import by_steps, token_rewards
from groupwise_lab.oracle.toys import Dials, Toy, toy

from groupwise.algorithms.advantages import advantage
from groupwise.errors import ConfigError

EPS = 1e-4


@pytest.mark.parametrize(
    "setting",
    [
        Setting(3),
        Setting(3, false_positive=0.1, false_negative=0.3),
        Setting(3, dead_groups="again"),
        Setting(3, dead_groups="other"),
    ],
)
def test_probabilities_of_batches_sum_to_one(setting: Setting) -> None:
    one = toy(Dials(), 2, 2, num_prompts=2)
    batches = all_batches(one.world, one.theta, setting)
    assert batches.chances.sum().item() == pytest.approx(1, abs=1e-12)
    assert batches.prompts.shape == batches.sequences.shape == (len(batches.chances), 2, 3)


def test_the_chance_of_a_signal_is_the_binomial_one() -> None:
    one = toy(Dials(), num_prompts=2)
    expected = [1 - rate**4 - (1 - rate) ** 4 for rate in one.pass_rates]
    assert signal_chances(one.world, one.theta, Setting(4)) == pytest.approx(expected, abs=1e-9)


def test_too_many_batches_are_refused_with_their_number() -> None:
    with pytest.raises(ConfigError, match=rf"9,363,600 batches are too many .*at most {MAX_BATCHES:,}"):
        estimate(*_asked(toy(Dials(), num_prompts=2)), Setting(4))


def test_dead_groups_cannot_be_replaced_where_all_are_dead() -> None:
    one = toy(Dials())
    world = one.world.paying(torch.zeros_like(one.world.parts))
    with pytest.raises(ConfigError, match="same reward"):
        all_batches(world, one.theta, Setting(2, dead_groups="again"))


def _asked(one: Toy) -> tuple:
    return one.world, Policies.on_policy(one.theta)


# --- an independent computation: loops over ordered tuples, formulas written out --------------------------------------

Scores = list[list[list[np.ndarray]]]
"""∇ log π of every token of every sequence of every prompt, (K, V) each."""


def scores(one: Toy) -> Scores:
    """By hand: the score of a softmax is one-hot minus probabilities."""
    probabilities, prefixes = one.theta.softmax(-1).numpy(), one.world.prefixes
    found: Scores = []
    for prompt in range(one.world.num_prompts):
        found.append([])
        for tokens in one.world.sequences:
            found[-1].append([])
            for t, token in enumerate(tokens):
                score = np.zeros_like(probabilities)
                state = prompt * len(prefixes) + prefixes.index(tokens[:t])
                score[state] = -probabilities[state]
                score[state, token] += 1
                found[-1][-1].append(score)
    return found


def grpo(one: Toy, score: Scores, batch: Sequence[Sequence[int]]) -> np.ndarray:
    """One batch's GRPO gradient: normalised in the group, each completion's mean over its tokens, mean over all."""
    total = np.zeros(one.theta.shape)
    for prompt, group in enumerate(batch):
        rewards = [reward_of(one, prompt, sequence) for sequence in group]
        mean, std = np.mean(rewards), np.std(rewards)
        for sequence, reward in zip(group, rewards, strict=True):
            total += (reward - mean) / (std + EPS) * sum(score[prompt][sequence]) / len(one.world.sequences[sequence])
    return total / sum(map(len, batch))


def dapo(one: Toy, score: Scores, batch: Sequence[Sequence[int]]) -> np.ndarray:
    """Without the std, divided by the tokens of the batch, truncated completions left out."""
    total, tokens = np.zeros(one.theta.shape), 0
    for prompt, group in enumerate(batch):
        mean = np.mean([reward_of(one, prompt, sequence) for sequence in group])
        for sequence in group:
            if one.world.sequences[sequence][-1] == 0:
                tokens += len(one.world.sequences[sequence])
                total += (reward_of(one, prompt, sequence) - mean) * sum(score[prompt][sequence])
    return total / max(tokens, 1)


def process(one: Toy, score: Scores, batch: Sequence[Sequence[int]]) -> np.ndarray:
    """Process supervision, every token a step, constant denominator."""
    total, steps = np.zeros(one.theta.shape), token_rewards(one)
    for prompt, group in enumerate(batch):
        earned = [steps[prompt, s, : len(one.world.sequences[s])].tolist() for s in group]
        pool = [reward for one_of in earned for reward in one_of]
        mean, std = np.mean(pool), np.std(pool)
        for sequence, rewards in zip(group, earned, strict=True):
            for t, gradient in enumerate(score[prompt][sequence]):
                total += sum((reward - mean) / (std + EPS) for reward in rewards[t:]) * gradient
    return total / sum(map(len, batch))


def reward_of(one: Toy, prompt: int, sequence: int) -> float:
    return one.world.rewards[prompt, sequence].item()


def mean_length(one: Toy) -> float:
    return float((one.world.probabilities(one.theta) * one.world.lengths).sum(-1).mean())


def brute_force(one: Toy, gradient: Callable[..., np.ndarray]) -> tuple[np.ndarray, float]:
    """Mean, and mean square, over all ordered tuples of completions."""
    chances, score = one.world.probabilities(one.theta).tolist(), scores(one)
    P, G = one.world.num_prompts, one.group_size
    mean, square = np.zeros(one.theta.shape), 0.0
    for drawn in product(range(len(one.world.sequences)), repeat=P * G):
        batch = [drawn[p * G : (p + 1) * G] for p in range(P)]
        chance = math.prod(chances[p][sequence] for p, group in enumerate(batch) for sequence in group)
        found = gradient(one, score, batch)
        mean += chance * found
        square += chance * float((found**2).sum())
    return mean, square


def agrees(found: Estimated, mean: np.ndarray, square: float, factor: float) -> None:
    np.testing.assert_allclose(found.mean, factor * mean, rtol=0, atol=1e-7)  # token weights are fp32
    variance = factor**2 * (square - (mean**2).sum()) / found.truth.square().sum().item()
    assert found.variance == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize(
    ("gradient", "setting"),
    [
        (grpo, {"advantage": advantage("group_normalised"), "aggregation": "sequence"}),
        (dapo, {"advantage": advantage("group_mean"), "aggregation": "token", "truncated": "mask"}),
    ],
)
@pytest.mark.parametrize(("G", "P"), [(4, 1), (2, 2)])
def test_equals_going_through_ordered_tuples(gradient: Callable, setting: dict, G: int, P: int) -> None:
    one = toy(Dials(), 2, 3, G, P, rewards="graded")
    found = estimate(*_asked(one), Setting(G, **setting))
    agrees(found, *brute_force(one, gradient), factor=mean_length(one))


def test_process_supervision_equals_going_through_ordered_tuples() -> None:
    one = toy(Dials(), 2, 3, 3, rewards="graded")
    found = estimate(*_asked(one), Setting(3, by_steps(one.world, token_rewards(one))))
    agrees(found, *brute_force(one, process), factor=1.0)


def test_equals_sampling() -> None:
    # 3,000 batches drawn token by token; every entry within 4 standard errors, the variance within 10 %
    one = toy(Dials(), 3, 2, 3, 2)
    found = estimate(*_asked(one), Setting(3, advantage("group_normalised"), aggregation="sequence"))
    generator, score, drawn = np.random.default_rng(0), scores(one), []
    cumulated, length = one.theta.softmax(-1).cumsum(-1).numpy(), mean_length(one)
    for _ in range(3000):
        batch = [[sample(one, prompt, cumulated, generator) for _ in range(3)] for prompt in range(2)]
        drawn.append(grpo(one, score, batch) * length)
    samples = np.stack(drawn)
    errors = samples.std(0, ddof=1) / math.sqrt(len(samples))
    assert (abs(samples.mean(0) - found.mean.numpy()) <= 4 * errors + 1e-12).all()
    variance = samples.var(0).sum() / found.truth.square().sum().item()
    assert variance == pytest.approx(found.variance, rel=0.1)


def sample(one: Toy, prompt: int, cumulated: np.ndarray, generator: np.random.Generator) -> int:
    tokens: tuple[int, ...] = ()
    while len(tokens) < one.world.max_length and (not tokens or tokens[-1] != 0):
        state = prompt * len(one.world.prefixes) + one.world.prefixes.index(tokens)
        tokens += (int(np.searchsorted(cumulated[state], generator.random() * cumulated[state, -1])),)
    return one.world.sequences.index(tokens)
