"""What the record says of an update is what the update computed."""

from collections.abc import Callable

import numpy as np
import pytest

from groupwise.models.policy import Policy
from groupwise.training.config import LossConfig
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.training.tokens import UpdateTrace, per_token
from groupwise.training.update import Updater, update_policy
from groupwise.types import (
    AdvantagedGroup,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    Verdict,
)

TOKENS = ([50, 51, 52, 1], [60, 61, 62])
MASK = np.array([True, False, True, True])


def groups_of(policy: Policy) -> list[AdvantagedGroup]:
    """Two groups on the policy's own log-probabilities; the second has no signal."""
    made = []
    for name, advantages in (("p", (0.5, -0.5)), ("q", (0.0, 0.0))):
        prompt = Prompt(Problem(name, "?", ""), "?", (40, 41))
        masks = (MASK, np.ones(3, np.bool_))
        bare = [
            Completion(i, np.array(ids), np.zeros(len(ids), np.float32), None, FinishReason.LENGTH, "x", mask)
            for i, (ids, mask) in enumerate(zip(TOKENS, masks, strict=True))
        ]
        [arrays] = per_token(
            [Group(prompt, tuple(bare), 0, 0)], lambda pack: policy.token_logprobs(pack).logprobs, 4096, policy.device
        )
        own = tuple(
            Completion(c.sample_index, c.token_ids, logprobs, None, c.finish_reason, "x", c.sampled)
            for c, logprobs in zip(bare, arrays, strict=True)
        )
        verdict = Verdict(Outcome.WRONG, {"accuracy": 0.0}, "")
        scored = ScoredGroup(Group(prompt, own, 0, 0), (verdict, verdict))
        made.append(AdvantagedGroup(scored, tuple(np.where(m, a, 0.0) for m, a in zip(masks, advantages, strict=True))))
    return made


def updated(policy: Policy, reference: Policy | None = None, **loss: object) -> tuple[UpdateTrace, list[Group]]:
    config, trace, groups = LossConfig.model_validate(loss), UpdateTrace(), groups_of(policy)
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(lr=0.01), 10)
    update_policy(Updater(policy, optimizer, config, 1.0, 8, reference), groups, 0, trace)
    return trace, [group.scored.group for group in groups]


def test_one_update_has_ratio_one_and_the_trainers_own_denominator(tiny_policy: Callable[..., Policy]) -> None:
    trace, [first, _] = updated(tiny_policy())
    assert set(trace.completions) == {(0, 0), (0, 1)}  # the group without a gradient was never computed
    for (_, index), one in trace.completions.items():
        completion = first.completions[index]
        assert one.old == "trainer"
        assert (one.ratio == 1).all()
        assert (one.bound == 0).all()
        assert one.trainer_logprobs is not None
        assert np.allclose(one.trainer_logprobs, completion.sampling_logprobs[completion.sampled], atol=1e-5)
        assert one.loss_weight == pytest.approx(1 / (4 * 8))
        assert (one.kl, one.ref_logprobs, one.importance) == (None, None, None)
    assert len(trace.grad_norms) == 1


def test_later_updates_are_kept_with_the_bounds_that_held(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    before = UpdateTrace(), groups_of(policy)
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(lr=0.05), 10)
    config = LossConfig.model_validate({"epochs": 3, "policy": {"clip_low": 0.01, "clip_high": 0.01}})
    update_policy(Updater(policy, optimizer, config, 1.0, 8), before[1], 0, before[0])
    trace = before[0]
    assert len(trace.grad_norms) == 3
    assert trace.num_low + trace.num_high > 0
    for (group, index), one in trace.completions.items():
        assert one.old == "sampler"
        assert one.trainer_logprobs is not None
        advantage = float(np.max(before[1][group].advantages[index])) or -0.5
        for ratio, bound in zip(one.ratio.tolist(), one.bound.tolist(), strict=True):
            high = advantage > 0 and ratio > 1.01
            low = advantage < 0 and ratio < 0.99
            assert bound == (2 if high else 1 if low else 0)


def test_the_kl_is_that_of_the_update(tiny_policy: Callable[..., Policy]) -> None:
    trace, _ = updated(tiny_policy(), tiny_policy(seed=1).freeze(), kl_coef=0.1)
    assert len(trace.completions) == 4  # with a term for all, no group is skipped
    for one in trace.completions.values():
        assert one.kl is not None
        assert one.ref_logprobs is not None
        assert one.trainer_logprobs is not None
        log_ratio = (one.ref_logprobs - one.trainer_logprobs).astype(np.float64)
        assert np.allclose(one.kl, np.exp(log_ratio) - 1 - log_ratio, rtol=1e-4, atol=1e-6)
        assert (one.kl > 0).any()
