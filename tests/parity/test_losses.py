"""Loss and every parameter's gradient equal TRL's, in two updates on the same completions."""

from typing import Any, NamedTuple

import pytest
import torch
from parity_batch import TOLERANCE, Batch, assert_equal, gap, gradients_of, reference_of

from groupwise.models.policy import Policy

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

HIGH = 0.28
GSPO = {"policy": {"kind": "sequence_ratio", "clip_low": 0.01, "clip_high": 0.02}}
GSPO_TRL = {"importance_sampling_level": "sequence", "epsilon": 0.01, "epsilon_high": 0.02}
CISPO = {"policy": {"kind": "clipped_weight", "clip_low": 1.0, "clip_high": 0.5}, "aggregation": "token"}
DAPO = {"policy": {"clip_high": HIGH}, "aggregation": "token"}
DAPO_TRL = {"loss_type": "dapo", "epsilon_high": HIGH}
DR_GRPO_TRL = {"loss_type": "dr_grpo", "scale_rewards": "none"}


class Case(NamedTuple):
    """One setting in the words of both sides."""

    ours: dict[str, Any]
    theirs: dict[str, Any]
    normalised: bool = True
    """Whether advantages are divided by the group's standard deviation."""
    noise: float = 0.0


CASES = {
    "grpo": Case({"aggregation": "sequence"}, {"loss_type": "grpo"}),
    "dapo": Case(DAPO, DAPO_TRL),
    "dr_grpo": Case({}, DR_GRPO_TRL, normalised=False),
    "cispo": Case(CISPO, {"loss_type": "cispo", "epsilon_high": 1.5}),
    "sapo": Case(
        {"policy": {"kind": "soft_gate", "tau_pos": 1.5, "tau_neg": 2.0}, "aggregation": "sequence"},
        {"loss_type": "sapo", "sapo_temperature_pos": 1.5, "sapo_temperature_neg": 2.0},
    ),
    "gspo": Case(
        {"aggregation": "sequence"} | GSPO, {"loss_type": "grpo"} | GSPO_TRL
    ),
    "gspo by token": Case(
        {"aggregation": "token"} | GSPO, {"loss_type": "dapo"} | GSPO_TRL
    ),
    "gspo, constant": Case(GSPO, DR_GRPO_TRL | GSPO_TRL, normalised=False),
    "dual clip": Case(DAPO | {"policy": {"clip_high": HIGH, "dual_clip": 1.4}}, DAPO_TRL | {"delta": 1.4}),
    "kl": Case(DAPO | {"kl_coef": 0.3}, DAPO_TRL | {"beta": 0.3, "use_bias_correction_kl": False}),
    "kl, corrected": Case(DAPO | {"kl_coef": 0.3, "kl_corrected": True}, DAPO_TRL | {"beta": 0.3}),
    "kl in grpo": Case(
        {"aggregation": "sequence", "kl_coef": 0.3, "kl_corrected": True}, {"loss_type": "grpo", "beta": 0.3}
    ),
    "kl in cispo": Case(
        CISPO | {"kl_coef": 0.3},
        {"loss_type": "cispo", "epsilon_high": 1.5, "beta": 0.3, "use_bias_correction_kl": False},
    ),
    "masked": Case(DAPO | {"truncated": "mask"}, DAPO_TRL | {"mask_truncated_completions": True}),
    **{
        f"importance, {level}, {bound}": Case(
            {"correction": {"level": level, "bound": bound, "cap": 1.5}, "kl_coef": 0.3, "kl_corrected": True} | DAPO,
            {"vllm_importance_sampling_mode": f"{level}_{bound}", "vllm_importance_sampling_clip_max": 1.5}
            | {"use_vllm": True, "beta": 0.3} | DAPO_TRL,
            noise=0.3,
        )
        for level in ("token", "sequence")
        for bound in ("truncate", "mask")
    },
}  # fmt: skip


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_trls(batch: Batch, ours: Any, theirs: Any, name: str, micro_batches: int) -> None:
    case = CASES[name]
    advantage = "group_normalised_sample" if case.normalised else "group_mean"
    given = batch._replace(noise=case.noise)
    budget = 4096 if micro_batches == 1 else 40
    found = ours(given, advantage, epochs=2, tokens_per_micro_batch=budget, **case.ours)
    expected = theirs(given, micro_batches=micro_batches, num_iterations=2, **case.theirs)
    assert_equal(found, expected)
    assert name == "sapo" or found.metrics.clipped > 0.05
    assert bool(found.metrics.weights_bounded) == name.startswith("importance")


def test_temperature(batch: Batch, ours: Any, theirs: Any) -> None:
    found = ours(batch, epochs=2, temperature=0.7)
    assert_equal(found, theirs(batch, num_iterations=2, temperature=0.7, **DR_GRPO_TRL))


def test_two_mini_batches_twice(batch: Batch, ours: Any, theirs: Any) -> None:
    found = ours(batch, epochs=2, mini_batches=2)
    expected = theirs(batch, num_iterations=2, mini_batches=2, micro_batches=2, **DR_GRPO_TRL)
    assert len(found.gradients) == 4
    assert_equal(found, expected)


def test_tolerance_is_the_distance_of_either_side_from_double_precision(
    batch: Batch, ours: Any, theirs: Any, policy: Policy, eager_logprobs: Any
) -> None:
    case = CASES["kl"]
    found = ours(batch, "group_normalised_sample", **case.ours), theirs(batch, **case.theirs)
    prompts = [policy.tokenizer(text)["input_ids"] for text in batch.prompts for _ in range(4)]
    pairs = list(zip(prompts, batch.rows, strict=True))
    model, logprobs, _ = eager_logprobs(policy, pairs)
    log_ratio = eager_logprobs(reference_of(policy), pairs)[1] - logprobs
    rewards = torch.tensor(batch.parts[0], dtype=torch.float64)
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    of_tokens = advantages.flatten().repeat_interleave(torch.tensor([len(ids) for ids in batch.rows]))
    kl = log_ratio.exp() - log_ratio - 1
    ((0.3 * kl - of_tokens * logprobs).sum() / batch.num_tokens).backward()
    distances = [gap(one.gradients[0], gradients_of(model)) for one in found]
    print(f"ours {distances[0]:.1e}, TRL's {distances[1]:.1e}")
    assert max(distances) < TOLERANCE
