"""Tokens that were put in are read and nothing else: no gradient, and no part of any count, mean or denominator."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.algorithms.advantages import advantage
from groupwise.models.policy import Critic, Policy
from groupwise.trainers.grpo import advantaged
from groupwise.trainers.report import Seconds, StepResult, ledger_group, step_report
from groupwise.training.config import LossConfig
from groupwise.training.micro_batches import make_micro_batches
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
from groupwise.verifiers.scoring import score
from groupwise.verifiers.unjudged import Unjudged

MAX_TOKENS = 12
PROMPT = (40, 41, 42)
TOKENS = [[50, 51, 52, 53, 54, 1], [60, 61, 62], [70, 71, 72, 73]]
MASKS = [[True, False, False, True, True, True], [True, True, True], [False, True, True, False]]
REWARDS = (1.0, 0.0, 0.5)
ADVANTAGES = (0.5, -0.5, 0.0)


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return tiny_policy()


def completions_of(policy: Policy, masks: Sequence[Sequence[bool]] = MASKS) -> tuple[Completion, ...]:
    """The completions, with the policy's own log-probabilities where they count as sampled."""
    made = []
    for i, (ids, mask) in enumerate(zip(TOKENS, masks, strict=True)):
        reason = FinishReason.STOP if ids[-1] == 1 else FinishReason.LENGTH
        zeros = np.zeros(len(ids), np.float32)
        made.append(Completion(i, np.array(ids), zeros, zeros + 9, reason, "x", np.array(mask)))
    prompt = Prompt(Problem("p", "?", ""), "?", PROMPT)
    [arrays] = per_token(
        [Group(prompt, tuple(made), 0, 0)], lambda pack: policy.token_logprobs(pack).logprobs, 4096, policy.device
    )
    assert all(len(array) == len(ids) for array, ids in zip(arrays, TOKENS, strict=True))
    return tuple(dataclasses.replace(one, sampling_logprobs=array) for one, array in zip(made, arrays, strict=True))


def group_of(policy: Policy, masks: Sequence[Sequence[bool]] = MASKS) -> AdvantagedGroup:
    prompt = Prompt(Problem("p", "?", ""), "?", PROMPT)
    verdicts = tuple(Verdict(Outcome.WRONG, {"r": r}, "") for r in REWARDS)
    scored = ScoredGroup(Group(prompt, completions_of(policy, masks), 0, 0), verdicts)
    return advantaged([scored], advantage("group_mean"), policy)[0]


class Recorder:
    """Keeps each update's gradient, and moves the weights a little."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.gradients = policy, list[dict[str, Tensor]]()

    def update(self, step: int) -> float:
        named = dict(self.policy.model.named_parameters())
        self.gradients.append({name: p.grad.clone() for name, p in named.items()})
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in named.values():
                parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
        self.policy.model.zero_grad(set_to_none=True)
        return 1.0


def run(policy: Policy, reference: Policy | None = None, **config: Any) -> tuple[Any, list[dict[str, Tensor]]]:
    recorder = Recorder(policy)
    updater = Updater(policy, recorder, LossConfig(**config), 1.0, MAX_TOKENS, reference)  # type: ignore[arg-type]
    return update_policy(updater, [group_of(policy)], step=0), recorder.gradients


def kept(values: Tensor) -> list[Tensor]:
    """Values of all tokens, cut into completions and reduced to those that were sampled."""
    pieces = values.split([len(ids) for ids in TOKENS])
    return [piece[torch.tensor(mask)] for piece, mask in zip(pieces, MASKS, strict=True)]


def assert_equal(ours: dict[str, Tensor], model: Any) -> None:
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name].double(), parameter.grad, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("aggregation", ["constant", "token", "sequence"])
def test_denominators_and_gradients_are_those_of_the_sampled_tokens(
    policy: Policy, eager_logprobs: Any, aggregation: str
) -> None:
    model, logprobs, _ = eager_logprobs(policy, [(PROMPT, ids) for ids in TOKENS])
    terms = [(-a * piece).sum() for a, piece in zip(ADVANTAGES, kept(logprobs), strict=True)]
    lengths = [4, 3, 2]
    shares = {
        "constant": [3 * MAX_TOKENS] * 3,
        "token": [sum(lengths)] * 3,
        "sequence": [3 * length for length in lengths],
    }[aggregation]
    sum(term / share for term, share in zip(terms, shares, strict=True)).backward()
    metrics, gradients = run(policy, aggregation=aggregation)
    assert_equal(gradients[0], model)
    assert metrics.num_tokens == 9


def test_the_sequence_ratio_is_over_the_sampled_tokens(policy: Policy, eager_logprobs: Any) -> None:
    group = group_of(policy)
    old = [one.sampling_logprobs[one.sampled] for one in group.scored.group.completions]
    recorder = Recorder(policy)
    loss = LossConfig.model_validate(
        {"policy": {"kind": "sequence_ratio", "clip_low": 0.9, "clip_high": 9.0}, "epochs": 2}
    )
    update_policy(Updater(policy, recorder, loss, 1.0, MAX_TOKENS), [group], step=0)  # type: ignore[arg-type]
    # the second update's weights are those that the recorder left after the first: undo the second move
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter -= 0.02 * torch.randn(parameter.shape, generator=generator)
    model, logprobs, _ = eager_logprobs(policy, [(PROMPT, ids) for ids in TOKENS])
    total = torch.zeros((), dtype=torch.float64)
    for piece, before, a in zip(kept(logprobs), old, ADVANTAGES, strict=True):
        ratio = torch.exp((piece - torch.tensor(before)).sum() / len(piece))
        total = total - a * ratio * len(piece) / (3 * MAX_TOKENS)
    total.backward()
    assert_equal(recorder.gradients[1], model)


def test_kl_and_entropy_are_means_over_the_sampled_tokens(
    policy: Policy, tiny_policy: Any, eager_logprobs: Any
) -> None:
    reference = tiny_policy(seed=3).freeze()
    model, logprobs, entropy = eager_logprobs(policy, [(PROMPT, ids) for ids in TOKENS])
    _, theirs, _ = eager_logprobs(reference, [(PROMPT, ids) for ids in TOKENS])
    total, kl = torch.zeros((), dtype=torch.float64), 0.0
    for a, own, ref, h in zip(ADVANTAGES, kept(logprobs), kept(theirs.detach()), kept(entropy), strict=True):
        k2 = (own - ref).square() / 2
        kl += k2.sum().item()
        total = total + (-a * own + 0.3 * k2 - 0.1 * h).sum() / (3 * MAX_TOKENS)
    total.backward()
    metrics, gradients = run(policy, reference, kl_coef=0.3, kl_estimator="k2", entropy_coef=0.1)
    assert_equal(gradients[0], model)
    assert metrics.kl == pytest.approx(kl / 9, rel=1e-4)


def test_what_was_put_in_has_no_gradient_at_all(policy: Policy) -> None:
    """The head meets sampled tokens only: the log-probability of any other is not computed."""
    [batch] = make_micro_batches([group_of(policy)], LossConfig(), MAX_TOKENS, policy.device)
    expected = [t for ids, mask in zip(TOKENS, MASKS, strict=True) for t, m in zip(ids, mask, strict=True) if m]
    assert batch.packed.targets.tolist() == expected
    assert len(batch.advantages) == len(batch.weights) == len(batch.sampling_logprobs) == len(expected)
    assert batch.lengths.tolist() == [4, 3, 2]


def test_other_text_that_was_put_in_changes_what_is_read(policy: Policy) -> None:
    """It is conditioned on: the mask hides it from the loss, not from the model."""
    [batch] = make_micro_batches([group_of(policy)], LossConfig(), MAX_TOKENS, policy.device)
    changed = [list(ids) for ids in TOKENS]
    changed[0][1] = 99
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "TOKENS", changed)
        [other] = make_micro_batches([group_of(policy)], LossConfig(), MAX_TOKENS, policy.device)
    assert torch.equal(batch.packed.targets, other.packed.targets)
    changes = (batch.sampling_logprobs != other.sampling_logprobs).tolist()
    assert changes == [False, True, True, True, *[False] * 5]  # what follows it, in its own completion


def test_reports_count_sampled_tokens(policy: Policy) -> None:
    group = group_of(policy)
    metrics, _ = run(policy)
    result = StepResult([group], metrics, Seconds(1.0, 0.0, 1.0, 2.0), [["p"]], [group.scored], UpdateTrace())
    report = step_report(0, 1, result, lr=0.1)
    assert (report.length, report.length_wrong, report.sampled_tokens) == (3.0, 3.0, 9)
    assert report.entropy == 9.0
    assert ledger_group(group)["advantages"] == pytest.approx(list(ADVANTAGES))


def test_an_engine_without_entropies_is_no_fault(policy: Policy) -> None:
    group = group_of(policy)
    bare = tuple(dataclasses.replace(one, entropy=None) for one in group.scored.group.completions)
    scored = dataclasses.replace(group.scored, group=dataclasses.replace(group.scored.group, completions=bare))
    found = dataclasses.replace(group, scored=scored)
    updater = Updater(policy, Recorder(policy), LossConfig(), 1.0, MAX_TOKENS)  # type: ignore[arg-type]
    metrics = update_policy(updater, [found], step=0)
    result = StepResult([found], metrics, Seconds(1.0, 0.0, 1.0, 2.0), [["p"]], [scored], UpdateTrace())
    assert step_report(0, 1, result, lr=0.1).entropy is None


def test_the_overlong_rule_counts_sampled_tokens(policy: Policy) -> None:
    asked: list[int | None] = []

    class Watching(Unjudged):
        def verify_many(self, requests: Any) -> list[Verdict]:
            asked.extend(request.num_tokens for request in requests)
            return super().verify_many(requests)

    score([group_of(policy).scored.group], Watching(), MAX_TOKENS)
    assert asked == [4, 3, 2]


def test_a_critic_judges_states_before_sampled_tokens(policy: Policy) -> None:
    critic = Critic(policy, None)
    with torch.no_grad():
        critic.head.bias.fill_(2.0)
    found = per_token(
        [group_of(policy).scored.group],
        lambda packed: critic.values(packed, policy.completion_states(packed)),
        4096,
        policy.device,
    )[0]
    assert [array.tolist() for array in found] == [[2.0 * m for m in mask] for mask in MASKS]


def test_a_completion_of_nothing_that_was_sampled_is_refused() -> None:
    zeros = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="at least one token that was sampled"):
        Completion(0, np.array([1, 2]), zeros, zeros, FinishReason.STOP, "", np.zeros(2, np.bool_))
