"""The engine samples from the policy that is trained, and nothing around a completion changes it."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import ConfigError, InvariantError
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.models.rounded import Rounded
from groupwise.randomness import Draws, Purpose, key
from groupwise.rollout.decode import KvCache
from groupwise.rollout.engine import EngineConfig, Request, Sampled, make_engine
from groupwise.rollout.in_process import PREFILL_TOKENS, generate
from groupwise.rollout.sample_and_score import FALSE_ALARM, Actors, _check_first_tokens, sample_and_score
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Problem, Prompt
from groupwise.verifiers.unjudged import Unjudged

CONFIG = SamplingConfig(max_tokens=12)


def requests(sizes: list[tuple[int, int]] = [(5, 4), (1, 3), (9, 1), (5, 6)]) -> list[Request]:  # noqa: B006
    """Requests by prompt length and number of completions."""
    generator = np.random.default_rng(0)
    return [
        Request(tuple(generator.integers(2, 258, length).tolist()), tuple(key("engine", r, s) for s in range(count)))
        for r, (length, count) in enumerate(sizes)
    ]


def stopping(policy: Policy, count: int = 40) -> Policy:
    """The same policy with so many stop tokens that completions end at all lengths."""
    return dataclasses.replace(policy, stop_ids=frozenset(range(1, 1 + count)))


def assert_same(left: list[list[Sampled]], right: list[list[Sampled]]) -> None:
    assert [len(group) for group in left] == [len(group) for group in right]
    for a, b in zip((s for group in left for s in group), (s for group in right for s in group), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.finish_reason is b.finish_reason
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
        np.testing.assert_allclose(a.entropy, b.entropy, atol=1e-5)


def assert_sampling_is_scoring(policy: Policy, temperature: float = 1.0) -> None:
    """Compare log-probabilities and entropies of sampling with those of the training forward."""
    policy = stopping(policy)
    asked = requests()
    sampled = generate(policy, asked, SamplingConfig(max_tokens=12, temperature=temperature))
    groups = [Sequences(r.token_ids, [s.token_ids for s in g]) for r, g in zip(asked, sampled, strict=True)]
    trained = policy.token_logprobs(pack(groups, policy.device), temperature)
    logprobs = np.concatenate([s.logprobs for group in sampled for s in group])
    entropy = np.concatenate([s.entropy for group in sampled for s in group])
    np.testing.assert_allclose(logprobs, trained.logprobs.detach().cpu(), atol=1e-4)
    np.testing.assert_allclose(entropy, trained.entropy.detach().cpu(), atol=1e-4)
    assert len({s.token_ids.size for group in sampled for s in group}) > 1  # rows left the batch at different times


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama", "mistral"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampling_logprobs_equal_the_training_forward(
    tiny_policy: Callable[..., Policy], device: str, architecture: str, kv_heads: int, temperature: float
) -> None:
    assert_sampling_is_scoring(tiny_policy(architecture, device=device, num_key_value_heads=kv_heads), temperature)


@pytest.mark.parametrize("window", [1, 4, 9])
def test_sampling_with_windows_equals_the_training_forward(
    tiny_policy: Callable[..., Policy], device: str, with_windows: tuple[str, dict[str, Any]], window: int
) -> None:
    architecture, changes = with_windows
    assert_sampling_is_scoring(tiny_policy(architecture, device=device, sliding_window=window, **changes))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampling_of_other_layers_equals_the_training_forward(
    tiny_policy: Callable[..., Policy], device: str, other_layers: tuple[str, dict[str, Any]], temperature: float
) -> None:
    architecture, changes = other_layers
    policy = tiny_policy(architecture, device=device, **changes)
    assert_sampling_is_scoring(policy, temperature)
    few = CONFIG.model_copy(update={"max_live_completions": 3})  # rows move, and prompts leave
    assert_same(generate(stopping(policy), requests(), few), generate(stopping(policy), requests(), CONFIG))


def test_layers_with_a_window_keep_no_more_than_it_holds(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = []
    monkeypatch.setattr("groupwise.rollout.in_process.KvCache", lambda room: stores.append(KvCache(room)) or stores[-1])
    kinds = ["sliding_attention", "full_attention"]
    policy = tiny_policy("gemma3_text", sliding_window=4, layer_types=kinds)
    generate(policy, [Request(tuple(range(2, 22)), (1, 2))], SamplingConfig(max_tokens=12))
    kept = [[pairs[layer][1].shape[2] for layer in (0, 1)] for pairs in (stores[0].prompt_layers, stores[0].layers)]
    assert kept == [[4, 20], [4, 12]]


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5, 13])
def test_the_number_of_rows_does_not_change_a_completion(tiny_policy: Callable[..., Policy], max_rows: int) -> None:
    policy = stopping(tiny_policy())
    few = CONFIG.model_copy(update={"max_live_completions": max_rows})
    assert_same(generate(policy, requests(), few), generate(policy, requests(), CONFIG))


def test_a_completion_is_the_same_alone_and_in_company(tiny_policy: Callable[..., Policy]) -> None:
    policy = stopping(tiny_policy())
    together = generate(policy, requests(), CONFIG)
    for request, group in zip(requests(), together, strict=True):
        for sample_key, sampled in zip(request.keys, group, strict=True):
            alone = generate(policy, [Request(request.token_ids, (sample_key,))], CONFIG)
            assert_same(alone, [[sampled]])


def test_the_order_of_requests_does_not_matter(tiny_policy: Callable[..., Policy]) -> None:
    policy = stopping(tiny_policy())
    few = CONFIG.model_copy(update={"max_live_completions": 4})
    forwards, backwards = generate(policy, requests(), few), generate(policy, requests()[::-1], few)
    assert_same(forwards, backwards[::-1])


def test_prompts_beyond_one_prefill_are_computed_alike(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = stopping(tiny_policy())
    expected = generate(policy, requests(), CONFIG)
    monkeypatch.setattr("groupwise.rollout.in_process.PREFILL_TOKENS", 6)
    assert PREFILL_TOKENS > 6
    assert_same(generate(policy, requests(), CONFIG), expected)


@pytest.mark.parametrize("max_rows", [3, 13])
def test_keys_that_lie_the_other_way_give_the_same(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, max_rows: int
) -> None:
    policy = stopping(tiny_policy())
    few = CONFIG.model_copy(update={"max_live_completions": max_rows})
    expected = generate(policy, requests(), few)
    stores = []
    monkeypatch.setattr("groupwise.rollout.in_process.KvCache", lambda room: stores.append(KvCache(room)) or stores[-1])
    monkeypatch.setattr("groupwise.rollout.decode.LONG", 1)
    assert_same(generate(policy, requests(), few), expected)
    assert all(keys.stride(-2) == 1 and values.stride(-1) == 1 for keys, values in stores[0].layers.values())


@pytest.mark.parametrize("max_rows", [2, 5, 256])
def test_each_group_is_reported_once_as_soon_as_it_has_finished(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, max_rows: int
) -> None:
    policy, asked = stopping(tiny_policy()), [*requests(), Request((7, 8), ())]
    config = CONFIG.model_copy(update={"max_live_completions": max_rows})
    reports: list[tuple[int, list[Sampled], int]] = []
    steps = 0

    def counted(*arguments: Any) -> Drawn:
        nonlocal steps
        steps += 1
        return draw(*arguments)

    monkeypatch.setattr("groupwise.rollout.in_process.draw", counted)
    sampled = generate(policy, asked, config, lambda request, group: reports.append((request, group, steps)))
    assert sorted(request for request, *_ in reports) == [0, 1, 2, 3, 4]
    for request, group, _ in reports:
        assert_same([group], [sampled[request]])
    assert reports[0][0] == 4  # nothing was asked for: nothing to wait for
    assert reports[0][2] == 0
    last = [step for _, _, step in reports]
    assert last == sorted(last)
    assert last[1] < last[-1] == steps  # others went on
    if max_rows == 256:  # all began together, so a group has finished when its longest completion has
        for request, group, step in reports[1:]:
            assert step == max(len(one.token_ids) for one in group), request


def test_what_a_callback_computes_can_be_differentiated(tiny_policy: Callable[..., Policy]) -> None:
    policy = stopping(tiny_policy())
    losses = []

    def train(request: int, group: list[Sampled]) -> None:
        packed = pack([Sequences(requests()[request].token_ids, [one.token_ids for one in group])])
        losses.append(policy.token_logprobs(packed).logprobs.sum())

    generate(policy, requests(), CONFIG, train)
    torch.stack(losses).sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())


def test_in_bfloat16_weights_are_converted_once_and_given_back(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(compute_dtype="bfloat16")
    before = [weight.data_ptr() for weight in policy.model.parameters()]
    seen: list[torch.dtype] = []
    rounded = generate(policy, requests(), CONFIG, lambda *_: seen.extend(x.dtype for x in policy.model.parameters()))
    assert set(seen) == {torch.float32}  # a callback sees the trained weights
    assert [weight.data_ptr() for weight in policy.model.parameters()] == before
    layer, states = policy.model.get_output_embeddings(), torch.randn(2, policy.hidden_size)
    with policy.rounded():
        assert layer(states).dtype is torch.bfloat16
    assert layer(states).dtype is torch.float32
    monkeypatch.setattr(Rounded, "__enter__", lambda self: None)
    converted_each_time = generate(policy, requests(), CONFIG)
    for a, b in zip((s for g in rounded for s in g), (s for g in converted_each_time for s in g), strict=True):
        assert (a.token_ids.tolist(), a.logprobs.tolist()) == (b.token_ids.tolist(), b.logprobs.tolist())


def test_no_request_is_no_report(tiny_policy: Callable[..., Policy]) -> None:
    generate(tiny_policy(), [], CONFIG, lambda request, group: pytest.fail("nothing was asked for"))


def test_a_prompt_is_prefilled_once(tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    prefilled: list[tuple[int, ...]] = []

    def watched(sequences: Any, device: Any, shares: bool) -> Any:
        prefilled.extend(tuple(one.prompt) for one in sequences)
        return pack(sequences, device, shares)

    monkeypatch.setattr("groupwise.rollout.decode.pack", watched)
    config = CONFIG.model_copy(update={"max_live_completions": 2})
    generate(stopping(tiny_policy()), requests(), config)
    assert prefilled == [request.token_ids for request in requests()]


def test_equal_keys_and_prompts_give_equal_completions(tiny_policy: Callable[..., Policy]) -> None:
    request = Request((5, 6, 7), (key("a"), key("a"), key("b")))
    first, second, other = generate(stopping(tiny_policy()), [request], CONFIG)[0]
    assert_same([[first]], [[second]])
    assert first.token_ids.tolist() != other.token_ids.tolist()


def test_no_requests_are_no_completions(tiny_policy: Callable[..., Policy]) -> None:
    assert generate(tiny_policy(), [], CONFIG) == []


@pytest.mark.parametrize("stop_ids", [frozenset(range(1, 41)), frozenset(range(220, 263))], ids=["low", "high"])
def test_a_stop_token_ends_the_completion_and_belongs_to_it(
    tiny_policy: Callable[..., Policy], stop_ids: frozenset[int]
) -> None:
    policy = dataclasses.replace(tiny_policy(), stop_ids=stop_ids)
    sampled = [s for group in generate(policy, requests([(4, 100)]), CONFIG) for s in group]
    for one in sampled:
        *before, last = one.token_ids.tolist()
        assert not stop_ids & set(before)
        assert (one.finish_reason is FinishReason.STOP) == (last in stop_ids)
        assert (one.finish_reason is FinishReason.LENGTH) <= (len(one.token_ids) == CONFIG.max_tokens)
        assert len(one.token_ids) == len(one.logprobs) == len(one.entropy) <= CONFIG.max_tokens
    stopped_by = {int(s.token_ids[-1]) for s in sampled if s.finish_reason is FinishReason.STOP}
    assert len(stopped_by) > 3  # several end tokens do end completions
    assert any(s.finish_reason is FinishReason.LENGTH for s in sampled)


def test_stopping_only_cuts_what_would_have_been_sampled(tiny_policy: Callable[..., Policy]) -> None:
    policy = dataclasses.replace(tiny_policy(), stop_ids=frozenset())
    endless = [s for group in generate(policy, requests(), CONFIG) for s in group]
    cut = [s for group in generate(stopping(policy), requests(), CONFIG) for s in group]
    assert all(s.finish_reason is FinishReason.LENGTH and len(s.token_ids) == CONFIG.max_tokens for s in endless)
    assert all(
        b.token_ids.tolist() == a.token_ids[: len(b.token_ids)].tolist() for a, b in zip(endless, cut, strict=True)
    )
    assert sum(len(s.token_ids) for s in cut) < sum(len(s.token_ids) for s in endless)


def test_a_stop_token_at_the_limit_is_a_stop(tiny_policy: Callable[..., Policy]) -> None:
    policy = dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(263)))
    sampled = generate(policy, requests(), SamplingConfig(max_tokens=1))
    assert all(s.finish_reason is FinishReason.STOP and len(s.token_ids) == 1 for group in sampled for s in group)


def test_several_end_tokens_of_a_model_are_all_read(make_model: Callable[..., Any], tokenizer: Any) -> None:
    from groupwise.models.policy import make_policy

    model = make_model(eos_token_id=7)
    assert make_policy(model, tokenizer).stop_ids == {1, 7}  # the tokenizer's own end token is 1
    model.generation_config.eos_token_id = [9, 11]
    assert make_policy(model, tokenizer).stop_ids == {1, 9, 11}


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_first_tokens_follow_the_models_distribution(
    tiny_policy: Callable[..., Policy], eager_logits: Any, device: str, temperature: float
) -> None:
    policy, prompt, count = tiny_policy(device=device), (5, 9, 200), 8000
    request = Request(prompt, tuple(key("distribution", i) for i in range(count)))
    config = SamplingConfig(max_tokens=1, temperature=temperature, max_live_completions=count)
    sampled = generate(policy, [request], config)[0]
    expected = (eager_logits(policy, [prompt])[1][0, -1] / temperature).softmax(-1).detach().cpu().numpy() * count
    counts = np.bincount([s.token_ids[0] for s in sampled], minlength=len(expected)).astype(float)
    rare = expected < 5
    cells = [*zip(counts[~rare], expected[~rare], strict=True), (counts[rare].sum(), expected[rare].sum())]
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in cells)
    assert len(cells) > 20
    assert statistic < len(cells) + 4 * (2 * len(cells)) ** 0.5


def test_later_tokens_are_conditioned_on_the_earlier_ones(
    tiny_policy: Callable[..., Policy], eager_logits: Any
) -> None:
    policy = tiny_policy()
    sampled = generate(policy, requests(), SamplingConfig(max_tokens=6, temperature=0))
    for request, group in zip(requests(), sampled, strict=True):
        tokens = group[0].token_ids.tolist()
        for end in range(len(tokens)):
            logits = eager_logits(policy, [[*request.token_ids, *tokens[:end]]])[1][0, -1]
            assert tokens[end] == logits.argmax().item()


def test_greedy_sampling_ignores_the_keys(tiny_policy: Callable[..., Policy]) -> None:
    sampled = generate(tiny_policy(), requests([(5, 6)]), SamplingConfig(max_tokens=8, temperature=0))[0]
    assert len({tuple(s.token_ids.tolist()) for s in sampled}) == 1


@pytest.mark.parametrize("changes", [{"top_k": 4}, {"top_p": 0.3}])
def test_truncation_restricts_every_token_to_the_likeliest(
    tiny_policy: Callable[..., Policy], eager_logits: Any, changes: dict[str, Any]
) -> None:
    policy = tiny_policy()
    request = requests([(5, 30)])[0]
    sampled = generate(policy, [request], SamplingConfig(max_tokens=3, **changes))[0]
    logits = eager_logits(policy, [[*request.token_ids, *s.token_ids.tolist()] for s in sampled])[1].detach()
    firsts = set()
    for one, row in zip(sampled, logits, strict=True):
        firsts.add(int(one.token_ids[0]))
        for place, token in enumerate(one.token_ids.tolist()):
            probabilities = row[len(request.token_ids) - 1 + place].softmax(-1)
            likelier = probabilities > probabilities[token]
            if "top_k" in changes:
                assert likelier.sum() < changes["top_k"]
            else:
                assert probabilities[likelier].sum() < changes["top_p"] + 1e-5
            kept = probabilities[probabilities.argsort(descending=True)[: _kept(probabilities, changes)]].sum()
            assert one.logprobs[place] == pytest.approx(float((probabilities[token] / kept).log()), abs=1e-4)
    assert len(firsts) > 1


def _kept(probabilities: torch.Tensor, changes: dict[str, Any]) -> int:
    if "top_k" in changes:
        return int(changes["top_k"])
    cumulative = probabilities.sort(descending=True).values.cumsum(0)
    return int((cumulative < changes["top_p"]).sum()) + 1


def test_a_prompt_that_does_not_fit_is_refused(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy(max_position_embeddings=16)
    fits = Request((5,) * 4, (1,))
    assert generate(policy, [fits], CONFIG)
    with pytest.raises(ConfigError, match=r"prompt of 5 tokens .* up to 12 .*max_tokens.* context of 16 tokens"):
        generate(policy, [fits, Request((5,) * 5, (1,))], CONFIG)


def collect(
    policy: Policy, problems: Sequence[Problem], size: int, sampling: SamplingConfig, draws: Draws, version: int = 0
) -> list[Group]:
    engine = make_engine(EngineConfig(), policy)
    engine.publish(policy, version)
    actors = Actors(policy, engine, Template(), Unjudged())
    return [one.group for one in sample_and_score(actors, problems, size, sampling, draws)]


TRAIN = Draws(0, Purpose.TRAIN)
PROBLEMS = [Problem(f"p{i}", f"What is {i} + {i}?", str(2 * i)) for i in range(3)]


def test_completions_carry_what_was_sampled(tiny_policy: Callable[..., Policy]) -> None:
    policy = stopping(tiny_policy())
    groups = collect(policy, PROBLEMS, 4, CONFIG, Draws(3, Purpose.TRAIN, 2), version=5)
    asked = [
        Request(tuple(policy.tokenizer(f"{p.question}\n")["input_ids"]), Draws(3, Purpose.TRAIN, 2).keys(p.id, 4))
        for p in PROBLEMS
    ]
    expected = generate(policy, asked, CONFIG)
    for group, problem, request, sampled in zip(groups, PROBLEMS, asked, expected, strict=True):
        assert (group.prompt.problem, group.step, group.policy_version) == (problem, 2, 5)
        assert group.prompt.token_ids == request.token_ids
        assert [c.sample_index for c in group.completions] == [0, 1, 2, 3]
        for completion, one in zip(group.completions, sampled, strict=True):
            assert completion.token_ids.tolist() == one.token_ids.tolist()
            assert completion.finish_reason is one.finish_reason
            visible = one.token_ids[:-1] if one.finish_reason is FinishReason.STOP else one.token_ids
            assert completion.text == policy.tokenizer.decode(visible)


def test_every_draw_of_a_run_has_its_own_key() -> None:
    keys = [
        one
        for seed in (0, 1)
        for purpose in (Purpose.TRAIN, Purpose.DEV)
        for step in (0, 1)
        for problem in ("1", "11")
        for one in Draws(seed, purpose, step).keys(problem, 12)
    ]
    assert len(set(keys)) == len(keys) == 2 * 2 * 2 * 2 * 12


def test_first_tokens_of_a_group_differ(tiny_policy: Callable[..., Policy]) -> None:
    hot = SamplingConfig(max_tokens=2, temperature=3)
    for group in collect(tiny_policy(), PROBLEMS, 32, hot, TRAIN):
        assert len({int(c.token_ids[0]) for c in group.completions}) > 8


@pytest.mark.parametrize("other", [Draws(1, Purpose.TRAIN), Draws(0, Purpose.TRAIN, 1), Draws(0, Purpose.DEV)])
def test_another_seed_step_or_purpose_draws_anew(tiny_policy: Callable[..., Policy], other: Draws) -> None:
    policy = tiny_policy()
    first, again, others = (
        [c.token_ids.tolist() for g in collect(policy, PROBLEMS, 4, CONFIG, draws) for c in g.completions]
        for draws in (TRAIN, TRAIN, other)
    )
    assert first == again
    assert all(a != b for a, b in zip(first, others, strict=True))


def test_the_same_question_under_another_id_draws_anew(tiny_policy: Callable[..., Policy]) -> None:
    twins = [Problem("a", "What is 1?", "1"), Problem("b", "What is 1?", "1")]
    groups = collect(tiny_policy(), twins, 4, CONFIG, TRAIN)
    drawn = [[c.token_ids.tolist() for c in group.completions] for group in groups]
    assert all(a != b for a, b in pairwise(drawn))


def test_a_problem_twice_in_a_step_is_refused(tiny_policy: Callable[..., Policy]) -> None:
    with pytest.raises(ConfigError, match="twice"):
        collect(tiny_policy(), [PROBLEMS[0]] * 2, 2, CONFIG, TRAIN)


def group(first_tokens: Sequence[int], probability: float) -> Group:
    """Completions of one token each, which had this probability."""
    logprobs = np.log(np.array([probability], np.float32))
    completions = tuple(
        Completion(i, np.array([token]), logprobs, -logprobs, FinishReason.LENGTH, "")
        for i, token in enumerate(first_tokens)
    )
    return Group(Prompt(Problem("p", "", ""), "", (1,)), completions, 0, 0)


def test_the_bound_by_hand() -> None:
    # each group of 5 is worth 4 log 2 - log 2 = 3 log 2; 25 is passed by the thirteenth
    assert 12 * 3 * math.log(2) < FALSE_ALARM < 13 * 3 * math.log(2)
    _check_first_tokens([group([7] * 5, 0.5)] * 12)
    with pytest.raises(InvariantError, match=r"exp\(-27\) at most"):
        _check_first_tokens([group([7] * 5, 0.5)] * 13)


def test_one_group_is_enough_when_its_token_is_rare() -> None:
    with pytest.raises(InvariantError, match="not independent"):
        _check_first_tokens([group([7] * 4, 1e-4)])
    _check_first_tokens([group([7, 7, 7, 8], 1e-4)])


def test_a_sure_token_a_single_completion_and_no_group_are_no_surprise() -> None:
    _check_first_tokens([group([7] * 16, 1.0)] * 100)
    _check_first_tokens([group([7], 1e-9)] * 100)
    _check_first_tokens([])


@pytest.mark.parametrize("probability", [0.3, 0.9, 0.99])
def test_chance_is_far_from_an_alarm(probability: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        draws = (generator.random((8, 4)) < probability).astype(int)
        chances = np.where(draws[:, 0], probability, 1 - probability)
        _check_first_tokens([group(row, chance) for row, chance in zip(draws.tolist(), chances, strict=True)])
