"""A step in numpy, the buckets it is padded to, and going on behind what is kept."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.models.policy import Policy
from groupwise.rollout import decode
from groupwise.rollout.cuda_graphs import SHORTEST_SUFFIX, padded, round_up
from groupwise.rollout.decode import KvCache, PlainDecoder, Shape, Step, prefill
from groupwise.rollout.engine import EngineConfig, Request, Sampled
from groupwise.rollout.in_process import InProcessEngine, generate
from groupwise.rollout.sampling import SamplingConfig


def step(lengths: list[int], slots: list[int], prompt_of_slot: list[int]) -> Step:
    tokens = np.arange(10, 10 + len(lengths))
    return Step(tokens, np.array(lengths), np.array(slots), np.array(prompt_of_slot)[slots])


def test_a_step_has_the_sizes_of_what_is_in_it() -> None:
    assert step([0, 4, 2], [1, 0, 1], [7, 3]).shape == Shape(rows=3, slots=2, members=2, prompt=7, suffix=5)


def test_a_packed_step_says_who_belongs_to_whom() -> None:
    packed = step([0, 4, 2], [1, 0, 1], [7, 3]).packed(Shape(4, 3, 2, 8, 8))
    tokens, lengths, prompts, places, members = np.split(packed, [4, 8, 12, 16])
    assert tokens.tolist() == [10, 11, 12, 0]
    assert lengths.tolist() == [0, 4, 2, 0]
    assert prompts.tolist() == [3, 7, 3, 1]
    assert members.reshape(3, 2).tolist() == [[1, 0], [0, 2], [0, 0]]
    assert places.tolist() == [2, 0, 3, 0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_every_row_finds_itself_in_the_table(slots: list[int]) -> None:
    used = sorted(set(slots))
    slots = [used.index(slot) for slot in slots]
    one = step([1] * len(slots), slots, [1] * len(used))
    for shape in (one.shape, Shape(len(slots) + 3, len(used) + 2, one.shape.members + 4, 1, 2)):
        packed = one.packed(shape)
        places, members = packed[3 * shape.rows : 4 * shape.rows][: len(slots)], packed[4 * shape.rows :]
        assert members[places].tolist() == list(range(len(slots)))
        assert (places // shape.members).tolist() == slots


def test_only_a_step_without_padding_needs_no_mask() -> None:
    even = step([3, 3], [0, 1], [5, 5])
    assert even.fills(even.shape)
    assert not even.fills(even.shape._replace(suffix=8))
    assert not even.fills(even.shape._replace(prompt=8))
    assert not even.fills(even.shape._replace(rows=3))
    for uneven in (step([3, 2], [0, 1], [5, 5]), step([3, 3], [0, 1], [5, 4])):
        assert not uneven.fills(uneven.shape)


def test_sizes_are_rounded_up_to_two_per_doubling() -> None:
    assert [round_up(size) for size in range(1, 18)] == [1, 2, 3, 4, 6, 6, 8, 8, *[12] * 4, *[16] * 4, 24]
    assert [round_up(size) for size in (65, 97, 1025)] == [96, 128, 1536]


@given(st.integers(1, 1 << 20))
def test_rounding_up_adds_at_most_half(size: int) -> None:
    rounded = round_up(size)
    assert size <= rounded <= 1.5 * size
    assert round_up(rounded) == rounded
    assert round_up(size + 1) >= rounded


@given(st.integers(1, 300), st.data())
def test_a_padded_step_has_room_for_the_step(rows: int, data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, rows))
    members = data.draw(st.integers(1, rows - slots + 1))
    prompt, suffix = data.draw(st.integers(1, 2000)), data.draw(st.integers(1, 2000))
    shape = Shape(rows, slots, members, prompt, suffix)
    more = st.integers(0, 500)
    largest = Shape(*(round_up(size + data.draw(more)) for size in shape))
    room = padded(shape, largest)
    assert all(has >= needs for has, needs in zip(room, shape, strict=True))
    assert room.rows <= largest.rows
    assert room.suffix <= max(largest.suffix, SHORTEST_SUFFIX)


WIDE_KEYS = {
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12,
    "first_k_dense_replace": 9, "num_key_value_heads": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "changes", "is_taken"),
    [
        ("qwen2", {"num_key_value_heads": 2}, True),
        ("llama", {"num_key_value_heads": 1}, True),
        ("gemma2", {"sliding_window": 64}, False),  # scores are capped
        ("gemma3_text", {"sliding_window": 4, "layer_types": ["sliding_attention"] * 2}, False),
        ("deepseek_v3", WIDE_KEYS, False),
    ],
)
@torch.inference_mode()
def test_long_completions_in_bfloat16_attend_as_short_ones_do(
    tiny_policy: Callable[..., Policy],
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
    changes: dict[str, Any],
    is_taken: bool,
) -> None:
    slots, prompts = np.array([0, 2, 0, 1, 2, 2]), [[5, 6, 7, 8], [9], [10, 11, 12, 13, 14, 15, 16]]
    lengths, tokens = np.array([len(prompt) for prompt in prompts]), np.random.default_rng(1).integers(2, 258, (6, 6))
    flash, states = Mock(wraps=decode.FLASH), list[Tensor]()
    monkeypatch.setattr(decode, "FLASH", flash)
    for dtype, long in (("float32", 1), ("bfloat16", 1 << 30), ("bfloat16", 1)):
        monkeypatch.setattr(decode, "LONG", long)
        policy = tiny_policy(architecture, compute_dtype=dtype, device="cpu", **changes)
        decoder = PlainDecoder(KvCache(Shape(6, 3, 3, 7, 8)))
        assert not flash.called
        with policy.precision():
            prefill(policy, decoder.cache, prompts, np.arange(3))
            steps = (Step(row, np.array([i, i, i, 0, 0, i]), slots, lengths[slots]) for i, row in enumerate(tokens))
            states.append(torch.cat([decoder.hidden(policy, step) for step in steps]).float())
    assert flash.call_count == is_taken * 2 * 2 * len(tokens)  # of two layers the prompt's part and the completion's
    exact, short, long = states
    assert (long - exact).abs().mean() < 1.3 * (short - exact).abs().mean()  # no more than what bf16 rounds


FULL = {"layer_types": ["full_attention"] * 2, "sliding_window": 8}
SINKS = {**FULL, "num_local_experts": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
CONFIG = SamplingConfig(max_tokens=12)


def assert_same(left: list[list[Sampled]], right: list[list[Sampled]]) -> None:
    for a, b in zip((s for group in left for s in group), (s for group in right for s in group), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def conversation(policy: Policy, keeps: bool, **settings: Any) -> list[list[Sampled]]:
    """Sample turns; behind four of five of them stands a reply of 1 to 9 tokens, and another turn."""
    engine, dice = InProcessEngine(EngineConfig(), policy), np.random.default_rng(1)
    config, told = SamplingConfig(max_tokens=90, **settings), list[list[Sampled]]()
    asked = [
        Request(tuple(dice.integers(2, 258, length).tolist()), tuple(keys), max_tokens=6)
        for length, keys in ((5, range(4)), (1, range(4, 7)), (9, [7]), (6, range(8, 14)))
    ]
    with engine.keeping() if keeps else nullcontext():
        for _ in range(5):
            turns: dict[int, list[Sampled]] = {}
            engine.generate(asked, config, turns.__setitem__)
            told += [turns[index] for index in range(len(asked))]
            before, asked = zip(asked, told[-len(asked) :], strict=True), []
            for request, own_key, turn in [(r, *p) for r, group in before for p in zip(r.keys, group, strict=True)]:
                reply = dice.integers(2, 258, dice.integers(1, 10)).tolist()
                ids = (*request.token_ids, *turn.token_ids.tolist(), *reply)
                begun = request.begun + len(ids) - len(request.token_ids)
                if dice.random() < 0.8:
                    asked.append(Request(ids, (own_key,), begun, max_tokens=int(dice.integers(1, 8))))
    return told


@pytest.mark.parametrize(
    "case",
    [
        ("qwen3", {}, 14, 1),
        ("gpt_oss", SINKS, 14, 1),
        ("gemma2", {**FULL, "attn_logit_softcapping": 0.8}, 14, 1),
        ("deepseek_v3", WIDE_KEYS, 14, 1),
        ("qwen3", {}, 13, 2),  # at first one completion has no room
        ("gemma3_text", {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}, 14, 1),
        ("gemma3_text", {"sliding_window": 11, "layer_types": ["sliding_attention"] * 2}, 13, 2),
        ("gpt_oss", {**SINKS, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}, 14, 1),
    ],
)
def test_going_on_behind_what_is_kept_is_reading_it_again(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, case: tuple[str, dict[str, Any], int, int]
) -> None:
    architecture, changes, live, prefills = case
    policy = replace(tiny_policy(architecture, **changes), stop_ids=frozenset(range(1, 40)))
    expected = conversation(policy, keeps=False)
    counted = Mock(side_effect=prefill)
    monkeypatch.setattr("groupwise.rollout.in_process.prefill", counted)
    monkeypatch.setattr("groupwise.rollout.in_process.PRODUCTS", 500)
    monkeypatch.setattr("groupwise.rollout.decode.LONG", 20)
    assert_same(conversation(policy, keeps=True, max_live_completions=live), expected)
    assert counted.call_count == prefills


def test_another_text_under_the_same_key_is_read_from_its_beginning(tiny_policy: Callable[..., Policy]) -> None:
    policy, asked = tiny_policy(), Request((5, 6, 7, 8), (1,), max_tokens=1)
    engine, turns = InProcessEngine(EngineConfig(), policy), dict[int, list[Sampled]]()
    another = Request((9, *asked.token_ids[1:], 7, 8), asked.keys, begun=2, max_tokens=4)
    with engine.keeping():
        engine.generate([asked], CONFIG, turns.__setitem__)
        engine.generate([another], CONFIG, turns.__setitem__)
    assert_same([turns[0]], generate(policy, [another], CONFIG))
