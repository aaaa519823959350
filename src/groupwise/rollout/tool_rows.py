"""The state of tools in the live batch: results that are being put in, calls that wait, completions that a call ended.

drawn tokens -> force: rows with a result take its next token instead
             -> look: rows that have just ended a call get a result, wait for one, or end
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.tool_watch import ToolWatch
from groupwise.rollout.tools import Seen
from groupwise.rollout.tools.base import answered
from groupwise.types import CallOutcome, FinishReason, ToolCall


class ToolRows:
    """The state of tools in one `generate` call; an output is the index of a completion among all requested."""

    def __init__(self, watch: ToolWatch, requests: Sequence[Request], width: int) -> None:
        total = sum(len(request.keys) for request in requests)
        self._watch = watch
        self.sampled = np.ones((total, width), np.bool_)
        """(total, width) False at tokens that were put in."""
        self.ended = np.zeros(total, np.bool_)
        self.calls = [list(request.calls) for request in requests for _ in request.keys]
        self.reason: dict[int, FinishReason] = {}
        self.waits_for: dict[int, Seen] = {}
        self._request = [(request, i) for request in requests for i in range(len(request.keys))]
        self._coming: dict[int, deque[int]] = {}
        """Tokens that are put in next."""
        self._begin = np.zeros(total, np.int64)
        self._opened = np.array([watch.letters.opens[list(r.open_tokens)].any() for r, _ in self._request], np.bool_)

    def force(self, outputs: NDArray[np.int64], at: NDArray[np.int64], *stored: NDArray[np.generic]) -> None:
        """Replace what the outputs (n,) drew at their positions by what is put in; `stored` are (total, width)."""
        if not self._coming:
            return
        tokens, *measured = stored
        for output, position in zip(outputs.tolist(), at.tolist(), strict=True):
            coming = self._coming.get(output)
            if coming is None:
                continue
            tokens[output, position] = coming.popleft()
            for values in measured:
                values[output, position] = 0
            self.sampled[output, position] = False
            self._begin[output] = position + 1
            if not coming:
                del self._coming[output]

    def waits(self, output: int) -> bool:
        return output in self._coming or output in self.waits_for

    def look(self, outputs: NDArray[np.int64], tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Find the calls that the outputs (n,), which have not finished, have just ended."""
        at = lengths[outputs] - 1
        drawn, last = self.sampled[outputs, at], tokens[outputs, at]
        self._opened[outputs] |= self._watch.letters.opens[last] & drawn
        for output in outputs[self._opened[outputs] & self._watch.letters.closes[last] & drawn].tolist():
            self._look(output, tokens[output, : lengths[output]])

    def told(self, output: int, one: Sampled) -> Sampled:
        return replace(
            one,
            finish_reason=self.reason.get(output, one.finish_reason),
            sampled=self.sampled[output, : len(one.token_ids)].copy(),
            calls=tuple(self.calls[output]),
            waits_for=self.waits_for.get(output),
        )

    def _look(self, output: int, token_ids: NDArray[np.int64]) -> None:
        since = [*self._before(output), *token_ids[self._begin[output] :].tolist()]
        found = self._watch.look(since)
        if found is None:
            return
        calls = self.calls[output]
        if ended := self._watch.refused(found, calls):
            self._end(output, ended.reason)
            calls.append(ended.call)
            return
        assert isinstance(found, Seen), found  # a fault is refused
        if not self._watch.tools[found.tool].immediate:
            self.waits_for[output] = found
            self._end(output, FinishReason.TOOL_CALL)
        elif (recorded := recorded_result(*self._request[output], token_ids)) is not None:
            self._put_in(output, recorded)
            calls.append(ToolCall(found.tool, found.call.content, CallOutcome.RECORDED))
        else:
            self._run(output, found)

    def _before(self, output: int) -> tuple[int, ...]:
        request, _ = self._request[output]
        return () if self._begin[output] else request.open_tokens

    def _run(self, output: int, seen: Seen) -> None:
        earlier = earlier_calls(self.calls[output], seen.tool)
        result = answered(self._watch.tools[seen.tool], seen.call.content, earlier)
        call, ids = self._watch.put_in(seen, result)
        self.calls[output].append(call)
        if call.outcome is CallOutcome.FAILED:
            self._end(output, FinishReason.TOOL_FAILED)
        else:
            self._put_in(output, ids)

    def _put_in(self, output: int, ids: Sequence[int]) -> None:
        self._coming[output] = deque(ids)
        self._opened[output] = False

    def _end(self, output: int, reason: FinishReason) -> None:
        self.ended[output] = True
        self.reason[output] = reason


def recorded_result(request: Request, sample: int, token_ids: NDArray[np.int64]) -> list[int] | None:
    """Return the result of when a completion was sampled before; None where nothing is recorded, or it differs."""
    if not request.recorded:
        return None
    begun = np.array(request.token_ids[len(request.token_ids) - request.begun :], np.int64)
    return request.recorded[sample].result(np.concatenate((begun, token_ids)))


def earlier_calls(calls: Sequence[ToolCall], tool: str) -> list[str]:
    """The contents of a completion's calls of a tool that later ones are told of."""
    return [call.content for call in calls if call.tool == tool and call.repeatable]
