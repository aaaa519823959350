"""What the oracle says of advantages: exact facts, in closed form where there is one."""

import math
from collections.abc import Callable
from itertools import product
from statistics import fmean, pstdev, stdev
from typing import Any

import groupwise_lab.oracle.token_advantages as token_advantages
import pytest
import torch
from groupwise_lab.oracle.sections import OF_REWARDS
from groupwise_lab.oracle.token_advantages import by_critic, by_outcome, part_scales
from groupwise_lab.oracle.toys import Dials, Toy, toy
from groupwise_lab.oracle.world import random_logits

from groupwise.algorithms.advantages import ADVANTAGES, gae
from groupwise.algorithms.step_advantages import Process

EPS = 1e-4
EXACT = {"rtol": 0, "atol": 1e-9}
BASELINES = {"none": 1.0, "leave_one_out": 1.0, "group_mean": 3 / 4, "batch_mean": 7 / 8}
"""Scale at 2 prompts of 4 completions."""


def two_prompts(rewards: Any = "binary") -> Toy:
    return toy(Dials(), 2, 2, 4, 2, rewards)


def test_a_baseline_keeps_the_direction(measure: Any) -> None:
    for rewards, (name, scale) in product(("binary", "graded"), BASELINES.items()):
        found = measure(two_prompts(rewards), advantage=name)
        torch.testing.assert_close(found.mean, scale * found.truth, **EXACT)


def test_a_baseline_takes_out_noise(measure: Any) -> None:
    # the two have the same mean, so their noise compares
    one = toy(Dials(), rewards="graded")
    assert measure(one, advantage="leave_one_out").noise < measure(one, advantage="none").noise


def test_one_prompt_with_binary_rewards_keeps_its_direction_whatever_the_advantage(measure: Any) -> None:
    for name in OF_REWARDS:
        assert measure(toy(Dials(), 3, 2), advantage=name).cosine == pytest.approx(1, abs=1e-9)
    assert measure(toy(Dials(), 3, 2, rewards="graded"), advantage="group_normalised").cosine < 0.999


def normalised(values: list[float], std: Callable[[list[float]], float] = pstdev) -> list[float]:
    """Zero for equal values, and with an epsilon, as the estimators have it."""
    return [(v - fmean(values)) / (std(values) + EPS) if len(set(values)) > 1 else 0.0 for v in values]


def flat(groups: list[list[float]]) -> list[float]:
    return [value for group in groups for value in group]


def parts_normalised(groups: list[list[float]]) -> list[list[float]]:
    own = [normalised(group) for group in groups]
    return [[v / (pstdev(flat(own)) + EPS) for v in group] for group in own]


FORMULAS: dict[str, Callable[[list[list[float]]], list[list[float]]]] = {
    "none": lambda groups: groups,
    "batch_mean": lambda groups: [[v - fmean(flat(groups)) for v in group] for group in groups],
    "batch_normalised": lambda groups: [
        [(v - fmean(flat(groups))) / (pstdev(flat(groups)) + EPS) for v in group] for group in groups
    ],
    "batch_std": lambda groups: [
        [(v - fmean(group)) / (pstdev(flat(groups)) + EPS) for v in group] for group in groups
    ],
    "group_mean": lambda groups: [[v - fmean(group) for v in group] for group in groups],
    "group_normalised": lambda groups: [normalised(group) for group in groups],
    "group_normalised_sample": lambda groups: [normalised(group, stdev) for group in groups],
    "leave_one_out": lambda groups: [[v - (sum(group) - v) / (len(group) - 1) for v in group] for group in groups],
    "divided_by_mean": lambda groups: [
        [(v - fmean(group)) / fmean(group) if any(group) else 0.0 for v in group] for group in groups
    ],
    "parts_normalised": parts_normalised,
}


def weights(rates: list[float], G: int, formula: Callable[[list[list[float]]], list[list[float]]]) -> list[float]:
    """Scale of each prompt's gradient for rewards 0 and 1, by sums over how many are right in each group.

    E[∇ log π | right] = ∇p / p and E[∇ log π | wrong] = -∇p / (1 - p), so only counts matter.
    """
    total = [0.0] * len(rates)
    for counts in product(range(G + 1), repeat=len(rates)):
        chance = math.prod(
            math.comb(G, k) * rate**k * (1 - rate) ** (G - k) for k, rate in zip(counts, rates, strict=True)
        )
        advantages = formula([[1.0] * k + [0.0] * (G - k) for k in counts])
        for prompt, (k, rate) in enumerate(zip(counts, rates, strict=True)):
            right, wrong = sum(advantages[prompt][:k]), sum(advantages[prompt][k:])
            total[prompt] += chance * (right / rate - wrong / (1 - rate)) / G
    return total


def test_weights_of_prompts_in_closed_form(measure: Any) -> None:
    one = two_prompts()
    assert list(FORMULAS) == OF_REWARDS
    for name, formula in FORMULAS.items():
        found = measure(one, advantage=name).scales(2)
        assert found == pytest.approx(weights(one.pass_rates, 4, formula), abs=1e-9), name


def test_std_and_mean_weight_hard_prompts_more(measure: Any) -> None:
    one = toy(Dials(), 2, 2, 8, 2)
    for name in ("group_normalised", "group_normalised_sample", "divided_by_mean"):
        found = measure(one, advantage=name)
        hard, easy = found.scales(2)
        assert hard > 1.1 * easy
        assert found.cosine < 0.999


def test_dividing_by_the_mean_is_the_gradient_of_a_truncated_log_likelihood(measure: Any) -> None:
    # -Σ (1 - p)^k / k over k < G, whose slope in p is (1 - (1 - p)^(G-1)) / p
    one = two_prompts()
    expected = [(1 - (1 - p) ** 3) / p for p in one.pass_rates]
    assert measure(one, advantage="divided_by_mean").scales(2) == pytest.approx(expected, abs=1e-9)


def test_normalised_parts_lose_their_weight(measure: Any) -> None:
    one = toy(Dials(), 3, 2, rewards="parts")
    heavier = one._replace(world=one.world.paying(one.world.parts * torch.tensor([1.0, 10.0], dtype=torch.float64)))
    for name, ratio in (("parts_normalised", 1.0), ("group_mean", 10.0)):
        right, form = part_scales(one, measure(one, advantage=name))
        more_right, more_form = part_scales(one, measure(heavier, advantage=name))
        assert more_right == pytest.approx(right, rel=2e-3)  # the epsilon beside a std of 0.1 and one of 1
        assert more_form == pytest.approx(ratio * form, rel=2e-3)


def test_errors_of_the_verifier_scale_the_gradient(measure: Any) -> None:
    one = toy(Dials(), 3, 2)
    for name, (fp, fn) in product(("none", "leave_one_out"), ((0.1, 0.0), (0.0, 0.2), (0.2, 0.3), (0.5, 0.5))):
        found = measure(one, advantage=name, false_positive=fp, false_negative=fn)
        torch.testing.assert_close(found.mean, (1 - fp - fn) * found.truth, **EXACT)


def test_errors_of_the_verifier_cost_noise(measure: Any) -> None:
    one = toy(Dials(), 3, 2)
    noise = [measure(one, false_positive=rate, false_negative=rate).noise for rate in (0.0, 0.1, 0.2, 0.3)]
    assert noise == sorted(noise)
    assert noise[-1] > 2 * noise[0]


def test_redrawing_a_dead_group_weights_its_prompt(measure: Any) -> None:
    one = two_prompts()
    signal = [1 - p**4 - (1 - p) ** 4 for p in one.pass_rates]
    for name in ("group_mean", "group_normalised", "divided_by_mean"):
        kept = measure(one, advantage=name).scales(2)
        expected = [scale / chance for scale, chance in zip(kept, signal, strict=True)]
        assert measure(one, advantage=name, dead_groups="again").scales(2) == pytest.approx(expected, abs=1e-9)
    assert measure(one, dead_groups="again").cosine < 0.95


def test_groups_of_other_prompts_in_place_of_dead_ones_only_scale(measure: Any) -> None:
    one = two_prompts()
    signal = fmean(1 - p**4 - (1 - p) ** 4 for p in one.pass_rates)
    for name in ("group_mean", "group_normalised", "divided_by_mean"):
        found = measure(one, advantage=name, dead_groups="other")
        torch.testing.assert_close(found.mean, measure(one, advantage=name).mean / signal, **EXACT)


def test_one_step_per_completion_is_group_normalised(measure: Any) -> None:
    one = two_prompts("graded")
    found = measure(one, advantage=by_outcome(one.world))
    torch.testing.assert_close(found.mean, measure(one, advantage="group_normalised").mean, **EXACT)
    assert found.variance == pytest.approx(measure(one, advantage="group_normalised").variance)


def critics(one: Toy) -> dict[str, torch.Tensor]:
    perfect = one.world.values(one.theta)
    return {
        "perfect": perfect,
        "poor": perfect + random_logits(one.world, "critic")[:, 0],
        "zero": torch.zeros_like(perfect),
    }


def test_lambda_one_is_unbiased_whatever_the_critic_says(measure: Any) -> None:
    one = toy(Dials(), 3, 2, 2, rewards="graded")
    for values in critics(one).values():
        found = measure(one, advantage=by_critic(one.world, values, 1.0, 1.0))
        torch.testing.assert_close(found.mean, found.truth, **EXACT)


def test_a_perfect_critic_is_unbiased_at_any_lambda_and_takes_out_noise(measure: Any) -> None:
    one = toy(Dials(), 3, 2, 2, rewards="graded")
    found = [measure(one, advantage=by_critic(one.world, critics(one)["perfect"], 1.0, lam)) for lam in (1.0, 0.5, 0.0)]
    for each in found:
        torch.testing.assert_close(each.mean, each.truth, **EXACT)
    noise = [each.noise for each in found]
    assert noise == sorted(noise, reverse=True)
    assert noise[0] < measure(one, advantage=by_critic(one.world, critics(one)["zero"], 1.0, 1.0)).noise


def test_without_critic_lambda_zero_credits_the_last_token_alone(measure: Any) -> None:
    one = toy(Dials(), 3, 2, 2, rewards="graded")
    found = measure(one, advantage=by_critic(one.world, critics(one)["zero"], 1.0, 0.0))
    leaf = one.theta.clone().requires_grad_()
    last = one.world.token_logprobs(leaf).gather(-1, (one.world.lengths - 1)[None, :, None])[..., 0]
    surrogate = (one.world.probabilities(one.theta) * one.world.rewards * last).sum(-1).mean()
    torch.testing.assert_close(found.mean, torch.autograd.grad(surrogate, leaf)[0], **EXACT)
    assert found.bias > 0.05


FLIPPED = {
    "none": test_a_baseline_keeps_the_direction,
    "leave_one_out": test_a_baseline_keeps_the_direction,
    "group_mean": test_a_baseline_keeps_the_direction,
    "batch_mean": test_a_baseline_keeps_the_direction,
    "group_normalised": test_one_step_per_completion_is_group_normalised,
    "divided_by_mean": test_dividing_by_the_mean_is_the_gradient_of_a_truncated_log_likelihood,
    **dict.fromkeys(
        ("group_normalised_sample", "batch_std", "batch_normalised", "parts_normalised"),
        test_weights_of_prompts_in_closed_form,
    ),
}


@pytest.mark.parametrize("name", OF_REWARDS)
def test_a_flipped_sign_is_seen(name: str, measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = ADVANTAGES.find(name)
    right = estimator.__call__
    monkeypatch.setattr(estimator, "__call__", lambda self, groups: [-found for found in right(self, groups)])
    with pytest.raises(AssertionError):
        FLIPPED[name](measure)


def test_a_flipped_sign_of_token_advantages_is_seen(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_advantages, "gae", lambda *given: -gae(*given))
    right = Process.of_steps
    monkeypatch.setattr(Process, "of_steps", lambda *given: [-a for a in right(*given)])
    for fact in (
        test_lambda_one_is_unbiased_whatever_the_critic_says,
        test_one_step_per_completion_is_group_normalised,
    ):
        with pytest.raises(AssertionError):
            fact(measure)
