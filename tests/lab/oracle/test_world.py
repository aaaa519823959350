"""The toy world itself: what is called exact must be."""

from itertools import product

import pytest
import torch
from groupwise_lab.oracle.toys import EASY, HARD, MEDIUM, Dials, toy
from groupwise_lab.oracle.world import STOP, num_sequences, random_logits

from groupwise.errors import ConfigError

SIZES = pytest.mark.parametrize(("num_tokens", "max_length"), [(2, 1), (2, 4), (3, 3), (5, 2)])


@SIZES
def test_sequences_are_all_that_can_be_sampled(num_tokens: int, max_length: int) -> None:
    world = toy(Dials(), num_tokens, max_length).world
    expected = set()
    for tokens in product(range(num_tokens), repeat=max_length):
        end = tokens.index(STOP) + 1 if STOP in tokens else max_length
        expected.add(tokens[:end])
    assert set(world.sequences) == expected
    assert len(world.sequences) == len(expected) == num_sequences(num_tokens, max_length)
    assert [bool(cut) for cut in world.truncated] == [STOP not in sequence for sequence in world.sequences]


@SIZES
def test_probabilities_sum_to_one(num_tokens: int, max_length: int) -> None:
    one = toy(Dials(), num_tokens, max_length, num_prompts=2)
    torch.testing.assert_close(one.world.probabilities(one.theta).sum(-1), torch.ones(2, dtype=torch.float64))


def test_the_true_gradient_equals_finite_differences() -> None:
    one = toy(Dials(), 3, 2, num_prompts=2, rewards="graded")
    found, step = torch.zeros_like(one.theta), 1e-6
    for place in product(*map(range, one.theta.shape)):
        nudge = torch.zeros_like(one.theta)
        nudge[place] = step
        found[place] = (one.world.objective(one.theta + nudge) - one.world.objective(one.theta - nudge)) / (2 * step)
    torch.testing.assert_close(one.world.gradient(one.theta), found, rtol=0, atol=1e-9)


def test_values_are_expected_rewards_given_the_text_so_far() -> None:
    world, theta, _, _ = toy(Dials(), 3, 3, rewards="graded")
    chances, values = world.probabilities(theta)[0], world.values(theta)
    for number, prefix in enumerate(world.prefixes):
        through = [i for i, sequence in enumerate(world.sequences) if sequence[: len(prefix)] == prefix]
        through = [i for i in through if len(world.sequences[i]) > len(prefix)]
        expected = (chances[through] * world.rewards[0, through]).sum() / chances[through].sum()
        assert values[number].item() == pytest.approx(expected.item(), abs=1e-12)


def test_the_same_seed_makes_the_same_world() -> None:
    first, second, other = toy(Dials(seed=1)), toy(Dials(seed=1)), toy(Dials(seed=2))
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.world.parts, second.world.parts)
    assert not torch.equal(first.theta, other.theta)
    assert not torch.equal(random_logits(first.world, "a"), random_logits(first.world, "b"))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rewards", ["binary", "finished"])
def test_pass_rates_are_those_aimed_at(rewards: str, seed: int) -> None:
    assert toy(Dials(seed=seed), rewards=rewards).pass_rates == pytest.approx([MEDIUM], abs=1e-9)
    several = toy(Dials(seed=seed), 2, 2, num_prompts=3, rewards=rewards)
    assert several.pass_rates == pytest.approx([HARD, (HARD + EASY) / 2, EASY], abs=1e-9)


def test_only_finished_completions_are_right_where_asked() -> None:
    world = toy(Dials(), rewards="finished").world
    assert world.truncated.any()
    assert not world.rewards[0, world.truncated].any()


def test_a_world_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match="20 tokens and 9 per completion"):
        toy(Dials(num_tokens=20, max_length=9))
