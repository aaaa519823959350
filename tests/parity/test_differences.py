"""Where the same words mean something else on the two sides, and the factor or the setting between them."""

from typing import Any

import pytest
from parity_batch import MAX_TOKENS, TOLERANCE, VISIBLE, Batch, assert_equal, gap

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

DR_GRPO = {"loss_type": "dr_grpo", "scale_rewards": "none"}
DAPO = {"loss_type": "dapo", "scale_rewards": "none"}
GRPO = {"loss_type": "grpo", "scale_rewards": "none"}
CISPO = {"kind": "clipped_weight", "clip_low": 1.0, "clip_high": 0.2}


def single_tokens(batch: Batch) -> Batch:
    """The batch with every completion cut to its first token."""
    return batch._replace(completions=[[ids[:1] for ids in group] for group in batch.completions])


@pytest.mark.parametrize(("aggregation", "theirs_is"), [("sequence", GRPO), ("constant", DR_GRPO)])
def test_masked_completions_stay_in_trls_denominator(
    batch: Batch, ours: Any, theirs: Any, aggregation: str, theirs_is: dict[str, Any]
) -> None:
    found = ours(batch, truncated="mask", aggregation=aggregation, epochs=2)
    expected = theirs(batch, mask_truncated_completions=True, num_iterations=2, **theirs_is)
    assert_equal(found, expected, factor=12 / 16)  # 4 of 16 are cut off


def test_trl_reads_truncation_from_the_last_token(batch: Batch, ours: Any, theirs: Any) -> None:
    first, *others = batch.completions
    padding = [[[*ids[:-1], 0] if len(ids) == MAX_TOKENS else ids for ids in first], *others]
    expected = theirs(batch._replace(completions=padding), mask_truncated_completions=True, **DAPO)
    found = ours(batch._replace(completions=padding), truncated="mask", aggregation="token")
    assert gap(found.gradients[0], expected.gradients[0]) > VISIBLE  # the sampler says that the limit ended it
    told = ours(batch._replace(completions=padding, stops=frozenset({0, 1})), truncated="mask", aggregation="token")
    assert_equal(told, expected)


@pytest.mark.parametrize(("aggregation", "theirs_is", "share"), [("token", DAPO, None), ("constant", DR_GRPO, 12 / 16)])
def test_failed_verdicts_stay_in_trls_denominator(
    batch: Batch, ours: Any, theirs: Any, aggregation: str, theirs_is: dict[str, Any], share: float
) -> None:
    failed = batch._replace(parts=[[(None, *row[1:]) for row in batch.parts[0]]])
    judged = sum(len(ids) for group in batch.completions for ids in group[1:])
    found = ours(failed, aggregation=aggregation, epochs=2)
    expected = theirs(failed, num_iterations=2, **theirs_is)
    assert_equal(found, expected, factor=share or judged / batch.num_tokens)


def test_trl_divides_every_mini_batch_by_the_mean_number_of_tokens(batch: Batch, ours: Any, theirs: Any) -> None:
    found = ours(batch, aggregation="token", mini_batches=2)
    expected = theirs(batch, mini_batches=2, **DAPO)
    counts = [
        sum(len(ids) for group in half for ids in group) for half in (batch.completions[:2], batch.completions[2:])
    ]
    assert counts[0] != counts[1]
    for mine, other, count in zip(found.gradients, expected.gradients, counts, strict=True):
        assert gap(mine, other, factor=count / (batch.num_tokens / 2)) < TOLERANCE


def test_trl_cuts_mini_batches_across_groups(batch: Batch, ours: Any, theirs: Any) -> None:
    found = ours(batch, mini_batches=2)
    in_order, shuffled = (theirs(batch, mini_batches=2, shuffled=s, **DR_GRPO) for s in (False, True))
    assert gap(found.gradients[0], in_order.gradients[0]) < TOLERANCE
    assert gap(found.gradients[0], shuffled.gradients[0]) > VISIBLE


def test_bnpo_is_a_token_mean_of_each_micro_batch(batch: Batch, ours: Any, theirs: Any) -> None:
    found = ours(batch, aggregation="token", tokens_per_micro_batch=40)
    bnpo = {"loss_type": "bnpo", "scale_rewards": "none"}
    assert_equal(found, theirs(batch, **bnpo))
    accumulated = theirs(batch, micro_batches=4, **bnpo)
    assert gap(found.gradients[0], accumulated.gradients[0]) > VISIBLE


def test_luspo_is_sequence_ratio_times_the_token_limit(batch: Batch, ours: Any, theirs: Any) -> None:
    luspo = {"loss_type": "luspo", "scale_rewards": "none", "importance_sampling_level": "sequence"}
    found = ours(batch, policy="sequence_ratio", epochs=2, tokens_per_micro_batch=40)
    assert_equal(found, theirs(batch, micro_batches=4, num_iterations=2, **luspo), factor=MAX_TOKENS)


def test_cispos_epsilon_high_is_the_cap_itself(batch: Batch, ours: Any, theirs: Any) -> None:
    cispo = {"loss_type": "cispo", "scale_rewards": "none"}
    found = ours(batch, policy=CISPO, aggregation="token", epochs=2)
    assert_equal(found, theirs(batch, epsilon_high=1.2, num_iterations=2, **cispo))
    first = ours(batch, policy=CISPO, aggregation="token")
    assert_equal(first, theirs(batch, **cispo), factor=0.2)  # TRL's default caps every weight at 0.2


def test_delta_below_the_upper_bound_also_bounds_positive_advantages(batch: Batch, ours: Any, theirs: Any) -> None:
    half = {"epsilon_high": 0.5, "num_iterations": 2} | DR_GRPO
    assert_equal(ours(batch, policy={"clip_high": 0.5, "dual_clip": 1.5}, epochs=2), theirs(batch, delta=1.5, **half))
    found = ours(batch, policy={"clip_high": 0.5, "dual_clip": 1.1}, epochs=2)
    assert gap(found.gradients[1], theirs(batch, delta=1.1, **half).gradients[1]) > VISIBLE


def test_trls_entropy_bonus_is_a_mean_over_tokens_whatever_the_loss(batch: Batch, ours: Any, theirs: Any) -> None:
    by_token = ours(batch, aggregation="token", entropy_coef=0.3, epochs=2)
    assert_equal(by_token, theirs(batch, entropy_coef=0.3, num_iterations=2, **DAPO))
    factor = 16 * MAX_TOKENS / batch.num_tokens
    assert_equal(
        ours(batch, entropy_coef=0.3 * factor, epochs=2), theirs(batch, entropy_coef=0.3, num_iterations=2, **DR_GRPO)
    )
    accumulated = theirs(batch, entropy_coef=0.3, micro_batches=4, num_iterations=2, **DAPO)
    assert gap(by_token.gradients[0], accumulated.gradients[0]) > VISIBLE  # a mean of the micro-batches' means


def test_trl_corrects_kl_with_the_sequence_ratio_in_gspo(batch: Batch, ours: Any, theirs: Any) -> None:
    mine = {"policy": "sequence_ratio", "kl_coef": 0.3, "kl_corrected": True, "epochs": 2}
    other = {"importance_sampling_level": "sequence", "beta": 0.3, "num_iterations": 2} | DR_GRPO
    assert_equal(ours(single_tokens(batch), **mine), theirs(single_tokens(batch), **other))
    assert gap(ours(batch, **mine).gradients[1], theirs(batch, **other).gradients[1]) > VISIBLE


def test_importance_correction_defaults(batch: Batch, ours: Any, theirs: Any) -> None:
    foreign = batch._replace(noise=0.3)
    correction = {"level": "sequence", "bound": "mask", "cap": 3.0}
    assert_equal(
        ours(foreign, correction=correction, epochs=2), theirs(foreign, use_vllm=True, num_iterations=2, **DR_GRPO)
    )


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("policy_loss", ["reinforce", "clipped_ratio", "sequence_ratio"])
def test_rloo_on_policy_sums_over_tokens(batch: Batch, ours: Any, theirs: Any, policy_loss: str, beta: float) -> None:
    penalty = {"kl_in": "reward", "kl_coef": beta, "kl_estimator": "k1"} if beta else {}
    found = ours(batch, "leave_one_out", policy=policy_loss, **penalty)
    for micro_batches in (1, 4):
        expected = theirs(batch, "RLOO", beta=beta, micro_batches=micro_batches)
        assert gap(found.gradients[0], expected.gradients[0], factor=MAX_TOKENS) < TOLERANCE


def test_rloo_off_policy_clips_the_product_of_ratios(batch: Batch, ours: Any, theirs: Any) -> None:
    short = single_tokens(batch)
    expected = theirs(short, "RLOO", num_iterations=2), theirs(batch, "RLOO", num_iterations=2)
    for policy_loss in ("clipped_ratio", "sequence_ratio"):
        mine = {"policy": policy_loss, "epochs": 2}
        assert_equal(ours(short, "leave_one_out", **mine), expected[0], factor=MAX_TOKENS)
        found = ours(batch, "leave_one_out", **mine)
        assert gap(found.gradients[1], expected[1].gradients[1], factor=MAX_TOKENS) > VISIBLE
