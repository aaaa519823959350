"""The in-process engine: samples from the very weights that are trained, with continuous batching.

    waiting -> prefill: prompts packed, once per group -> first tokens -> rows of the live batch
            -> decode: one token per row and step -> a finished row leaves at once, a waiting one takes its place
turns    -> rows that have ended wait behind the live ones; those that go on read the new tokens and are live again

Every draw is keyed by (request key, token position), so a completion does not depend on who else is in the batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.models.cores import Sharing
from groupwise.models.packed import micro_batches
from groupwise.models.policy import Policy
from groupwise.models.recurrent import States
from groupwise.randomness import uniforms
from groupwise.ranks.group import RANKS
from groupwise.rollout.cuda_graphs import graph_decoder
from groupwise.rollout.decode import Decoder, KvCache, PlainDecoder, Shape, Step, go_on, prefill
from groupwise.rollout.engine import EngineConfig, OnFinished, Request, Sampled
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.rollout.tool_watch import ToolRows, ToolWatch
from groupwise.types import FinishReason

PREFILL_TOKENS = 4096
"""Most prompt tokens in one prefill, which bounds the memory of its activations."""
PRODUCTS = 1 << 21
"""Most products of a query with a key, by head, where completions go on together: bounds the memory of scores."""


class InProcessEngine:
    """Samples from the policy that is trained: there is nothing to copy, and nothing can be stale."""

    Config: ClassVar[type[EngineConfig]] = EngineConfig
    uses_tools: ClassVar[bool] = True

    def __init__(self, config: EngineConfig, policy: Policy) -> None:
        self.policy, self.version = policy, 0
        self._waiting: list[_LiveBatch] | None = None

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        generate(self.policy, requests, sampling, on_finished, self._waiting)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep keys and values of what is sampled here, so that requests that go on behind it read new tokens alone."""
        self._waiting = []
        try:
            yield
        finally:
            self._waiting = None

    def publish(self, policy: Policy, version: int) -> None:
        self.policy, self.version = policy, version


def generate(
    policy: Policy,
    requests: Sequence[Request],
    config: SamplingConfig,
    on_finished: OnFinished | None = None,
    waiting: "list[_LiveBatch] | None" = None,
) -> list[list[Sampled]]:
    """Sample every completion of every request; results are in the order of the requests.

    `on_finished` is called once for each request, between two steps, as soon as its last completion has finished.
    `waiting` takes the batch behind which the next call may go on: all fit in it; no states, windows, CUDA graphs.
    Raises ConfigError where a prompt and its completion do not fit in the model's context.
    """
    for request in requests:
        room = request.room(config)
        if len(request.token_ids) + room > policy.context_length:
            raise ConfigError(
                f"a prompt of {len(request.token_ids) - request.begun} tokens and a completion of up to "
                f"{request.begun + room} "
                f"(sampling.max_tokens) do not fit in the model's context of {policy.context_length} tokens"
            )
    with policy.whole():  # a rank without requests takes part in gathering the weights
        if not requests:
            return []
        watch = ToolWatch.of(policy, config.tools) if config.tools else None
        put_in, context = watch.room if watch else 0, policy.context_length
        rooms = [min(request.room(config) + put_in, context - len(request.token_ids)) for request in requests]
        sizes = [len(request.keys) for request in requests]
        rows = min(config.max_live_completions, sum(sizes))
        longest = max(len(request.token_ids) for request in requests)
        largest = Shape(rows, min(rows, len(requests)), min(rows, max(sizes)), longest, max(rooms))
        shared = 0 if watch or waiting is not None or not _goes_on(policy, config) else shared_tokens(requests)
        if shared:
            largest = Shape(rows, 1, rows, shared, max(rooms) + longest - shared)
        with Sharing() as cores, torch.inference_mode(), policy.precision(), ExitStack() as stack:
            batch = waiting.pop() if waiting else None
            if batch is None or not batch.go_on(requests, rooms):
                decoder = stack.enter_context(_decoder(policy, largest, config))
                batch = _LiveBatch(policy, requests, config, decoder, rooms, watch, shared)
                can_go_on = _goes_on(policy, config) and watch is None
                batch.keeps = waiting is not None and can_go_on and rows == len(set(batch.keys.tolist()))
            batch.tell(on_finished)
            while batch.busy:
                cores.look()
                batch.admit()
                batch.decode()
                batch.tell(on_finished)
            if waiting is not None and batch.keeps:
                waiting.append(batch)
    return [batch.group(request) for request in range(len(requests))]


def shared_tokens(requests: Sequence[Request]) -> int:
    """Return how many first tokens of all prompts are computed once, as one prompt; 0 where that saves less than half.

    The rest of a prompt is then computed for each of its completions. An example before every question is such a case.
    """
    prompts = [request.token_ids for request in requests]
    least, most = min(prompts), max(prompts)  # all others begin as these two do
    shared = next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
    shared = min(shared, min(map(len, prompts)) - 1)  # the state of a last token is read
    rest = sum(len(request.keys) * (len(request.token_ids) - shared) for request in requests)
    return shared if 2 * (shared + rest) <= sum(map(len, prompts)) else 0


def _goes_on(policy: Policy, config: SamplingConfig) -> bool:
    """Tell whether completions can begin with, or go on behind, tokens that were not sampled."""
    return not (policy.is_recurrent or _uses_graphs(policy, config))


def _uses_graphs(policy: Policy, config: SamplingConfig) -> bool:
    # graphs hold the addresses of weights, and those that were gathered from ranks lie elsewhere every time
    return config.cuda_graphs and policy.device.type == "cuda" and RANKS.size == 1


def _decoder(policy: Policy, largest: Shape, config: SamplingConfig) -> AbstractContextManager[Decoder]:
    if policy.is_recurrent:
        cache = KvCache(largest, states=States(largest.slots, largest.rows))
        return nullcontext(PlainDecoder(cache, policy.rounded()))
    if _uses_graphs(policy, config):
        return graph_decoder(policy, largest)
    return nullcontext(PlainDecoder(KvCache(largest), policy.rounded()))


class _LiveBatch:
    """The state of one `generate` call. Rows are live completions, slots are live prompts; both without gaps.

    An output is the index of a completion among all requested.
    """

    def __init__(
        self,
        policy: Policy,
        requests: Sequence[Request],
        config: SamplingConfig,
        decoder: Decoder,
        rooms: Sequence[int],
        watch: ToolWatch | None,
        shared: int = 0,
    ) -> None:
        self.shared = shared
        """First tokens of all prompts that lie in one slot; the others begin the rows. 0: each has its own slot."""
        self.policy, self.requests, self.config, self.decoder = policy, requests, config, decoder
        self.rounded = decoder.rounded
        sizes = [len(request.keys) for request in requests]
        total = sum(sizes)
        self.max_rows = min(config.max_live_completions, total)
        self.first = np.cumsum([0, *sizes])
        self.request_of = np.repeat(np.arange(len(requests)), sizes)
        lengths = np.array([len(request.token_ids) for request in requests], np.int64)
        self.prompt_lengths = np.full_like(lengths, shared) if shared else lengths
        self.rest = np.repeat(lengths - self.prompt_lengths, sizes)
        """(total,) tokens of each output's prompt that begin its row."""
        self.keys = np.array([key for request in requests for key in request.keys], np.uint64)
        self.begun = np.repeat(np.array([request.begun for request in requests], np.int64), sizes) - self.rest
        """(total,) position of the draw of each row's first token: tokens that the completion had before."""
        self.pauses = any(request.pause is not None for request in requests)
        self.paused = np.zeros(total, np.bool_)
        width = max(rooms, default=0) + int(self.rest.max(initial=0))
        self.tokens = np.zeros((total, width), np.int64)
        self.logprobs = np.zeros((total, width), np.float32)
        self.entropy = np.zeros((total, width), np.float32)
        self.length = np.zeros(total, np.int64)
        self.room = np.repeat(np.array(rooms, np.int64), sizes) + self.rest
        self.left = np.repeat(np.array([request.room(config) for request in requests], np.int64), sizes)
        """(total,) tokens that each output may still sample."""
        self.since = np.zeros(total, np.int64)  # tokens of each output that were there before it was asked for now
        self.asked_of = self.request_of.copy()  # the request that each output answers now; -1: none
        self.keeps, self.waiting = False, np.zeros(0, np.int64)
        """Outputs that have ended and whose keys and values are kept, in the rows behind the live ones."""
        self.tools = ToolRows(watch, requests, width) if watch else None
        self.stopped = np.zeros(total, np.bool_)
        self.is_stop = np.zeros(policy.vocabulary, np.bool_)
        self.is_stop[list(policy.stop_ids)] = True
        self.num_admitted = 0
        self.row_output = np.zeros(0, np.int64)
        self.slot_request = np.zeros(0, np.int64)
        self.slot_of = np.full(len(requests), -1)
        self.first_logits: dict[int, torch.Tensor] = {}
        self.unfinished = np.array(sizes)
        self.reported = np.zeros(len(requests), np.bool_)

    @property
    def busy(self) -> bool:
        return self.num_admitted < len(self.request_of) or len(self.row_output) > 0

    def admit(self) -> None:
        while self.num_admitted < len(self.request_of) and len(self.row_output) < self.max_rows:
            free = self.max_rows - len(self.row_output)
            outputs = np.arange(self.num_admitted, min(self.num_admitted + free, len(self.request_of)))
            requests = self.request_of[outputs]
            if self.shared:
                logits = self._behind_shared(outputs)
            else:
                self._prefill(np.unique(requests[self.slot_of[requests] < 0]))
                logits = torch.stack([self.first_logits[request] for request in requests.tolist()])
            self.num_admitted += len(outputs)
            self.first_logits = {r: row for r, row in self.first_logits.items() if self._waits(r)}
            self.row_output = np.concatenate((self.row_output, outputs))
            self._keep(draw(logits, self._uniforms(outputs), self.config), outputs)
            self._release()

    def _waits(self, requests: NDArray[np.int64] | int) -> NDArray[np.bool_]:
        return np.asarray(self.first[np.asarray(requests) + 1] > self.num_admitted)

    def _prefill(self, new: NDArray[np.int64]) -> None:
        self.slot_of[new] = len(self.slot_request) + np.arange(len(new))
        self.slot_request = np.concatenate((self.slot_request, new))
        for places in micro_batches(self.prompt_lengths[new].tolist(), PREFILL_TOKENS):
            chunk = new[places].tolist()
            prompts = [self.requests[request].token_ids for request in chunk]
            with self.rounded:
                states = prefill(self.policy, self.decoder.cache, prompts, self.slot_of[chunk])
                self.first_logits |= dict(zip(chunk, self.policy.next_logits(states), strict=True))

    def _behind_shared(self, outputs: NDArray[np.int64]) -> torch.Tensor:
        """Compute the tokens that all prompts share, once, and the rest of each in its row; returns their logits."""
        prompts = [self.requests[request].token_ids for request in self.request_of[outputs].tolist()]
        if not len(self.slot_request):
            self.slot_request, self.slot_of = self.request_of[outputs[:1]], np.zeros_like(self.slot_of)
            with self.rounded:
                prefill(self.policy, self.decoder.cache, [prompts[0][: self.shared]], self.slot_of[:1])
        self.length[outputs] = 1  # nothing of the rows was read yet: a step reads the last of them
        rest = [prompt[self.shared :] for prompt in prompts]
        logits = self._read(outputs, len(self.row_output), rest)
        for output, ids in zip(outputs.tolist(), rest, strict=True):
            self.tokens[output, : len(ids)] = ids
        self.length[outputs] = self.since[outputs] = self.rest[outputs]
        return logits

    def _read(self, outputs: NDArray[np.int64], row: int, new: Sequence[Sequence[int]]) -> torch.Tensor:
        """Keep new tokens of outputs that lie from a row on; returns the logits behind them."""
        steps = self._step(outputs)
        longest = int((steps.lengths + steps.prompt_lengths).max()) + max(map(len, new))
        each = max(1, PRODUCTS // (longest * max(map(len, new))))
        with self.rounded:
            states = [
                go_on(
                    self.policy, self.decoder.cache, row + at, new[at : at + each], self._step(outputs[at : at + each])
                )
                for at in range(0, len(outputs), each)
            ]
            return self.policy.next_logits(torch.cat(states))

    def go_on(self, requests: Sequence[Request], rooms: Sequence[int]) -> bool:
        """Make outputs live again that wait; False where a request does not go on behind one of them."""
        of_key, new = {int(self.keys[output]): output for output in self.waiting.tolist()}, dict[int, tuple[int, ...]]()
        for request in requests:
            output = of_key.get(request.keys[0], -1)
            known = (*self.requests[self.request_of[output]].token_ids, *self.tokens[output, : self.length[output]])
            if output < 0 or len(request.keys) > 1 or request.token_ids[: len(known)] != known:
                return False
            new[output] = request.token_ids[len(known) - 1 :]  # what was sampled last was never read
        outputs = list(new)
        self.since[outputs] = self.length[outputs] + [len(ids) - 1 for ids in new.values()]
        self.left[outputs], self.room[outputs] = rooms, self.since[outputs] + rooms
        self.stopped[outputs] = self.paused[outputs] = False
        self.asked_of[:], self.asked_of[outputs] = -1, np.arange(len(outputs))
        self.unfinished, self.reported = np.ones(len(outputs), np.int64), np.zeros(len(outputs), np.bool_)
        width, cache = int(self.room[outputs].max()), self.decoder.cache
        more = ((0, 0), (0, max(0, width - self.tokens.shape[1])))
        self.tokens = np.pad(self.tokens, more)
        self.logprobs, self.entropy = np.pad(self.logprobs, more), np.pad(self.entropy, more)
        rows, sources, targets = _without_gaps(self.waiting, np.isin(self.waiting, outputs))
        self.row_output, self.waiting = rows, self.waiting[:0]
        cache.move_rows(self._tensor(sources), self._tensor(targets), int(self.length[rows].max()))
        self._release_prompts()
        cache.grow(width)
        logits = self._read(rows, 0, [new[output] for output in rows.tolist()])
        for output, ids in new.items():
            self.tokens[output, self.length[output] - 1 : self.since[output]] = ids
        self.length[outputs] = self.since[outputs]
        self._keep(draw(logits, self._uniforms(rows), self.config), rows)
        self._release()
        return True

    def decode(self) -> None:
        if not len(self.row_output):
            return
        outputs = self.row_output
        with self.rounded:
            logits = self.policy.next_logits(self.decoder.hidden(self.policy, self._step(outputs)))
        self._keep(draw(logits, self._uniforms(outputs), self.config), outputs)
        self._release()

    def _step(self, outputs: NDArray[np.int64]) -> Step:
        requests, lengths = self.request_of[outputs], self.length[outputs] - 1
        return Step(self.tokens[outputs, lengths], lengths, self.slot_of[requests], self.prompt_lengths[requests])

    def _uniforms(self, outputs: NDArray[np.int64]) -> torch.Tensor:
        return self._tensor(uniforms(self.keys[outputs], self.begun[outputs] + self.length[outputs]))

    def _tensor(self, array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.policy.device)

    def _keep(self, drawn: Drawn, outputs: NDArray[np.int64]) -> None:
        at = (outputs, self.length[outputs])
        # all three in one transfer; a double holds every token id exactly
        self.tokens[at], self.logprobs[at], self.entropy[at] = torch.stack([x.double() for x in drawn]).cpu().numpy()
        if self.tools:
            self.tools.force(*at, self.tokens, self.logprobs, self.entropy)
        self.stopped[outputs] = self.is_stop[self.tokens[at]]
        self.left[outputs] -= 1 if self.tools is None else self.tools.sampled[at]
        self.length[outputs] += 1
        if self.tools:
            self.tools.look(outputs[~self._finished(outputs)], self.tokens, self.length)
        if self.pauses:
            self.paused[outputs] = [self._pauses(output) for output in outputs.tolist()]

    def _pauses(self, output: int) -> bool:
        pause = self.requests[self.request_of[output]].pause
        if pause is None or (self.tools and self.tools.waits(output)):
            return False
        return bool(pause(self.tokens[output, self.since[output] : self.length[output]].tolist()))

    def _finished(self, outputs: NDArray[np.int64]) -> NDArray[np.bool_]:
        done = self.stopped[outputs] | self.paused[outputs] | (self.left[outputs] <= 0)
        done |= self.length[outputs] >= self.room[outputs]
        return done if self.tools is None else done | self.tools.ended[outputs]

    def _release(self) -> None:
        """Take finished rows out, then prompts that no row reads or will read; the last ones move into the gaps."""
        finished = self._finished(self.row_output)
        if not finished.any():
            return
        before = self.row_output
        np.subtract.at(self.unfinished, self.asked_of[before[finished]], 1)
        self.row_output, sources, targets = _without_gaps(before, ~finished)
        longest = int(self.length[before].max())
        if self.keeps:
            sources, targets = np.concatenate((sources, targets)), np.concatenate((targets, sources))
            order = before.copy()
            order[targets] = before[sources]
            self.waiting = np.concatenate((order[len(self.row_output) :], self.waiting))
        if len(sources):
            self.decoder.cache.move_rows(self._tensor(sources), self._tensor(targets), longest)
        self._release_prompts()

    def _release_prompts(self) -> None:
        if self.shared:
            return
        read = np.zeros(len(self.requests), np.bool_)
        read[self.request_of[np.concatenate((self.row_output, self.waiting))]] = True
        needed = read[self.slot_request] | self._waits(self.slot_request)
        self.slot_of[self.slot_request[~needed]] = -1
        self.slot_request, sources, targets = _without_gaps(self.slot_request, needed)
        if len(sources):
            self.slot_of[self.slot_request[targets]] = targets
            self.decoder.cache.move_prompts(self._tensor(sources), self._tensor(targets))

    def tell(self, on_finished: OnFinished | None) -> None:
        if on_finished is None:
            return
        for request in np.flatnonzero((self.unfinished == 0) & ~self.reported).tolist():
            self.reported[request] = True
            with torch.inference_mode(False):  # what it computes may be differentiated
                on_finished(request, self.group(request))

    def group(self, request: int) -> list[Sampled]:
        found = list[Sampled]()
        for output in np.flatnonzero(self.asked_of == request).tolist():
            told = slice(self.since[output], self.length[output])
            reason = FinishReason.STOP if self.stopped[output] else FinishReason.LENGTH
            ids, logprobs = self.tokens[output, told].copy(), self.logprobs[output, told].copy()
            one = Sampled(ids, logprobs, self.entropy[output, told].copy(), reason)
            found.append(one if self.tools is None else self.tools.told(output, one))
        return found


def _without_gaps(
    items: NDArray[np.int64], keep: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The items kept, the last ones in the places of those that go; and from where to where these moved."""
    count = int(keep.sum())
    sources, targets = count + np.flatnonzero(keep[count:]), np.flatnonzero(~keep[:count])
    items = items.copy()
    items[targets] = items[sources]
    return items[:count], sources, targets
