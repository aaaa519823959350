"""Advantages of tokens, process supervision and GAE: by hand, against explicit sums, and their limits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.advantages import advantage, gae, step_advantages
from groupwise.algorithms.step_advantages import Process

Steps = list[list[tuple[int, float]]]
"""Of every completion its steps: number of tokens up to and with its last one, and reward."""


def supervised(steps: Steps, lengths: list[int]) -> list[list[float]]:
    rewards = [torch.tensor([reward for _, reward in one], dtype=torch.float64) for one in steps]
    ends = [torch.tensor([end for end, _ in one], dtype=torch.long) for one in steps]
    return [found.tolist() for found in Process(kind="process").of_steps(rewards, ends, lengths)]


def slow_process(steps: Steps, lengths: list[int]) -> list[list[float]]:
    """A_it = sum of (r - mean(R)) / std(R) over the steps j of completion i whose last index is >= t."""
    every = [reward for one in steps for _, reward in one]
    centre = math.fsum(every) / len(every)
    std = math.sqrt(math.fsum((reward - centre) ** 2 for reward in every) / len(every))
    found = []
    for one, length in zip(steps, lengths, strict=True):
        tokens = []
        for t in range(length):
            tokens.append(math.fsum((reward - centre) / (std + 1e-4) for end, reward in one if end - 1 >= t))
        found.append(tokens)
    return found


@st.composite
def step_rewards(draw: st.DrawFn) -> tuple[Steps, list[int]]:
    """Completions of 1 to 8 tokens with 0 to 3 steps each, at least two different rewards among them."""
    steps, lengths = [], []
    for number in range(draw(st.integers(1, 4))):
        length = draw(st.integers(2, 8))
        ends = sorted(draw(st.sets(st.integers(1, length), min_size=2 * (number == 0), max_size=3)))
        steps.append([(end, draw(st.integers(-4, 4)) / 4) for end in ends])
        lengths.append(length)
    steps[0][0] = (steps[0][0][0], steps[0][1][1] + 1.0)
    return steps, lengths


def test_process_supervision_by_hand() -> None:
    # rewards 1, 0, 0, 1, 1, 0, 1, 0: mean 1/2, std 1/2, so that steps count +1 and -1
    steps = [[(2, 1.0), (3, 0.0), (5, 0.0)], [(1, 1.0), (4, 1.0)], [(2, 0.0)], [(1, 1.0), (3, 0.0)], []]
    expected = [[-1, -1, -2, -1, -1, 0], [2, 1, 1, 1], [-1, -1, 0], [0, -1, -1], [0, 0]]
    assert supervised(steps, [6, 4, 3, 3, 2]) == [pytest.approx(row, abs=1e-3) for row in expected]


@given(step_rewards())
def test_process_supervision_equals_the_equation_as_a_loop(case: tuple[Steps, list[int]]) -> None:
    steps, lengths = case
    expected = slow_process(steps, lengths)
    assert supervised(steps, lengths) == [pytest.approx(row, abs=1e-9) for row in expected]


@given(step_rewards())
def test_a_token_differs_from_the_next_by_the_reward_of_the_step_that_ends_there(case: tuple[Steps, list[int]]) -> None:
    steps, lengths = case
    for one, row in zip(steps, supervised(steps, lengths), strict=True):
        ends = {end for end, _ in one}
        last = max(ends, default=0)
        assert row[last:] == [0.0] * (len(row) - last)
        for t in range(len(row) - 1):
            if t + 1 not in ends:
                assert row[t] == pytest.approx(row[t + 1], abs=1e-12)


@given(st.lists(st.integers(0, 4).map(lambda n: n / 4), min_size=1, max_size=8))
def test_one_outcome_at_the_end_is_group_normalised(rewards: list[float]) -> None:
    lengths = list(range(1, len(rewards) + 1))
    found = supervised([[(length, reward)] for length, reward in zip(lengths, rewards, strict=True)], lengths)
    (outcome,) = step_advantages([rewards], [[[reward] for reward in rewards]], advantage("group_normalised"))
    assert found == [pytest.approx([advantage] * length) for length, advantage in zip(lengths, outcome, strict=True)]


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_steps_of_equal_reward_and_none_at_all_are_exactly_zero(reward: float) -> None:
    assert supervised([[(1, reward), (2, reward)], [(3, reward)]], [2, 4]) == [[0.0] * 2, [0.0] * 4]
    assert supervised([[], []], [2, 4]) == [[0.0] * 2, [0.0] * 4]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_the_dtype_is_kept(reward: float) -> None:
    rewards = torch.tensor([0.0, reward], dtype=torch.float64)
    (found,) = Process(kind="process").of_steps([rewards], [torch.tensor([1, 2])], [2])
    assert found.dtype is torch.float64
    assert gae(torch.ones(3), torch.ones(3), 1.0, 1.0).dtype is torch.float32


def test_completions_and_their_steps_must_match() -> None:
    with pytest.raises(ValueError, match="shorter"):
        supervised([[(1, 0.0)], [(1, 1.0)]], [1])


NUMBERS = st.floats(-3, 3)
EPISODES = st.integers(1, 8).flatmap(
    lambda T: st.tuples(st.lists(NUMBERS, min_size=T, max_size=T), st.lists(NUMBERS, min_size=T, max_size=T))
)
Episode = tuple[list[float], list[float]]
SHARES = st.floats(0, 1)


def fast(episode: Episode, gamma: float, lam: float) -> list[float]:
    rewards, values = (torch.tensor(numbers, dtype=torch.float64) for numbers in episode)
    return gae(rewards, values, gamma, lam).tolist()


def test_gae_by_hand() -> None:
    # with gamma 1/2: errors 1 + 1 - 3 = -1, 0 + 2 - 2 = 0, 2 - 4 = -2; each step back multiplies by 1/4
    assert fast(([1.0, 0.0, 2.0], [3.0, 2.0, 4.0]), 0.5, 0.5) == [-1.125, -0.5, -2.0]


@given(EPISODES, SHARES, SHARES)
def test_gae_equals_its_double_sum(episode: Episode, gamma: float, lam: float) -> None:
    rewards, values = episode
    after = [*values[1:], 0.0]
    expected = []
    for t in range(len(rewards)):
        terms = []
        for later in range(t, len(rewards)):
            error = rewards[later] + gamma * after[later] - values[later]
            terms.append((gamma * lam) ** (later - t) * error)
        expected.append(math.fsum(terms))
    assert fast(episode, gamma, lam) == pytest.approx(expected, abs=1e-9)


@given(EPISODES, SHARES)
def test_gae_of_lambda_one_is_return_minus_value(episode: Episode, gamma: float) -> None:
    rewards, values = episode
    steps = range(len(rewards))
    returns = [math.fsum(gamma ** (later - t) * rewards[later] for later in steps[t:]) for t in steps]
    expected = [future - value for future, value in zip(returns, values, strict=True)]
    assert fast(episode, gamma, 1.0) == pytest.approx(expected, abs=1e-9)


@given(EPISODES, SHARES)
def test_gae_of_lambda_zero_is_the_one_step_error(episode: Episode, gamma: float) -> None:
    rewards, values = episode
    expected = [r + gamma * later - now for r, now, later in zip(rewards, values, [*values[1:], 0.0], strict=True)]
    assert fast(episode, gamma, 0.0) == pytest.approx(expected, abs=1e-9)


@given(EPISODES, SHARES)
def test_a_perfect_critic_leaves_no_advantage(episode: Episode, lam: float) -> None:
    rewards, _ = episode
    to_come = [math.fsum(rewards[t:]) for t in range(len(rewards))]
    assert fast((rewards, to_come), 1.0, lam) == pytest.approx([0.0] * len(rewards), abs=1e-9)


@given(EPISODES, EPISODES, SHARES, SHARES)
def test_gae_does_not_look_back(episode: Episode, other: Episode, gamma: float, lam: float) -> None:
    joined = (other[0] + episode[0], other[1] + episode[1])
    assert fast(joined, gamma, lam)[len(other[0]) :] == pytest.approx(fast(episode, gamma, lam), abs=1e-12)
