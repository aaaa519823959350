"""The update's gradient is that of the paper's formula, however the batch is ordered, cut and packed."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from ragged import MAX_TOKENS, SIGNAL, Recorder, assert_close, gradient, judged, make_groups, pairs_of, run, taken
from torch import Tensor

from groupwise.errors import InvariantError
from groupwise.models import packed
from groupwise.models.policy import Policy
from groupwise.ranks.group import RANKS
from groupwise.training.config import LossConfig
from groupwise.training.micro_batches import make_micro_batches
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.training.update import Updater, update_policy
from groupwise.types import AdvantagedGroup, FinishReason


def slow_gradient(
    policy: Policy,
    groups: Sequence[AdvantagedGroup],
    eager_logprobs: Any,
    *,
    on_policy: bool,
    aggregation: str = "constant",
    temperature: float = 1.0,
    reference: Policy | None = None,
    kl_coef: float = 0.0,
    clip: tuple[float, float] = (0.2, 0.2),
) -> tuple[float, dict[str, Tensor]]:
    """Value and gradient of the paper's loss: nested loops over transformers' eager forward of whole sequences."""
    rows, pairs = judged(groups), pairs_of(groups)
    model, logprobs, _ = eager_logprobs(policy, pairs, temperature)
    ref = eager_logprobs(reference, pairs, temperature)[1].detach() if reference else logprobs.detach()
    lengths = [len(completion) for _, completion in pairs]
    total: Any = 0.0
    at = 0
    for (_, completion, advantage), length in zip(rows, lengths, strict=True):
        share = {
            "constant": 1 / (len(rows) * MAX_TOKENS),
            "token": 1 / sum(lengths),
            "sequence": 1 / (len(rows) * length),
        }
        for t in range(length):
            new = logprobs[at + t]
            old = new.detach() if on_policy else torch.tensor(float(completion.sampling_logprobs[t])).to(new.device)
            ratio = (new - old).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip[0], 1 + clip[1]) * advantage)
            kl = (ref[at + t] - new).exp() - (ref[at + t] - new) - 1
            total = total - share[aggregation] * (surrogate - kl_coef * kl)
        at += length
    total.backward()
    return total.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("aggregation", ["constant", "token", "sequence"])
def test_the_first_update_equals_the_papers_loops(
    policy: Policy, eager_logprobs: Any, aggregation: str, temperature: float
) -> None:
    groups = make_groups(policy, temperature=temperature)
    metrics, recorder = run(policy, groups, aggregation=aggregation, temperature=temperature)
    value, expected = slow_gradient(
        policy, groups, eager_logprobs, on_policy=True, aggregation=aggregation, temperature=temperature
    )
    assert_close(recorder.gradients[0], expected, 1e-5)
    assert metrics.surrogate == pytest.approx(value, abs=1e-6)


def test_the_first_update_is_exactly_on_policy(policy: Policy) -> None:
    groups = make_groups(policy)
    metrics, _ = run(policy, groups)
    assert (metrics.ratio_max, metrics.clipped, metrics.kl) == (1.0, 0.0, 0.0)
    assert 0 < metrics.logprob_difference < 1e-4
    lengths = [completion.num_tokens for _, completion, _ in judged(groups)]
    assert metrics.num_tokens == sum(lengths)
    assert len(set(lengths)) > 3  # the groups of these tests are ragged, and some completions are cut off
    assert {c.finish_reason for _, c, _ in judged(groups)} == {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize("aggregation", ["constant", "token", "sequence"])
@pytest.mark.parametrize("budget", [1, 7, 30, 60])
def test_the_cut_into_micro_batches_does_not_change_the_gradient(policy: Policy, budget: int, aggregation: str) -> None:
    groups = make_groups(policy)
    config = LossConfig(tokens_per_micro_batch=budget)
    assert len(make_micro_batches(groups, config, MAX_TOKENS, policy.device)) > 1
    whole, cut = (
        run(policy, groups, aggregation=aggregation, tokens_per_micro_batch=tokens) for tokens in (100_000, budget)
    )
    assert_close(cut[1].gradients[0], whole[1].gradients[0])
    # the distance of sampler and trainer is rounding itself
    same, other = (part[0]._replace(logprob_difference=0.0, logprob_bias=0.0) for part in (cut, whole))
    assert same == pytest.approx(other, rel=1e-4, abs=1e-6)
    assert max(metrics.logprob_difference for metrics in (cut[0], whole[0])) < 1e-5
    assert max(abs(metrics.logprob_bias) for metrics in (cut[0], whole[0])) < 1e-6


@pytest.mark.parametrize("budget", [0, 1, 130])
def test_what_prompts_begin_with_is_computed_once_in_a_micro_batch(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    groups, gradients, sizes = make_groups(policy, begin="Add " * 10), [], []
    monkeypatch.setitem(packed.TOKENS_PER_MICRO_BATCH, "cpu", 60)
    for fewest in (packed.MIN_SHARED, 1000):
        monkeypatch.setattr(packed, "MIN_SHARED", fewest)
        batches = make_micro_batches(groups, LossConfig(tokens_per_micro_batch=budget), MAX_TOKENS, policy.device)
        sizes.append([batch.packed.input_ids.shape[1] for batch in batches])
        gradients.append(gradient(policy, groups, tokens_per_micro_batch=budget))
    assert_close(*gradients)
    # of the default at least half is for what is not shared: 30 tokens beside 41, and not 19, of which one row needs 20
    assert list(map(len, sizes)) == {0: [4, 7], 1: [12, 12], 130: [1, 3]}[budget]
    assert sum(sizes[1]) - sum(sizes[0]) == {0: 3 * 41 + 12, 1: 0, 130: 2 * 41}[budget]


def test_a_group_larger_than_the_budget_is_cut_between_completions(policy: Policy) -> None:
    groups = make_groups(policy)
    batches = make_micro_batches(groups, LossConfig(tokens_per_micro_batch=1), MAX_TOKENS, policy.device)
    expected = [completion.token_ids.tolist() for _, completion, _ in judged(groups)]
    assert [batch.packed.targets.tolist() for batch in batches] == expected


@pytest.mark.parametrize("budget", [7, 100_000])
def test_the_order_of_groups_and_completions_does_not_matter(policy: Policy, budget: int) -> None:
    groups = make_groups(policy)
    shuffled = []
    for group in random.Random(0).sample(groups, len(groups)):
        order = random.Random(len(shuffled)).sample(range(len(group.advantages)), len(group.advantages))
        shuffled.append(taken(group, order))
    assert [g.scored.group.prompt.problem.id for g in shuffled] != [g.scored.group.prompt.problem.id for g in groups]
    ours = gradient(policy, shuffled, tokens_per_micro_batch=budget)
    assert_close(ours, gradient(policy, groups, tokens_per_micro_batch=budget))


WITHOUT_SIGNAL = [(0.0, 0.0, 0.0), *SIGNAL, (1.0, 1.0)]


@pytest.mark.parametrize("aggregation", ["constant", "token", "sequence"])
def test_groups_without_signal_are_skipped_but_stay_in_the_denominator(
    policy: Policy, eager_logprobs: Any, aggregation: str
) -> None:
    groups = make_groups(policy, WITHOUT_SIGNAL)
    metrics, recorder = run(policy, groups, aggregation=aggregation)
    _, expected = slow_gradient(policy, groups, eager_logprobs, on_policy=True, aggregation=aggregation)
    assert_close(recorder.gradients[0], expected, 1e-5)
    assert metrics.num_tokens == sum(completion.num_tokens for _, completion, _ in judged(groups[1:4]))
    [batch] = make_micro_batches(groups, LossConfig(), MAX_TOKENS, policy.device)
    assert batch.packed.targets.tolist() == [t for _, c, _ in judged(groups[1:4]) for t in c.token_ids]


def test_skipping_equals_computing_groups_without_signal(policy: Policy) -> None:
    groups = make_groups(policy, WITHOUT_SIGNAL)
    skipped = run(policy, groups)
    computed = run(policy, groups, kl_coef=1e-12, reference=policy.copy().freeze())
    assert computed[0].num_tokens > skipped[0].num_tokens
    assert_close(skipped[1].gradients[0], computed[1].gradients[0])


def test_a_batch_without_any_signal_is_no_update(policy: Policy) -> None:
    metrics, recorder = run(policy, make_groups(policy, [(0.0, 0.0), (1.0, 1.0), (None, 1.0)]))
    assert (metrics.num_updates, metrics.num_tokens, recorder.gradients) == (0, 0, [])
    assert all(parameter.grad is None for parameter in policy.model.parameters())


def test_completions_the_verifier_failed_on_leave_no_trace(policy: Policy) -> None:
    groups = make_groups(policy, [(1.0, None, 0.0, 0.0, None), (None, None), (0.0, 1.0)])
    without = [taken(groups[0], [0, 2, 3]), groups[2]]
    for aggregation in ("constant", "token", "sequence"):
        assert_close(
            gradient(policy, groups, aggregation=aggregation), gradient(policy, without, aggregation=aggregation)
        )


@pytest.mark.parametrize("config", [{"mini_batches": 2}, {"epochs": 2}], ids=str)
def test_later_updates_divide_by_the_samplers_logprobs(
    policy: Policy, eager_logprobs: Any, config: dict[str, int]
) -> None:
    groups = make_groups(policy, [*SIGNAL, (0.0, 1.0)])
    metrics, recorder = run(policy, groups, change=0.05, policy={"clip_low": 0.1, "clip_high": 0.3}, **config)
    assert metrics.num_updates == len(recorder.gradients) == 2
    parts = (groups[:2], groups[2:]) if "mini_batches" in config else (groups, groups)
    for trained, part, on_policy, found in zip(
        recorder.policies, parts, (True, False), recorder.gradients, strict=True
    ):
        _, expected = slow_gradient(trained, part, eager_logprobs, on_policy=on_policy, clip=(0.1, 0.3))
        assert_close(found, expected, 1e-5)
    assert metrics.clipped > 0.05
    assert metrics.ratio_max > 1.3


def test_with_fixed_sums_the_last_bits_of_the_sampler_do_not_count(
    policy: Policy, tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks sample other numbers of completions side by side, and that rounds otherwise."""
    groups = make_groups(policy, [*SIGNAL, (0.0, 1.0)])
    rounded = groups
    for index in range(len(groups)):
        rounded = with_logprobs(rounded, index, lambda values: np.nextafter(values, np.float32(-np.inf)))

    def last_gradient(groups: list[AdvantagedGroup]) -> dict[str, Tensor]:
        same_weights = tiny_policy()  # for the first update changes them
        return run(same_weights, groups, change=0.05, mini_batches=2)[1].gradients[-1]

    def are_equal() -> bool:
        ours, theirs = last_gradient(groups), last_gradient(rounded)
        return all(torch.equal(ours[name], theirs[name]) for name in ours)

    assert not are_equal()
    monkeypatch.setattr(RANKS, "partial_sums", 2)
    assert are_equal()


@pytest.mark.parametrize("mini_batches", [2, 3, 4])
def test_mini_batches_hold_every_group_once(policy: Policy, mini_batches: int) -> None:
    groups = make_groups(policy, [*SIGNAL, (0.0, 1.0)])
    metrics, recorder = run(policy, groups, mini_batches=mini_batches)
    assert metrics.num_updates == len(recorder.gradients) == mini_batches
    assert metrics.num_tokens == sum(completion.num_tokens for _, completion, _ in judged(groups))


def test_a_mini_batch_without_signal_is_passed_over(policy: Policy) -> None:
    groups = make_groups(policy, [(0.0, 0.0), SIGNAL[0]])
    metrics, recorder = run(policy, groups, mini_batches=2)
    assert metrics.num_updates == 1
    assert metrics.ratio_max == 1.0  # the policy has not moved, so the update is on-policy
    assert_close(recorder.gradients[0], gradient(policy, groups[1:]))


def test_the_divergence_from_an_equal_reference_is_zero(policy: Policy) -> None:
    groups = make_groups(policy)
    metrics, recorder = run(policy, groups, kl_coef=0.5, reference=policy.copy().freeze())
    assert metrics.kl == pytest.approx(0.0, abs=1e-9)
    assert_close(recorder.gradients[0], gradient(policy, groups))


@pytest.mark.parametrize("budget", [7, 100_000])
def test_the_divergence_from_another_reference(policy: Policy, eager_logprobs: Any, budget: int) -> None:
    groups = make_groups(policy, WITHOUT_SIGNAL)
    reference = policy.copy().freeze()
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7))
    metrics, recorder = run(policy, groups, kl_coef=0.3, reference=reference, tokens_per_micro_batch=budget)
    _, expected = slow_gradient(policy, groups, eager_logprobs, on_policy=True, reference=reference, kl_coef=0.3)
    assert_close(recorder.gradients[0], expected, 1e-5)
    pairs = pairs_of(groups)
    log_ratio = eager_logprobs(reference, pairs)[1] - eager_logprobs(policy, pairs)[1]
    assert metrics.kl == pytest.approx((log_ratio.exp() - log_ratio - 1).mean().item(), rel=1e-4)
    assert metrics.kl > 1e-3


def test_the_stop_token_is_trained(policy: Policy, eager_logprobs: Any) -> None:
    groups = make_groups(policy)
    stopped = [(p, c, a) for p, c, a in judged(groups) if c.finish_reason is FinishReason.STOP and a > 0]
    assert stopped
    [batch] = make_micro_batches(groups, LossConfig(), MAX_TOKENS, policy.device)
    at = 0
    for _, completion, advantage in judged(groups):
        last = at + completion.num_tokens - 1
        assert batch.packed.targets[last] == completion.token_ids[-1]
        assert batch.weights[last] > 0
        assert batch.advantages[last] == pytest.approx(advantage)
        at = last + 1
    # a small step along the gradient makes the rewarded stop tokens likelier
    pairs = [(prompt, completion.token_ids.tolist()) for prompt, completion, _ in stopped]
    ends = np.cumsum([len(completion) for _, completion in pairs]) - 1
    before = eager_logprobs(policy, pairs)[1][ends]
    found = gradient(policy, groups)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter -= 0.02 * found[name]
    assert (eager_logprobs(policy, pairs)[1][ends] - before).mean() > 0


def test_a_completion_that_is_only_a_stop_token_has_a_gradient(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any
) -> None:
    policy = tiny_policy()
    end_of_prompts = policy.tokenizer("\n").input_ids[-1]
    policy = dataclasses.replace(policy, stop_ids=frozenset(range(263)) - {end_of_prompts})
    groups = make_groups(policy)
    assert all(completion.num_tokens == 1 for _, completion, _ in judged(groups))
    _, expected = slow_gradient(policy, groups, eager_logprobs, on_policy=True)
    assert_close(gradient(policy, groups), expected, 1e-5)


def with_logprobs(groups: list[AdvantagedGroup], group: int, change: Callable[[Any], Any]) -> list[AdvantagedGroup]:
    """The same groups, with the sampling logprobs of one completion of one group changed."""
    inner = groups[group].scored.group
    longest = max(range(len(inner.completions)), key=lambda i: inner.completions[i].num_tokens)
    completions = list(inner.completions)
    logprobs = change(completions[longest].sampling_logprobs.copy())
    completions[longest] = dataclasses.replace(completions[longest], sampling_logprobs=logprobs)
    scored = dataclasses.replace(groups[group].scored, group=dataclasses.replace(inner, completions=tuple(completions)))
    return [*groups[:group], dataclasses.replace(groups[group], scored=scored), *groups[group + 1 :]]


def fill(value: float) -> Callable[[Any], Any]:
    return lambda logprobs: np.append(logprobs[:-1], np.float32(value))


FAULTS = {
    "one token filled with 0": fill(0.0),
    "one token is NaN": fill(float("nan")),
    "one token is -inf": fill(-float("inf")),
    "off by one": lambda logprobs: np.roll(logprobs, 1),
    "a little": lambda logprobs: logprobs + np.float32(3e-4),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_sampling_logprobs_stop_the_run(policy: Policy, fault: str) -> None:
    groups = with_logprobs(make_groups(policy), 1, FAULTS[fault])
    with pytest.raises(InvariantError, match="log-probabilit"):
        run(policy, groups)


@pytest.mark.parametrize("value", [0.0, float("nan"), -float("inf")])
def test_an_impossible_logprob_in_a_later_mini_batch_never_reaches_the_weights(policy: Policy, value: float) -> None:
    groups = with_logprobs(make_groups(policy), 2, fill(value))
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(lr=1e-3), num_steps=1)
    with pytest.raises(InvariantError):
        update_policy(Updater(policy, optimizer, LossConfig(mini_batches=3), 1.0, MAX_TOKENS), groups, step=0)
    assert all(parameter.isfinite().all() for parameter in policy.model.parameters())


def test_sampling_at_another_temperature_stops_the_run(policy: Policy) -> None:
    with pytest.raises(InvariantError, match="wrong temperature"):
        run(policy, make_groups(policy, temperature=0.6), temperature=1.0)


def test_completions_of_stale_weights_stop_the_run(policy: Policy) -> None:
    groups = make_groups(policy)
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(lr=1e-3), num_steps=2)
    updater = Updater(policy, optimizer, LossConfig(), 1.0, MAX_TOKENS)
    update_policy(updater, groups, step=0)
    weights = [parameter.clone() for parameter in policy.model.parameters()]
    with pytest.raises(InvariantError, match="other weights"):
        update_policy(updater, groups, step=0)
    assert all(torch.equal(a, b) for a, b in zip(weights, policy.model.parameters(), strict=True))


def test_the_tolerance_can_be_stated(policy: Policy) -> None:
    groups = with_logprobs(make_groups(policy), 1, lambda logprobs: logprobs + np.float32(0.01))
    metrics, _ = run(policy, groups, max_logprob_difference=0.02)
    assert metrics.logprob_difference == pytest.approx(0.01, abs=1e-3)
    with pytest.raises(InvariantError, match=r"largest difference is 0\.01.*allowed 0\.005"):
        run(policy, groups, max_logprob_difference=0.005)


def test_micro_batches_are_compared_together_before_the_weights_change(policy: Policy) -> None:
    groups = make_groups(policy)
    metrics, _ = run(policy, groups, tokens_per_micro_batch=30)
    assert 0 < abs(metrics.logprob_bias) < 1e-6
    moved = with_logprobs(groups, 2, lambda logprobs: logprobs + np.float32(5e-4))
    recorder = Recorder(policy)
    updater = Updater(policy, recorder, LossConfig(tokens_per_micro_batch=30), 1.0, MAX_TOKENS)  # type: ignore[arg-type]
    with pytest.raises(InvariantError, match=f"mean difference is -.* over {metrics.num_tokens} tokens"):
        update_policy(updater, moved, step=0)
    assert recorder.gradients == []


def test_a_sampler_that_is_corrected_for_may_differ_but_not_by_nan(policy: Policy) -> None:
    groups = with_logprobs(make_groups(policy), 1, lambda logprobs: logprobs - np.float32(0.5))
    assert run(policy, groups, correction={"bound": "truncate"})[0].logprob_difference == pytest.approx(0.5, abs=1e-3)
    with torch.no_grad():
        next(iter(policy.model.parameters())).fill_(torch.nan)
    with pytest.raises(InvariantError, match="is nan over"):
        run(policy, groups, correction={"bound": "truncate"})


def test_updates_raise_the_likelihood_of_what_was_rewarded(policy: Policy, eager_logprobs: Any) -> None:
    groups = make_groups(policy)
    pairs = pairs_of(groups)
    lengths = [len(completion) for _, completion in pairs]
    advantages = torch.tensor([advantage for *_, advantage in judged(groups)]).repeat_interleave(torch.tensor(lengths))
    before = advantages.double() @ eager_logprobs(policy, pairs)[1]
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(lr=1e-3), num_steps=1)
    metrics = update_policy(Updater(policy, optimizer, LossConfig(), 1.0, MAX_TOKENS), groups, step=0)
    assert optimizer.updates_done == metrics.num_updates == 1
    assert advantages.double() @ eager_logprobs(policy, pairs)[1] > before + 0.1


def test_bf16_computes_nearly_the_same_gradient(tiny_policy: Callable[..., Policy], device: str) -> None:
    stop_ids = frozenset(range(1, 41))
    exact = dataclasses.replace(tiny_policy(device=device), stop_ids=stop_ids)
    coarse = dataclasses.replace(tiny_policy(device=device, compute_dtype="bfloat16"), stop_ids=stop_ids)
    groups = make_groups(coarse)
    ours = torch.cat([g.flatten() for g in gradient(coarse, groups).values()])
    theirs = torch.cat([g.flatten() for g in gradient(exact, groups, max_logprob_difference=0.5).values()])
    assert torch.cosine_similarity(ours, theirs, dim=0) > 0.99
    assert ours.norm().item() == pytest.approx(theirs.norm().item(), rel=0.05)
