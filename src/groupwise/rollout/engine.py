"""The in-process engine: samples from the very weights that are trained, with continuous batching.

    waiting -> prefill: prompts packed, once per group -> first tokens -> rows of the live batch
            -> decode: one token per row and step -> a finished row leaves at once, a waiting one takes its place

Every draw is keyed by (request key, token position), so a completion does not depend on who else is in the batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.randomness import uniforms
from groupwise.rollout.cuda_graphs import graph_decoder
from groupwise.rollout.decode import Decoder, PlainDecoder, Step
from groupwise.rollout.kv_cache import KvCache, PrefillLayout, Shape
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.types import FinishReason

PREFILL_TOKENS = 16384
"""Most prompt tokens in one prefill."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and a random key for each completion wanted."""

    token_ids: tuple[int, ...]
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as the sampler saw it; arrays are (T,)."""

    token_ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32]
    finish_reason: FinishReason


OnGroup = Callable[[int, list[Sampled]], None]
"""Told the index of a request and its completions."""


def generate(
    policy: Policy, requests: Sequence[Request], config: SamplingConfig, on_group: OnGroup | None = None
) -> list[list[Sampled]]:
    """Sample every completion of every request; results stand in the order asked for.

    Args:
        policy: the model that is sampled from.
        requests: prompts and keys.
        config: how to draw.
        on_group: called once for each request, between two steps, as soon as its last completion has finished, while
            others are still being sampled; those that finish in the same step come in the order of the requests.

    Raises:
        ConfigError: a prompt and its completion do not fit in the model's context.
    """
    for request in requests:
        if len(request.token_ids) + config.max_tokens > policy.context_length:
            raise ConfigError(
                f"a prompt of {len(request.token_ids)} tokens and a completion of up to {config.max_tokens} "
                f"(sampling.max_tokens) do not fit in the model's context of {policy.context_length} tokens"
            )
    if not any(request.keys for request in requests):
        return [[] for _ in requests]
    with torch.no_grad(), policy.precision(), _decoder(policy, _largest(requests, config), config) as decoder:
        batch = _LiveBatch(policy, requests, config, decoder)
        while batch.busy:
            batch.admit()
            batch.decode()
            for request in batch.finished() if on_group else ():
                on_group(request, batch.group(request))
    return [batch.group(request) for request in range(len(requests))]
