"""What the oracle says of process reward models in the gradient: exact, over every group there is."""

from typing import Any

import pytest
import torch
from groupwise_lab.oracle.token_advantages import by_number, by_steps, by_tree, by_turns, by_worth, token_rewards
from groupwise_lab.oracle.toys import Dials, Toy, toy
from groupwise_lab.oracle.world import random_logits

from groupwise.algorithms.step_advantages import EqualState, ProcessGae, ProcessMin, TurnReturn

PROVEN = {"rtol": 0, "atol": 1e-12}


def models(one: Toy) -> dict[str, torch.Tensor]:
    perfect = one.world.values(one.theta)
    errors = random_logits(one.world, "any", spread=5.0)[:, 0]
    return {"perfect": perfect, "random": errors, "inverted": 1 - perfect, "zero": torch.zeros_like(perfect)}


def worth(lam: float) -> ProcessGae:
    return ProcessGae(kind="process_gae", lam=lam)


@pytest.fixture
def one() -> Toy:
    return toy(Dials(), 3, 2, 2, rewards="graded")


def test_no_process_reward_model_bends_the_gradient_at_lambda_one(one: Toy, measure: Any) -> None:
    for values in models(one).values():
        found = measure(one, advantage=by_worth(one.world, values, worth(1.0)))
        torch.testing.assert_close(found.mean, found.truth, **PROVEN)


def test_a_wrong_model_bends_it_below_lambda_one_and_a_right_one_only_takes_out_noise(one: Toy, measure: Any) -> None:
    found = {
        (name, lam): measure(one, advantage=by_worth(one.world, models(one)[name], worth(lam)))
        for name in ("perfect", "inverted")
        for lam in (1.0, 0.0)
    }
    assert (found["inverted", 0.0].mean - found["inverted", 0.0].truth).norm() > 0.01
    assert found["perfect", 1.0].noise < found["inverted", 1.0].noise


def test_a_group_that_is_its_own_critic_is_unbiased_at_lambda_one(measure: Any) -> None:
    one = toy(Dials(), 2, 2, 4, rewards="graded")
    found = measure(one, advantage=by_tree(one.world, 1.0))
    torch.testing.assert_close(found.mean, found.truth, **PROVEN)


def test_a_completion_in_its_own_value_would_bend_it(measure: Any) -> None:
    one = toy(Dials(), 2, 2, 4, rewards="graded")
    found = measure(one, advantage="group_mean")
    assert (found.mean - found.truth).norm() > 0.01


def test_the_worst_step_counts_what_the_model_likes(one: Toy, measure: Any) -> None:
    for name, values in models(one).items():
        least = ProcessMin(kind="process_min")
        found = measure(one, advantage=by_worth(one.world, values, least))
        is_right = torch.allclose(found.mean, found.truth, rtol=0, atol=1e-9)
        assert is_right == (name == "zero")


def test_turns_against_others_whole_returns_are_unbiased(measure: Any) -> None:
    """Every token is a turn, and the policy decides whether there is another; the truth is ∇ of the expected sum."""
    one = toy(Dials(), 3, 2, 2)  # a length whose reciprocal is exact
    paid = token_rewards(one)
    one = one._replace(world=one.world.paying(paid.sum(-1, keepdim=True)))
    whole = measure(one, advantage=by_turns(one.world, paid, TurnReturn(kind="turn_return")))
    torch.testing.assert_close(whole.mean, whole.truth, **PROVEN)
    level = measure(one, advantage=by_turns(one.world, paid, EqualState(kind="equal_state", weight=0.0)))
    torch.testing.assert_close(level.mean, level.truth, **PROVEN)
    for biased in (by_number(one.world, paid), by_steps(one.world, paid)):
        assert measure(one, advantage=biased).bias > 0.1
