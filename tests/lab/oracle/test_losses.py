"""What the oracle says of policy losses on-policy, aggregations and truncation, in closed form."""

from collections import defaultdict
from typing import Any

import pytest
import torch
from groupwise_lab.oracle.toys import Dials, Toy, toy
from torch import Tensor

from groupwise.algorithms.objective import AGGREGATIONS
from groupwise.algorithms.policy_losses import POLICY_LOSSES

EXACT = {"rtol": 0, "atol": 1e-9}
FP32 = {"rtol": 0, "atol": 1e-7}
"""Token weights are fp32."""


def test_all_losses_agree_on_policy(measure: Any) -> None:
    one = toy(Dials(), 3, 2, rewards="graded")
    for name in POLICY_LOSSES.table:
        found = measure(one, advantage="leave_one_out", policy_loss=name)
        torch.testing.assert_close(found.mean, found.truth, **EXACT)


def gradient_of(one: Toy, amounts: Tensor) -> Tensor:
    """∇ of the expectation of any amount (P, S) of each sequence."""
    return one.world.paying(amounts[..., None]).gradient(one.theta)


def mean_length(one: Toy) -> float:
    return float((one.world.probabilities(one.theta) * one.world.lengths).sum(-1).mean())


def test_aggregations_in_closed_form(measure: Any) -> None:
    one = toy(Dials(), 3, 3, rewards="graded")
    world, J, m = one.world, one.pass_rates[0], mean_length(one)
    found = {name: measure(one, advantage="none", aggregation=name) for name in AGGREGATIONS}
    torch.testing.assert_close(found["constant"].mean, found["constant"].truth, **FP32)
    per_token = gradient_of(one, world.rewards / world.lengths)
    torch.testing.assert_close(found["sequence"].mean, m * per_token, **FP32)
    less = m * (per_token - J * gradient_of(one, 1 / world.lengths[None].double()))  # the baseline is biased too
    torch.testing.assert_close(measure(one, advantage="leave_one_out", aggregation="sequence").mean, less, **FP32)
    shares = sum(
        chance * gradient_of(one, world.rewards / (world.lengths + others))
        for others, chance in lengths_of_others(one, one.group_size - 1).items()
    )
    torch.testing.assert_close(found["token"].mean, m * one.group_size * shares, **FP32)


def lengths_of_others(one: Toy, number: int) -> dict[int, float]:
    """Distribution of the sum of that many lengths."""
    found = {0: 1.0}
    for _ in range(number):
        longer: dict[int, float] = defaultdict(float)
        for so_far, chance in found.items():
            for length, more in zip(one.world.lengths.tolist(), one.world.probabilities(one.theta)[0], strict=True):
                longer[so_far + length] += chance * more.item()
        found = longer
    return found


def test_the_bias_of_tokens_is_small_beside_that_of_sequences(measure: Any) -> None:
    one = toy(Dials(), 3, 3)
    constant, token, sequence = (
        measure(one, advantage="leave_one_out", aggregation=name).cosine for name in ("constant", "token", "sequence")
    )
    assert constant == pytest.approx(1, abs=1e-9)
    assert 0.995 < token < 1 - 1e-5
    assert sequence < 0.98


def test_dividing_by_length_punishes_long_wrong_answers_less(measure: Any) -> None:
    # of two wrong completions the longer one is pushed down less than the truth asks for
    one = toy(Dials(), 2, 2)
    world = one.world.paying(torch.tensor([[[0.0], [0.0], [1.0]]]).double())  # sequences: stop; 1 stop; 1 1
    one = one._replace(world=world)
    logits = [measure(one, advantage="leave_one_out", aggregation=name).mean for name in ("constant", "sequence")]
    short, long = ([gradient[0, 0].item(), gradient[1, 0].item()] for gradient in logits)
    assert short[0] < 0
    assert short[1] < 0
    assert long[1] / long[0] < short[1] / short[0]


def test_masking_truncated_completions_without_baseline_only_scales(measure: Any) -> None:
    # kept ones are samples of the finished; dividing by their number divides by their chance
    one = toy(Dials(), 3, 2, rewards="finished")
    cut = float((one.world.probabilities(one.theta) * one.world.truncated).sum())
    found = measure(one, advantage="none", truncated="mask")
    torch.testing.assert_close(found.mean, found.truth * (1 - cut**4) / (1 - cut), **FP32)


def test_masking_truncated_completions_pushes_away_from_finishing(measure: Any) -> None:
    one = toy(Dials(), 3, 2, rewards="finished")
    kept = measure(one, advantage="leave_one_out", truncated="keep")
    torch.testing.assert_close(kept.mean, kept.truth, **EXACT)
    masked = measure(one, advantage="leave_one_out", truncated="mask")
    finish = gradient_of(one, (~one.world.truncated)[None].double())
    basis = torch.stack([masked.truth.flatten(), finish.flatten()], 1)
    solved = torch.linalg.lstsq(basis, masked.mean.flatten()[:, None])
    torch.testing.assert_close(basis @ solved.solution, masked.mean.flatten()[:, None], **FP32)
    reward, finishing = solved.solution[:, 0].tolist()
    assert reward > 0.5
    assert finishing < -0.1


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES.table))
def test_a_flipped_sign_of_a_loss_is_seen(name: str, measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = POLICY_LOSSES.find(name)
    right = loss.__call__

    def flipped(*given: Any) -> Any:
        found = right(*given)
        return found._replace(loss=-found.loss)

    monkeypatch.setattr(loss, "__call__", flipped)
    with pytest.raises(AssertionError):
        test_all_losses_agree_on_policy(measure)


@pytest.mark.parametrize("name", sorted(AGGREGATIONS))
def test_another_denominator_is_seen(name: str, measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AGGREGATIONS, name, lambda lengths, batch: 1 / (batch.num_tokens + lengths.float()))
    with pytest.raises(AssertionError):
        test_aggregations_in_closed_form(measure)
