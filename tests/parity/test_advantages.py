"""Advantages from TRL's own generation step beside ours; where TRL takes another standard deviation, by how much."""

from typing import Any

import pytest
import torch
from parity_batch import Batch
from torch import Tensor

from groupwise.algorithms.advantages import STD_EPS

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]


def trl_step(trainer: Any, batch: Batch) -> dict[str, Tensor]:
    """TRL's generation step: rewards, advantages, old log-probabilities."""
    trainer.model.train()
    rows = [{"prompt": text} for text, row in zip(batch.prompts, batch.completions, strict=True) for _ in row]
    found: dict[str, Tensor] = trainer._generate_and_score_completions(rows)
    return found


def flat(groups: Any) -> Tensor:
    """Advantages of all completions; 0 where the verifier failed."""
    return torch.tensor([0.0 if one is None else float(one[0]) for group in groups for one in group.advantages])


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found.float(), expected, atol=2e-6, rtol=1e-6)


def std_share(rewards: Tensor, **dims: int) -> Tensor:
    """(population std + ε) / (sample std + ε): TRL divides by the latter."""
    return (rewards.std(correction=0, **dims) + STD_EPS) / (rewards.std(correction=1, **dims) + STD_EPS)


@pytest.mark.parametrize(
    ("scale", "advantage"), [("group", "group_normalised_sample"), ("none", "group_mean"), ("batch", "batch_std")]
)
def test_advantages_and_old_logprobs(
    batch: Batch, our_groups: Any, trl_trainer: Any, scale: str, advantage: str
) -> None:
    found = trl_step(trl_trainer(batch, scale_rewards=scale, num_iterations=2), batch)
    groups = our_groups(batch, advantage)
    factor = std_share(torch.tensor(batch.parts[0])) if scale == "batch" else 1.0
    assert_close(flat(groups) * factor, found["advantages"])
    completions = [one for group in groups for one in group.scored.group.completions]
    for completion, row in zip(completions, found["old_per_token_logps"], strict=True):
        ours = torch.from_numpy(completion.sampling_logprobs)
        torch.testing.assert_close(ours, row[: completion.num_tokens], atol=2e-5, rtol=0.0)


def test_the_population_std_of_grpos_paper(batch: Batch, our_groups: Any, trl_trainer: Any) -> None:
    found = trl_step(trl_trainer(batch, scale_rewards="group"), batch)["advantages"]
    factors = std_share(torch.tensor(batch.parts[0]), dim=1).repeat_interleave(4)
    assert_close(flat(our_groups(batch, "group_normalised")) * factors, found)


def test_gdpo_here_takes_weights_away(batch: Batch, our_groups: Any, trl_trainer: Any) -> None:
    second = [(0.0, 1.0, 1.0, 2.0), (1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0), (0.0, 3.0, 0.0, 3.0)]
    two = batch._replace(parts=[batch.parts[0], second])
    settings = {"multi_objective_aggregation": "normalize_then_sum"}
    found = trl_step(trl_trainer(two, **settings), two)["advantages"]
    ours = flat(our_groups(two, "parts_normalised"))
    torch.testing.assert_close(ours * (15 / 16) ** 0.5, found, atol=1e-3, rtol=0.0)  # ε beside two different stds
    weighted = trl_step(trl_trainer(two, reward_weights=[1.0, 3.0], **settings), two)["advantages"]
    assert (weighted - found).abs().max() > 0.1


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_rloo_with_its_kl_in_the_reward(batch: Batch, our_groups: Any, trl_trainer: Any, beta: float) -> None:
    found = trl_step(trl_trainer(batch, "RLOO", beta=beta), batch)["advantages"]
    penalty = {"kl_in": "reward", "kl_coef": beta, "kl_estimator": "k1"} if beta else {}
    groups = our_groups(batch, "leave_one_out", **penalty)
    assert bool(flat(groups)[4:8].any()) == (beta > 0)  # the group without signal
    torch.testing.assert_close(flat(groups), found, atol=1e-5, rtol=1e-5)


def test_a_failed_verifier_is_no_part_of_the_statistics(batch: Batch, our_groups: Any, trl_trainer: Any) -> None:
    failed = batch._replace(parts=[[(None, *row[1:]) for row in batch.parts[0]]])
    found = trl_step(trl_trainer(failed), failed)["advantages"]
    groups = our_groups(failed, "group_normalised_sample")
    assert all(group.advantages[0] is None for group in groups)
    assert_close(flat(groups), found)


def test_equal_rewards_are_exact_zeros_here_and_rounding_there(batch: Batch, our_groups: Any, trl_trainer: Any) -> None:
    rows = batch.rows
    eights = batch._replace(
        prompts=batch.prompts[:2], completions=[rows[:8], rows[8:]], parts=[[(0.9,) * 8, (0.0, 1.0) * 4]]
    )
    found = trl_step(trl_trainer(eights), eights)["advantages"]
    ours = flat(our_groups(eights, "group_normalised_sample"))
    assert_close(ours[8:], found[8:])
    assert not ours[:8].any()
    assert found[:8].abs().max().item() == pytest.approx(2**-24 / STD_EPS, rel=0.01)  # one rounding of 0.9, over ε
