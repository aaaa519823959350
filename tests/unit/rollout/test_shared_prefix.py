"""First tokens that all prompts share, as an example before every question, are computed once."""

from collections.abc import Callable
from itertools import chain
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from groupwise.models.policy import Policy
from groupwise.randomness import key
from groupwise.rollout.decode import prefill
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate, shared_tokens
from groupwise.rollout.sampling import SamplingConfig


def asked(*rests: tuple[int, ...], shared: int = 40, samples: int = 1, begun: int = 0) -> list[Request]:
    """Requests whose prompts share their first tokens, and have others behind them."""
    prefix = tuple(range(2, 2 + shared))
    return [
        Request((*prefix, *rest), tuple(key("shared", number, s) for s in range(samples)), begun=begun)
        for number, rest in enumerate(rests)
    ]


@pytest.mark.parametrize(
    ("rests", "samples", "expected"),
    [
        (((200,), (201,)), 1, 0),  # 40 + 2 are computed instead of 82: less than half is saved
        (((200,), (201,), (202,)), 1, 40),  # 43 instead of 123
        (((200, 7), (200, 8), (200, 9)), 1, 41),
        (((200,), (200,), (200,)), 1, 40),  # the same prompt: its last token is read each time
        (((), (201,), (202, 203)), 1, 39),  # one prompt begins another
        (((200,), (201,), (202,)), 8, 0),  # 40 + 24 instead of 123
        (((200,),), 1, 0),
    ],
)
def test_tokens_are_shared_where_that_saves_half(
    rests: tuple[tuple[int, ...], ...], samples: int, expected: int
) -> None:
    assert shared_tokens(asked(*rests, samples=samples)) == expected


RESTS = ((200,), (201, 77, 78), (202, 3), (203, 5, 6, 7, 8), (204,), (205, 9), (206, 1, 2), (207,))


@pytest.mark.parametrize(
    ("architecture", "changes", "samples", "live", "computed"),
    [
        ("qwen3", {}, 1, 8, [[40]]),
        ("qwen3", {}, 2, 3, [[40]]),  # rows are taken by others meanwhile
        ("llama", {}, 1, 1, [[40]]),
        ("gemma3_text", {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}, 1, 8, [[40]]),
        ("gemma3_text", {"sliding_window": 9, "layer_types": ["sliding_attention"] * 2}, 2, 3, [[40]]),
    ],
)
def test_completions_are_those_of_prompts_computed_one_by_one(
    tiny_policy: Callable[..., Policy],
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
    changes: dict[str, Any],
    samples: int,
    live: int,
    computed: list[list[int]],
) -> None:
    policy, requests = tiny_policy(architecture, **changes), asked(*RESTS, samples=samples, begun=1)
    config = SamplingConfig(max_tokens=12, max_live_completions=live)
    counted = Mock(side_effect=prefill)
    monkeypatch.setattr("groupwise.rollout.in_process.prefill", counted)
    monkeypatch.setattr("groupwise.rollout.in_process.PRODUCTS", 150)  # some rows at a time
    together = generate(policy, requests, config)
    lengths = [[len(prompt) for prompt in call.args[2]] for call in counted.call_args_list]
    assert lengths == computed
    monkeypatch.setattr("groupwise.rollout.in_process.shared_tokens", lambda requests: 0)
    alone = generate(policy, requests, config)
    assert [len(group) for group in together] == [samples] * len(requests)
    for one, other in zip(chain(*together), chain(*alone), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.finish_reason is other.finish_reason
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_a_pause_hears_of_sampled_tokens_alone(tiny_policy: Callable[..., Policy]) -> None:
    heard = list[list[int]]()
    requests = [
        Request(request.token_ids, request.keys, pause=lambda tokens: bool(heard.append(tokens)))  # type: ignore[func-returns-value]
        for request in asked(*RESTS)
    ]
    told = generate(tiny_policy(), requests, SamplingConfig(max_tokens=3))
    assert sorted(tokens for tokens in heard if len(tokens) == 1) == sorted([[g[0].token_ids[0]] for g in told])
