"""What the oracle says of stale samples and of a foreign sampler."""

import math
from collections.abc import Callable
from typing import Any

import groupwise_lab.oracle.estimate as estimate_module
import pytest
import torch
from groupwise_lab.oracle.circumstances import NO_BOUNDS, updated
from groupwise_lab.oracle.setting import Policies
from groupwise_lab.oracle.toys import Dials, Toy, toy
from torch import Tensor

from groupwise.algorithms.importance import importance_weights
from groupwise.algorithms.policy_losses import POLICY_LOSSES, ClippedRatio, PolicyLoss, policy_loss

EXACT = {"rtol": 0, "atol": 1e-9}
TOKEN_RATIOS = ("clipped_ratio", "clipped_weight")


def unbounded(kind: str) -> PolicyLoss:
    """The loss with no bound where it has bounds."""
    dials = {"clip_low": 1.0, "clip_high": math.inf, "tau_pos": 1.0}
    read = POLICY_LOSSES.settings(kind).model_fields.keys() & dials.keys()
    return policy_loss(kind, **{dial: dials[dial] for dial in read})


def stale(one: Toy) -> Policies:
    """Sampled by a policy some way off."""
    old = one.logits("older", 0.4)
    return Policies(one.theta, old, old)


SURROGATES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "reinforce": lambda new, old, lengths: new.sum(-1),
    "clipped_ratio": lambda new, old, lengths: (new - old).exp().sum(-1),
    "clipped_weight": lambda new, old, lengths: ((new - old).exp().detach() * new).sum(-1),
    "sequence_ratio": lambda new, old, lengths: lengths * ((new - old).sum(-1) / lengths).exp(),
    "soft_gate": lambda new, old, lengths: (4 * torch.sigmoid((new - old).exp() - 1)).sum(-1),
}
"""Of each sequence, without bounds and for positive advantages; beyond a sequence's end both logprobs are 0."""


def test_token_ratios_ignore_the_prefix(measure: Any) -> None:
    # E = Σ π_old(y) R(y) ∇ surrogate(y): none of them has the ratio of the text before the token
    one = toy(Dials(), 3, 2, rewards="graded")
    policies = stale(one)
    assert SURROGATES.keys() == POLICY_LOSSES.table.keys()
    for name, surrogate in SURROGATES.items():
        found = measure(one, policies, advantage="none", policy_loss=unbounded(name))
        leaf = one.theta.clone().requires_grad_()
        new, old = one.world.token_logprobs(leaf), one.world.token_logprobs(policies.old)
        weights = one.world.probabilities(policies.sampler) * one.world.rewards
        expected = torch.autograd.grad((weights * surrogate(new, old, one.world.lengths)).sum(), leaf)[0]
        torch.testing.assert_close(found.mean, expected, **EXACT)
        assert found.bias > 0.01, name


def test_with_one_token_the_ratio_is_exact_and_reinforce_is_not(measure: Any) -> None:
    one = toy(Dials(), 4, 1, rewards="graded")
    policies = stale(one)
    for name in TOKEN_RATIOS:
        found = measure(one, policies, advantage="leave_one_out", policy_loss=unbounded(name))
        torch.testing.assert_close(found.mean, found.truth, **EXACT)
    assert measure(one, policies, advantage="leave_one_out", policy_loss="reinforce").bias > 0.1


def test_inside_the_bounds_clipping_changes_nothing(measure: Any) -> None:
    one = toy(Dials(), 3, 2)
    old = one.theta + 0.05 * (one.logits("older", 1.0) - one.theta)
    policies = Policies(one.theta, old, old)
    free = measure(one, policies, policy_loss=NO_BOUNDS)
    for name in TOKEN_RATIOS:
        found = measure(one, policies, policy_loss=name)
        assert found.clipped == 0
        torch.testing.assert_close(found.mean, free.mean, **EXACT)


def test_bounds_that_bite_cost_the_ratio_its_direction_and_the_weight_only_length(measure: Any) -> None:
    one = toy(Dials())
    policies = updated(one, "large")
    ratio, weight = (measure(one, policies, advantage="leave_one_out", policy_loss=name) for name in TOKEN_RATIOS)
    assert ratio.clipped > 0.1
    assert weight.clipped > 0.1
    assert ratio.cosine < 0.5
    assert weight.cosine > 0.95
    loss = policy_loss("clipped_ratio", clip_low=0, clip_high=0)
    tight = measure(one, policies, advantage="leave_one_out", policy_loss=loss)
    assert tight.clipped > ratio.clipped


def foreign(one: Toy) -> Policies:
    """The policy on its own but for the sampler."""
    return Policies(one.theta, one.theta, one.logits("sampler", 0.7))


def test_sequence_weights_without_a_cap_are_unbiased_and_token_weights_are_not(measure: Any) -> None:
    one = toy(Dials(), 3, 2, rewards="graded")
    given = {"advantage": "leave_one_out", "correction": "truncate", "correction_cap": math.inf}
    found = measure(one, foreign(one), correction_level="sequence", **given)
    torch.testing.assert_close(found.mean, found.truth, **EXACT)
    assert measure(one, foreign(one), correction_level="token", **given).bias > 0.01
    assert measure(one, foreign(one), advantage="leave_one_out").bias > 0.05


def test_with_one_token_token_weights_are_unbiased(measure: Any) -> None:
    one = toy(Dials(), 4, 1, rewards="graded")
    found = measure(one, foreign(one), advantage="leave_one_out", correction="truncate", correction_cap=math.inf)
    torch.testing.assert_close(found.mean, found.truth, **EXACT)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_lower_cap_trades_variance_for_bias(level: str, measure: Any) -> None:
    one = toy(Dials(), 3, 2)
    given = {"advantage": "leave_one_out", "correction_level": level}
    caps = (math.inf, 1.6, 1.4, 1.2, 1.0)
    found = [measure(one, foreign(one), correction="truncate", correction_cap=cap, **given) for cap in caps]
    bias, variance = [each.bias for each in found], [each.variance for each in found]
    assert bias == sorted(bias)
    assert variance == sorted(variance, reverse=True)
    assert bias[-1] > bias[0] + 0.05
    assert variance[-1] < 0.7 * variance[0]
    masked = measure(one, foreign(one), correction="mask", correction_cap=1.2, **given)
    assert masked.bias > found[3].bias  # what is masked teaches nothing at all


def test_inverted_importance_weights_are_seen(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def inverted(old: Tensor, sampling: Tensor, *given: Any) -> Any:
        return importance_weights(sampling, old, *given)

    monkeypatch.setattr(estimate_module, "importance_weights", inverted)
    for fact in (
        test_sequence_weights_without_a_cap_are_unbiased_and_token_weights_are_not,
        test_with_one_token_token_weights_are_unbiased,
    ):
        with pytest.raises(AssertionError):
            fact(measure)


def test_an_inverted_ratio_is_seen(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ClippedRatio.__call__

    def inverted(self: ClippedRatio, logprobs: Tensor, old: Tensor, *given: Any) -> Any:
        found = right(self, 2 * logprobs.detach() - logprobs, 2 * logprobs.detach() - old, *given)  # ρ -> 1/ρ
        return found._replace(loss=-found.loss)

    monkeypatch.setattr(ClippedRatio, "__call__", inverted)
    with pytest.raises(AssertionError):
        test_with_one_token_the_ratio_is_exact_and_reinforce_is_not(measure)
