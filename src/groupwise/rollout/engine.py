"""The in-process engine: samples from the very weights that are trained, with continuous batching.

    waiting -> prefill: prompts packed, once per group -> first tokens -> rows of the live batch
            -> decode: one token per row and step -> a finished row leaves at once, a waiting one takes its place

Every draw is keyed by (request key, token position), so a completion does not depend on who else is in the batch.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.randomness import uniforms
from groupwise.rollout.kv_cache import DecodeLayout, KvCache, PrefillLayout
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


def generate(policy: Policy, requests: Sequence[Request], config: SamplingConfig) -> list[list[Sampled]]:
    """Sample every completion of every request; results stand in the order asked for.

    Raises:
        ConfigError: a prompt and its completion do not fit in the model's context.
    """
    for request in requests:
        if len(request.token_ids) + config.max_tokens > policy.context_length:
            raise ConfigError(
                f"a prompt of {len(request.token_ids)} tokens and a completion of up to {config.max_tokens} "
                f"(sampling.max_tokens) do not fit in the model's context of {policy.context_length} tokens"
            )
    batch = _LiveBatch(policy, requests, config)
    with torch.no_grad(), policy.precision():
        while batch.busy:
            batch.admit()
            batch.decode()
    return batch.results()


class _LiveBatch:
    """The state of one `generate` call. Rows are live completions, slots are live prompts; both without gaps."""

    def __init__(self, policy: Policy, requests: Sequence[Request], config: SamplingConfig) -> None:
        self.policy, self.requests, self.config = policy, requests, config
        total = sum(len(request.keys) for request in requests)
        self.max_rows = min(config.max_live_completions, total)
        self.waiting = deque((r, s) for r, request in enumerate(requests) for s in range(len(request.keys)))
        longest = max((len(request.token_ids) for request in requests), default=0)
        num_prompts = min(self.max_rows, len(requests))
        self.cache = KvCache(self.max_rows, num_prompts, longest, config.max_tokens)
        self.first = np.cumsum([0, *(len(request.keys) for request in requests)])
        """Place of each request's first completion in the output arrays."""
        self.tokens = np.zeros((total, config.max_tokens), np.int64)
        self.logprobs = np.zeros((total, config.max_tokens), np.float32)
        self.entropy = np.zeros((total, config.max_tokens), np.float32)
        self.length = np.zeros(total, np.int64)
        self.stopped = np.zeros(total, np.bool_)
        self.stop_ids = np.array(sorted(policy.stop_ids))
        self.keys = np.array([key for request in requests for key in request.keys], np.uint64)
        self.row_output = np.zeros(0, np.int64)
        """(n,) output place of each row."""
        self.row_slot = np.zeros(0, np.int64)
        """(n,) prompt slot of each row."""
        self.slot_request: list[int] = []
        """Request of each live prompt."""
        self.logits_of_slot: dict[int, torch.Tensor] = {}

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or len(self.row_output) > 0

    def admit(self) -> None:
        """Give free rows to waiting completions: prefill their prompts and draw their first tokens."""
        free = self.max_rows - len(self.row_output)
        admitted = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
        if not admitted:
            return
        known = {request: slot for slot, request in enumerate(self.slot_request)}
        new = [request for request in dict.fromkeys(request for request, _ in admitted) if request not in known]
        known |= {request: len(self.slot_request) + i for i, request in enumerate(new)}
        self.slot_request += new
        for chunk in _chunks(new, [len(self.requests[request].token_ids) for request in new], PREFILL_TOKENS):
            self._prefill(chunk, [known[request] for request in chunk])
        logits = torch.stack([self.logits_of_slot[request] for request, _ in admitted])
        outputs = np.array([self.first[request] + sample for request, sample in admitted])
        self._keep(draw(logits, self._uniforms(outputs), self.config), outputs)
        still_waiting = {request for request, _ in self.waiting}
        self.logits_of_slot = {r: row for r, row in self.logits_of_slot.items() if r in still_waiting}
        self.row_output = np.concatenate((self.row_output, outputs))
        self.row_slot = np.concatenate((self.row_slot, [known[request] for request, _ in admitted]))
        self._release()

    def _prefill(self, chunk: Sequence[int], slots: Sequence[int]) -> None:
        """Run prompts through the model, keep their keys and values, and the logits of their first completion token."""
        prompts = [self.requests[request].token_ids for request in chunk]
        packed = pack([Sequences(prompt, []) for prompt in prompts], self.policy.device)
        lengths = [len(prompt) for prompt in prompts]
        slot_of_token = torch.from_numpy(np.repeat(np.array(slots), lengths)).to(self.policy.device)
        layout = PrefillLayout(packed.layout, self.cache, slot_of_token, packed.position_ids[0])
        hidden = self.policy.hidden(packed.input_ids, packed.position_ids, layout)
        logits = self._head(hidden[torch.from_numpy(np.cumsum(lengths) - 1).to(hidden.device)])
        self.logits_of_slot |= dict(zip(chunk, logits, strict=True))

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(hidden, *self.policy.head)

    def decode(self) -> None:
        """One more token for every row."""
        if not len(self.row_output):
            return
        outputs = self.row_output
        lengths = self.length[outputs] - 1
        last = self.tokens[outputs, lengths]
        prompt_lengths = np.array([len(self.requests[request].token_ids) for request in self.slot_request])
        positions = prompt_lengths[self.row_slot] + lengths
        layout = self._decode_layout(lengths, prompt_lengths)
        hidden = self.policy.hidden(self._tensor(last)[None], self._tensor(positions)[None], layout)
        self._keep(draw(self._head(hidden), self._uniforms(outputs), self.config), outputs)
        self._release()

    def _decode_layout(self, lengths: NDArray[np.int64], prompt_lengths: NDArray[np.int64]) -> DecodeLayout:
        members, places = _members(self.row_slot, len(self.slot_request))
        return DecodeLayout(
            cache=self.cache,
            rows=torch.arange(len(lengths), device=self.policy.device),
            lengths=self._tensor(lengths),
            longest=int(lengths.max()) + 1,
            suffix_bias=self._bias(lengths + 1),
            members=self._tensor(members),
            places=self._tensor(places),
            prompt_length=int(prompt_lengths.max()),
            prompt_bias=self._bias(prompt_lengths),
        )

    def _bias(self, lengths: NDArray[np.int64]) -> torch.Tensor | None:
        """(n, 1, 1, longest) with -inf beyond each length, or None when all are equal."""
        if (lengths == lengths[0]).all():
            return None
        beyond = np.arange(lengths.max())[None] >= lengths[:, None]
        return self._tensor(np.where(beyond, -np.inf, 0).astype(np.float32))[:, None, None]

    def _uniforms(self, outputs: NDArray[np.int64]) -> torch.Tensor:
        return self._tensor(uniforms(self.keys[outputs], self.length[outputs]))

    def _tensor(self, array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.policy.device)

    def _keep(self, drawn: Drawn, outputs: NDArray[np.int64]) -> None:
        """Store one drawn token per output."""
        at = (outputs, self.length[outputs])
        self.tokens[at] = drawn.tokens.cpu().numpy()
        self.logprobs[at] = drawn.logprobs.cpu().numpy()
        self.entropy[at] = drawn.entropy.cpu().numpy()
        self.stopped[outputs] = np.isin(self.tokens[at], self.stop_ids)
        self.length[outputs] += 1

    def _release(self) -> None:
        """Take finished rows out, then prompts without rows; the last ones move into the gaps."""
        finished = self.stopped[self.row_output] | (self.length[self.row_output] >= self.config.max_tokens)
        for row in np.flatnonzero(finished)[::-1]:
            last = len(self.row_output) - 1
            if row != last:
                self.cache.move_row(last, int(row), int(self.length[self.row_output[last]]))
                self.row_output[row], self.row_slot[row] = self.row_output[last], self.row_slot[last]
            self.row_output, self.row_slot = self.row_output[:last], self.row_slot[:last]
        for slot in sorted(set(range(len(self.slot_request))) - set(self.row_slot.tolist()), reverse=True):
            last = len(self.slot_request) - 1
            if slot != last:
                self.cache.move_prompt(last, slot)
                self.slot_request[slot] = self.slot_request[last]
                self.row_slot[self.row_slot == last] = slot
            self.slot_request.pop()

    def results(self) -> list[list[Sampled]]:
        """Completions by request."""
        return [[self._result(int(self.first[r]) + s) for s in range(len(q.keys))] for r, q in enumerate(self.requests)]

    def _result(self, output: int) -> Sampled:
        length = self.length[output]
        return Sampled(
            self.tokens[output, :length].copy(),
            self.logprobs[output, :length].copy(),
            self.entropy[output, :length].copy(),
            FinishReason.STOP if self.stopped[output] else FinishReason.LENGTH,
        )


def _members(row_slot: NDArray[np.int64], num_slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of each slot (num_slots, most rows of a slot), padded with row 0, and each row's place in that table."""
    order = np.argsort(row_slot, kind="stable")
    counts = np.bincount(row_slot, minlength=num_slots)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    members = np.zeros((num_slots, counts.max()), np.int64)
    members[row_slot[order], rank] = order
    places = np.empty(len(order), np.int64)
    places[order] = row_slot[order] * counts.max() + rank
    return members, places


def _chunks(items: Sequence[int], sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Consecutive items whose sizes sum to at most the budget (an item over it stands alone)."""
    chunk: list[int] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if chunk and total + size > budget:
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += size
    if chunk:
        yield chunk
