"""Every loss through model, packing and two updates: the gradient is that of loops over separate eager sequences."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from ragged import MAX_TOKENS, judged, make_groups, pairs_of, run, taken
from torch import Tensor

from groupwise.errors import InvariantError
from groupwise.models.policy import Critic, Policy
from groupwise.training.config import LossConfig
from groupwise.training.micro_batches import make_micro_batches
from groupwise.training.update import CriticLoss
from groupwise.types import AdvantagedGroup, CriticView, FinishReason, ScoredGroup

LOW, HIGH = 0.1, 0.3


def sequence_loss(name: str, new: list[Tensor], old: list[float], advantage: float) -> list[Tensor]:
    """Token losses of one completion, written from each paper with plain numbers; gradients flow through `new`."""
    if name == "reinforce":
        return [-advantage * n for n in new]
    if name == "sequence_ratio":
        s = torch.exp(sum((n - o for n, o in zip(new, old, strict=True)), torch.zeros(())) / len(new))
        bounded = min(max(s.item(), 1 - LOW), 1 + HIGH) * advantage
        return [-(s * advantage if s.item() * advantage <= bounded else torch.tensor(bounded)) for _ in new]
    losses = []
    for n, o in zip(new, old, strict=True):
        rho = math.exp(n.item() - o)
        if name == "clipped_weight":
            losses.append(-min(max(rho, 1 - LOW), 1 + HIGH) * advantage * n)
        else:  # soft_gate: derivative of the gate by the ratio is 4 σ(1 - σ)
            tau = 1.0 if advantage > 0 else 1.05
            sigma = 1 / (1 + math.exp(-tau * (rho - 1)))
            losses.append(-4 * sigma * (1 - sigma) * rho * advantage * n)  # the same slope by log π
    return losses


@pytest.mark.parametrize("budget", [7, 100_000])
@pytest.mark.parametrize("name", ["reinforce", "sequence_ratio", "clipped_weight", "soft_gate"])
def test_two_updates_have_the_gradients_of_the_papers_loops(
    policy: Policy, eager_logprobs: Any, name: str, budget: int
) -> None:
    groups = make_groups(policy)
    epochs = 1 if name == "reinforce" else 2
    dials = {"clip_low": LOW, "clip_high": HIGH} if name in ("sequence_ratio", "clipped_weight") else {}
    _, recorder = run(
        policy, groups, change=0.05, policy={"kind": name, **dials}, epochs=epochs, tokens_per_micro_batch=budget
    )
    assert len(recorder.gradients) == epochs
    rows = judged(groups)
    for number, (trained, found) in enumerate(zip(recorder.policies, recorder.gradients, strict=True)):
        model, logprobs, _ = eager_logprobs(trained, pairs_of(groups))
        pieces = logprobs.split([completion.num_tokens for _, completion, _ in rows])
        total = torch.zeros((), dtype=torch.float64)
        for (_, completion, advantage), piece in zip(rows, pieces, strict=True):
            old = piece.tolist() if number == 0 else completion.sampling_logprobs.tolist()
            total = total + sum(sequence_loss(name, list(piece), old, advantage)) / (len(rows) * MAX_TOKENS)
        total.backward()
        for parameter, gradient in model.named_parameters():
            torch.testing.assert_close(found[parameter].double(), gradient.grad, atol=2e-5, rtol=1e-4)
        assert max(g.abs().max() for g in found.values()) > 1e-3


def test_the_entropy_bonus_has_the_gradient_of_minus_the_entropy(policy: Policy, eager_logprobs: Any) -> None:
    groups = make_groups(policy)
    plain, bonus = (run(policy, groups, entropy_coef=c)[1].gradients[0] for c in (0.0, 0.3))
    rows, pairs = judged(groups), pairs_of(groups)
    model, _, entropy = eager_logprobs(policy, pairs)
    (-0.3 * entropy.sum() / (len(rows) * MAX_TOKENS)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close((bonus[name] - plain[name]).double(), parameter.grad, atol=2e-5, rtol=1e-3)


def test_each_token_takes_its_own_advantage(policy: Policy, eager_logprobs: Any) -> None:
    [group] = make_groups(policy, [(1.0, 0.0)])
    lengths = [completion.num_tokens for completion in group.scored.group.completions]
    advantages = [np.arange(1, n + 1, dtype=np.float32) * sign for n, sign in zip(lengths, (1, -2), strict=True)]
    found = run(policy, [dataclasses.replace(group, advantages=tuple(advantages))])[1].gradients[0]
    rows = judged([group])
    model, logprobs, _ = eager_logprobs(policy, [(p, c.token_ids.tolist()) for p, c, _ in rows])
    (-(logprobs * torch.from_numpy(np.concatenate(advantages))).sum() / (2 * MAX_TOKENS)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name].double(), parameter.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("aggregation", ["constant", "token", "sequence"])
def test_masked_truncated_completions_leave_loss_and_denominator(policy: Policy, aggregation: str) -> None:
    groups = make_groups(policy)
    kept_groups = [
        taken(g, [i for i, c in enumerate(g.scored.group.completions) if c.finish_reason is not FinishReason.LENGTH])
        for g in groups
    ]
    assert sum(len(g.advantages) for g in kept_groups) < sum(len(g.advantages) for g in groups)
    masked = run(policy, groups, truncated="mask", aggregation=aggregation)[1].gradients[0]
    without = run(policy, kept_groups, aggregation=aggregation)[1].gradients[0]
    kept = run(policy, groups, aggregation=aggregation)[1].gradients[0]
    for name in masked:
        torch.testing.assert_close(masked[name], without[name], atol=1e-6, rtol=1e-5)
    assert max((masked[name] - kept[name]).abs().max() for name in masked) > 1e-3


def foreign(groups: Sequence[AdvantagedGroup], seed: int = 0) -> list[AdvantagedGroup]:
    """The same completions as if another engine, whose log-probabilities differ, had sampled them."""
    generator = np.random.default_rng(seed)
    changed = []
    for group in groups:
        inner = group.scored.group
        completions = tuple(
            dataclasses.replace(
                c,
                sampling_logprobs=np.minimum(
                    c.sampling_logprobs + generator.normal(0, 0.5, c.num_tokens).astype(np.float32), -1e-3
                ),
            )
            for c in inner.completions
        )
        scored = ScoredGroup(dataclasses.replace(inner, completions=completions), group.scored.verdicts)
        changed.append(AdvantagedGroup(scored, group.advantages))
    return changed


def test_without_correction_a_foreign_sampler_stops_the_run(policy: Policy) -> None:
    with pytest.raises(InvariantError, match="sampler and trainer disagree"):
        run(policy, foreign(make_groups(policy)))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("bound", ["truncate", "mask"])
def test_correction_weights_every_token_with_trainer_over_sampler(
    policy: Policy, eager_logprobs: Any, level: str, bound: str
) -> None:
    groups = foreign(make_groups(policy))
    correction = {"bound": bound, "level": level, "cap": 1.2}
    metrics, recorder = run(
        policy, groups, change=0.05, correction=correction, epochs=2, policy={"clip_low": LOW, "clip_high": HIGH}
    )
    rows, pairs = judged(groups), pairs_of(groups)
    _, before, _ = eager_logprobs(recorder.policies[0], pairs)
    model, after, _ = eager_logprobs(recorder.policies[1], pairs)
    total, at, bounded, weights_seen = torch.zeros((), dtype=torch.float64), 0, 0, []
    for _, completion, advantage in rows:
        places = range(at, at + completion.num_tokens)
        gaps = [before[i].item() - float(s) for i, s in zip(places, completion.sampling_logprobs, strict=True)]
        for i, gap in zip(places, gaps, strict=True):
            w = math.exp(sum(gaps) if level == "sequence" else gap)
            bounded += w > 1.2
            w = w if w <= 1.2 else (1.2 if bound == "truncate" else 0.0)
            weights_seen.append(w)
            ratio = (after[i] - before[i].item()).exp()
            clipped = min(max(ratio.item(), 1 - LOW), 1 + HIGH) * advantage
            surrogate = ratio * advantage if ratio.item() * advantage <= clipped else torch.tensor(clipped)
            total = total - w * surrogate / (len(rows) * MAX_TOKENS)
        at += completion.num_tokens
    total.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(recorder.gradients[1][name].double(), parameter.grad, atol=2e-5, rtol=1e-3)
    assert metrics.weights_bounded == pytest.approx(bounded / at, abs=1e-6)
    if level == "token":
        size = sum(weights_seen) ** 2 / sum(w * w for w in weights_seen) / at
        assert metrics.effective_samples == pytest.approx(size, rel=1e-4)
    assert 0.1 < metrics.weights_bounded < 0.9


@pytest.mark.parametrize("shared", [True, False])
def test_the_critic_is_trained_on_its_returns(
    policy: Policy, tiny_policy: Callable[..., Policy], eager_logprobs: Any, shared: bool
) -> None:
    groups = make_groups(policy)
    generator = np.random.default_rng(1)
    viewed = [
        dataclasses.replace(
            group,
            critic=tuple(
                CriticView(
                    generator.normal(0, 0.3, c.num_tokens).astype(np.float32),
                    generator.normal(0, 1, c.num_tokens).astype(np.float32),
                )
                for c in group.scored.group.completions
            ),
        )
        for group in groups
    ]
    backbone = policy if shared else tiny_policy(seed=5)
    critic = Critic(policy, None if shared else backbone)
    with torch.no_grad():
        critic.head.weight.copy_(torch.randn(critic.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    with_critic, recorder = run(policy, viewed, critic=CriticLoss(critic, 0.7, 0.2))
    head_gradient = critic.head.weight.grad.clone()
    alone = run(policy, viewed)[1].gradients[0]
    batches = make_micro_batches(viewed, LossConfig(), MAX_TOKENS, policy.device)
    total = torch.zeros(())
    backbone.model.zero_grad(set_to_none=True)
    critic.head.zero_grad(set_to_none=True)
    count = sum(batch.packed.targets.numel() for batch in batches)
    for batch in batches:
        values = critic.head(backbone.completion_states(batch.packed))[:, 0]
        for v, old, target in zip(values, batch.values, batch.returns, strict=True):
            near = min(max(v.item(), old.item() - 0.2), old.item() + 0.2)
            worse = (v - target) ** 2 if (v.item() - target.item()) ** 2 >= (near - target.item()) ** 2 else None
            total = total + 0.5 * (worse if worse is not None else torch.tensor((near - target.item()) ** 2))
    (0.7 * total / count).backward()
    assert with_critic.value_loss == pytest.approx(total.item() / count, rel=1e-4)
    torch.testing.assert_close(head_gradient, critic.head.weight.grad, atol=1e-5, rtol=1e-4)
    changed = max((recorder.gradients[0][name] - alone[name]).abs().max() for name in alone)
    assert (changed > 1e-3) == shared  # a critic of its own leaves the policy's gradient alone


def test_a_critic_without_its_views_is_an_error(policy: Policy) -> None:
    with pytest.raises(InvariantError, match="never computed"):
        run(policy, make_groups(policy), critic=CriticLoss(Critic(policy, None), 1.0, 0.2))
