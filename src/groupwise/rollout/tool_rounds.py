"""Completions that wait for a tool, in rounds: whoever calls leaves the batch and continues in the next round.

round 1: the engine samples; a completion that calls a tool ends there, its call runs in a thread, others continue
round 2: when all have ended, every result is appended as ids, and the engine continues those that called
...      until none calls

So the same completions meet in the same batches, to the last bit, however fast a tool is.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from groupwise.errors import ConfigError
from groupwise.models.policy import Policy
from groupwise.randomness import key
from groupwise.ranks.group import RANKS
from groupwise.rollout.engine import Engine, OnFinished, Request, Sampled
from groupwise.rollout.pieces import Draft, beginning, joined, phrase
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_watch import ToolWatch, earlier_calls, recorded_result
from groupwise.rollout.tools import Seen, Tool, ToolResult
from groupwise.rollout.tools.base import answered, failed
from groupwise.types import CallOutcome, FinishReason, ToolCall


def generate_with_tools(
    engine: Engine,
    policy: Policy,
    requests: Sequence[Request],
    sampling: SamplingConfig,
    on_finished: OnFinished,
    watch: ToolWatch | None = None,
) -> None:
    """`engine.generate` with the tools of the sampling section, whether the engine knows of them or not.

    Every token is drawn under its request's key at its position; an engine that does not know of tools gets a new
    key for each piece. Tools of a `watch` are open already and stay open.
    """
    if not sampling.tools:
        engine.generate(requests, sampling, on_finished)
        return
    with nullcontext(watch) if watch else ToolWatch.of(policy, sampling.tools) as tools:
        context = getattr(engine, "context_length", policy.context_length)
        _Rounds(engine, tools, context, requests, sampling, on_finished).run()


@dataclass(slots=True)
class _Draft(Draft):
    open_tokens: tuple[int, ...]
    calls: list[ToolCall]
    seen: Seen | None = None
    running: "Future[ToolResult] | None" = None
    reason: FinishReason = FinishReason.TOOL_CALL

    @property
    def goes_on(self) -> bool:
        return bool(self.pieces) and self.reason is FinishReason.TOOL_CALL

    def since_result(self) -> list[int]:
        begin = next((i + 1 for i in reversed(range(len(self.pieces))) if self.pieces[i].num_put_in), 0)
        before = () if begin else self.open_tokens
        return [*before, *(token for piece in self.pieces[begin:] for token in piece.token_ids.tolist())]

    def whole(self) -> Sampled:
        return replace(joined(self.pieces), finish_reason=self.reason, calls=tuple(self.calls), waits_for=None)


class _Rounds:
    def __init__(
        self,
        engine: Engine,
        watch: ToolWatch,
        context: int,
        requests: Sequence[Request],
        sampling: SamplingConfig,
        on_finished: OnFinished,
    ) -> None:
        self._engine, self._watch, self._context = engine, watch, context
        self._requests, self._sampling, self._on_finished = requests, sampling, on_finished
        self._knows_tools = bool(getattr(engine, "uses_tools", False))
        if not self._knows_tools and any(request.pause for request in requests):
            raise ConfigError(
                "this engine knows nothing of tools, and a search in steps has to pause between them: allowed with "
                "sampling.tools is engine.kind = 'in_process'"
            )
        self._drafts = [
            [_Draft(r, s, request.open_tokens, list(request.calls)) for s in range(len(request.keys))]
            for r, request in enumerate(requests)
        ]
        self._places = {name: threading.Semaphore(tool.parallel) for name, tool in watch.tools.items()}

    def run(self) -> None:
        """All rounds; every rank has as many as the others, for its engine may need their weights."""
        first = self._with_stops(self._requests, [request.open_tokens for request in self._requests])
        asked: list[tuple[Request, list[_Draft]]] = list(zip(first, self._drafts, strict=True))
        while RANKS.most(len(asked), beside=True):
            most = max((request.max_tokens or self._sampling.max_tokens for request, _ in asked), default=1)
            self._engine.generate(
                [request for request, _ in asked],
                self._sampling.model_copy(update={"max_tokens": most}),
                partial(self._arrived, [own for _, own in asked]),
            )
            waiting = [draft for group in self._drafts for draft in group if draft.goes_on]
            going = [draft for draft in waiting if self._goes_on(draft)]
            then = self._with_stops(map(self._continued, going), [draft.since_result() for draft in going])
            asked = [(request, [draft]) for request, draft in zip(then, going, strict=True)]

    def _with_stops(self, requests: Iterable[Request], since: Sequence[Sequence[int]]) -> list[Request]:
        if self._knows_tools:
            return list(requests)
        return [replace(one, stops=self._watch.stops(ids)) for one, ids in zip(requests, since, strict=True)]

    def _arrived(self, drafts: Sequence[list[_Draft]], index: int, sampled: Sequence[Sampled]) -> None:
        for draft, one in zip(drafts[index], sampled, strict=True):
            self._add(draft, one if self._knows_tools else self._cut(one, draft))
        self._tell(drafts[index][0].request)

    def _add(self, draft: _Draft, one: Sampled) -> None:
        draft.pieces.append(one)
        draft.calls = list(one.calls)
        draft.reason, draft.seen = one.finish_reason, one.waits_for
        if draft.seen is not None and self._recorded(draft) is None:
            name, earlier = draft.seen.tool, earlier_calls(draft.calls, draft.seen.tool)
            draft.running = _begun(self._watch.tools[name], draft.seen.call.content, earlier, self._places[name])

    def _recorded(self, draft: _Draft) -> list[int] | None:
        return recorded_result(self._requests[draft.request], draft.sample, draft.token_ids)

    def _tell(self, request: int) -> None:
        drafts = self._drafts[request]
        if all(draft.pieces and not draft.goes_on for draft in drafts):
            self._on_finished(request, [draft.whole() for draft in drafts])

    def _goes_on(self, draft: _Draft) -> bool:
        if (seen := draft.seen) is None:
            return self._put_in(draft, [])
        if (recorded := self._recorded(draft)) is not None:
            ids: Sequence[int] = recorded
            draft.calls.append(ToolCall(seen.tool, seen.call.content, CallOutcome.RECORDED))
        else:
            assert draft.running is not None
            call, ids = self._watch.put_in(seen, draft.running.result())
            draft.calls.append(call)
        draft.seen = draft.running = None
        if draft.calls[-1].outcome is CallOutcome.FAILED:
            draft.reason = FinishReason.TOOL_FAILED
            self._tell(draft.request)
            return False
        return self._put_in(draft, ids)

    def _put_in(self, draft: _Draft, ids: Sequence[int]) -> bool:
        request, length = self._requests[draft.request], len(draft.token_ids)
        room = self._context - len(request.token_ids) - length
        if ids:
            draft.pieces.append(phrase(ids[:room]))
        pauses = ids and request.pause is not None and request.pause(draft.token_ids.tolist())
        if len(ids) < room and not pauses:
            return True
        draft.reason = FinishReason.LENGTH
        self._tell(draft.request)
        return False

    def _continued(self, draft: _Draft) -> Request:
        request, own = self._requests[draft.request], draft.token_ids.tolist()
        token_ids, pause = (*request.token_ids, *own), request.pause
        left = request.room(self._sampling) - draft.num_drawn
        own_key = request.keys[draft.sample]
        return Request(
            token_ids,
            (own_key if self._knows_tools else key("after a call", own_key, len(own)),),
            begun=request.begun + len(own),
            max_tokens=min(left, self._context - len(token_ids)),
            pause=(lambda ids: pause([*own, *ids])) if pause else None,
            calls=tuple(draft.calls),
            recorded=(request.recorded[draft.sample],) if request.recorded else (),
        )

    def _cut(self, one: Sampled, draft: _Draft) -> Sampled:
        left = self._requests[draft.request].room(self._sampling) - draft.num_drawn
        paused = one.finish_reason is FinishReason.TOOL_CALL
        if len(one.token_ids) > left or (paused and len(one.token_ids) == left):
            [one] = beginning([one], left)
            one = replace(one, finish_reason=FinishReason.LENGTH)
        before, ids = draft.since_result(), one.token_ids.tolist()
        paused = one.finish_reason is FinishReason.TOOL_CALL  # at the very end of others there is no room
        closes = np.flatnonzero(self._watch.closes[one.token_ids[: None if paused else -1]])
        for end in (closes + 1).tolist():
            found = self._watch.look([*before, *ids[:end]])
            if found is None:
                continue
            [start] = beginning([one], end)
            if ended := self._watch.refused(found, draft.calls):
                return replace(start, finish_reason=ended[0], calls=(*draft.calls, ended[1]))
            assert isinstance(found, Seen), found  # a fault is refused
            return replace(start, finish_reason=FinishReason.TOOL_CALL, calls=tuple(draft.calls), waits_for=found)
        return replace(one, calls=tuple(draft.calls))


def _begun(tool: Tool, call: str, earlier: Sequence[str], places: threading.Semaphore) -> "Future[ToolResult]":
    """Run a call in a thread once it has a place; its time begins when its tool has started."""
    future: Future[ToolResult] = Future()

    def end(result: ToolResult) -> None:
        with suppress(InvalidStateError):  # it has ended before
            future.set_result(result)
            places.release()

    def run() -> None:
        limit = tool.config.timeout_s
        late = ToolResult("", CallOutcome.FAILED, limit, f"no result within {limit:g} s")
        timer = threading.Timer(limit, end, (late,))
        timer.daemon = True
        places.acquire()
        try:
            tool.start()
            timer.start()
            end(answered(tool, call, earlier))
        except BaseException as error:  # of a thread nobody else hears
            end(failed(error))
        finally:
            timer.cancel()

    threading.Thread(target=run, name="tool", daemon=True).start()
    return future
