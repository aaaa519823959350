"""Between tools, which know text, and completions, which are token ids: a result becomes ids once.

In the live batch:

drawn tokens -> force: rows with a result take its next token instead
             -> look: rows that have just ended a call get a result, wait for one, or end
"""

import warnings
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError, InvariantError
from groupwise.models.policy import Policy
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.tools import Call, Fault, Seen, Tool, ToolConfig, ToolResult, make_tools
from groupwise.rollout.tools.base import (
    answered,
    decides,
    failed,
    first_call,
    said_of,
    without_answers,
    without_controls,
)
from groupwise.sandbox.base import Closing
from groupwise.types import CallOutcome, FinishReason, ToolCall

_MIDDLE = " ... "
"""Stands where a long result was cut."""


MAX_CHARACTERS_PER_TOKEN = 64
"""A longer result is cut before it is tokenised: hardly a token has so many characters."""


class Broken(NamedTuple):
    """A tool that failed while it looked for a call."""

    tool: str
    why: str


@dataclass(frozen=True, slots=True)
class ToolWatch(Closing):
    """The tools of a sampling section, as a tokenizer sees them."""

    tools: Mapping[str, Tool]
    tokenizer: Any
    stop_ids: frozenset[int]
    controls: tuple[str, ...]
    opens: NDArray[np.bool_]
    """(V,) True at tokens with a character of which a call of a tool has at least one."""
    closes: NDArray[np.bool_]

    @classmethod
    def of(cls, policy: Policy, sections: Mapping[str, ToolConfig]) -> "ToolWatch":
        tools = make_tools(sections)
        characters = ("".join(getattr(tool, side) for tool in tools.values()) for side in ("opens", "closes"))
        letters = (_with_any(policy.tokenizer, policy.vocabulary, side) for side in characters)
        controls = tuple(policy.tokenizer.all_special_tokens)
        return cls(tools, policy.tokenizer, frozenset(policy.stop_ids), controls, *letters)

    @property
    def room(self) -> int:
        immediate = [tool.config for tool in self.tools.values() if tool.immediate]
        return sum(config.max_calls * config.max_result_tokens for config in immediate)

    def close(self) -> None:
        for name, tool in self.tools.items():
            try:
                tool.close()
            except Exception as error:
                warnings.warn(f"the tool {name} cannot be closed: {said_of(error)}", stacklevel=2)

    def look(self, token_ids: Sequence[int]) -> Seen | Fault | Broken | None:
        text = _decoded(self.tokenizer, token_ids)
        try:
            return first_call(text, self.tools)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Broken(self._raises(text), said_of(error))

    def _raises(self, text: str) -> str:
        for name, tool in self.tools.items():
            try:
                first_call(text, {name: tool})
                tool.begins(text)
            except BaseException:
                return name
        return ", ".join(self.tools)

    def stops(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        text, tools = _decoded(self.tokenizer, token_ids), self.tools
        with suppress(Exception):  # a hint; what is wrong with a tool is said where it looks
            if len(tools) > 1 and (name := decides(text, tools)) is not None:
                return tools[name].stops(text)
            return tuple(dict.fromkeys(stop for tool in tools.values() for stop in tool.stops(text)))
        return ()

    def refused(self, found: Seen | Fault | Broken, calls: Sequence[ToolCall]) -> tuple[FinishReason, ToolCall] | None:
        """Return why a completion ends here because of a call; None where it goes on."""
        if isinstance(found, Broken):
            evidence = f"{found.tool}: {found.why}"
            return FinishReason.TOOL_FAILED, ToolCall(found.tool, "", CallOutcome.FAILED, 0.0, evidence)
        if isinstance(found, Fault):
            return FinishReason.MALFORMED_CALL, ToolCall("", "", CallOutcome.MALFORMED, 0.0, found.reason)
        most = self.tools[found.tool].config.max_calls
        if sum(call.tool == found.tool for call in calls) < most:
            return None
        evidence = f"more than {most} calls of {found.tool}"
        return FinishReason.TOOL_LIMIT, ToolCall(found.tool, found.call.content, CallOutcome.LIMIT, 0.0, evidence)

    def put_in(self, seen: Seen, result: ToolResult) -> tuple[ToolCall, list[int]]:
        """Return the call as it is reported, and the ids that are put in for it; none where the tool failed."""
        ids: list[int] = []
        if result.outcome is not CallOutcome.FAILED:
            try:
                result, ids = self.insertion(seen, result)
            except (ConfigError, KeyboardInterrupt):
                raise
            except BaseException as error:
                result = failed(f"its result cannot be put in: {said_of(error)}")
        evidence = f"{seen.tool}: {result.evidence}" if result.outcome is CallOutcome.FAILED else result.evidence
        return ToolCall(
            seen.tool, seen.call.content, result.outcome, result.seconds, evidence, repeatable=result.repeatable
        ), ids

    def insertion(self, seen: Seen, result: ToolResult) -> tuple[ToolResult, list[int]]:
        """Return the ids of a result between its marks, cut to its limit, without control tokens.

        The result is another one where it is too long and may not be cut.
        """
        tool = self.tools[seen.tool]
        text = result.text if tool.config.may_answer else without_answers(result.text)
        most = tool.config.max_result_tokens
        text = _shortened(text, MAX_CHARACTERS_PER_TOKEN * most) if tool.may_be_cut else text
        text = self._writable(without_controls(text, self.controls))
        ids = self._marked(seen.call, text)
        if not ids:
            raise ValueError("its text and the marks around it are empty")
        if len(ids) <= most:
            return result, ids
        if tool.may_be_cut:
            return result, self._cut(seen, text)
        why = f"a result of {len(ids)} tokens, more than max_result_tokens = {most}"
        said = replace(result, text=tool.too_long, outcome=CallOutcome.ERROR, evidence=why)
        return said, self._fitting(seen, tool.too_long)

    def _cut(self, seen: Seen, text: str) -> list[int]:
        most = self.tools[seen.tool].config.max_result_tokens
        kept = bisect_right(
            range(1, len(text) + 1), most, key=lambda kept: len(self._marked(seen.call, _shortened(text, kept)))
        )
        return self._fitting(seen, _shortened(text, kept))

    def _fitting(self, seen: Seen, text: str) -> list[int]:
        ids = self._marked(seen.call, text)
        most = self.tools[seen.tool].config.max_result_tokens
        if len(ids) > most:
            raise ConfigError(
                f"sampling.tools.{seen.tool}.max_result_tokens = {most}, but with this tokenizer the shortest result "
                f"has {len(ids)} tokens; at least so many are allowed"
            )
        return ids

    def _marked(self, call: Call, text: str) -> list[int]:
        ids = _encoded(self.tokenizer, call.opening + text + call.closing)
        if not self.stop_ids.isdisjoint(ids):
            raise InvariantError(f"the result of a tool holds a stop token: {text[:80]!r}")
        return ids

    def _writable(self, text: str) -> str:
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in _encoded(self.tokenizer, text):
            return text
        bad = {character for character in set(text) if unknown in _encoded(self.tokenizer, character)}
        return "".join("?" if character in bad else character for character in text)


def _encoded(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text. Where it says the same, the library below is asked: a tenth of the time for a short text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.padding is not None or backend.truncation is not None:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return list(backend.encode(text, add_special_tokens=False).ids)


def _decoded(tokenizer: Any, token_ids: Sequence[int]) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or getattr(tokenizer, "clean_up_tokenization_spaces", False):
        return str(tokenizer.decode(token_ids))
    return str(backend.decode(token_ids, skip_special_tokens=False))


def _shortened(text: str, kept: int) -> str:
    if kept >= len(text):
        return text
    tail = kept // 3
    return text[: kept - tail] + _MIDDLE + (text[-tail:] if tail else "")


@lru_cache(maxsize=8)
def _with_any(tokenizer: Any, vocabulary: int, characters: str) -> NDArray[np.bool_]:
    wanted = frozenset(characters)
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    found = np.zeros(vocabulary, np.bool_)
    found[: len(texts)] = [not wanted.isdisjoint(text) for text in texts][:vocabulary]
    return found


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
        self._opened = np.array([watch.opens[list(r.open_tokens)].any() for r, _ in self._request], np.bool_)

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
        self._opened[outputs] |= self._watch.opens[last] & drawn
        for output in outputs[self._opened[outputs] & self._watch.closes[last] & drawn].tolist():
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
        begin, calls = self._begin[output], self.calls[output]
        before = () if begin else self._request[output][0].open_tokens
        found = self._watch.look([*before, *token_ids[begin:].tolist()])
        if found is None:
            return
        if ended := self._watch.refused(found, calls):
            self._end(output, ended[0])
            calls.append(ended[1])
            return
        assert isinstance(found, Seen), found  # a fault is refused
        if not self._watch.tools[found.tool].immediate:
            self.waits_for[output] = found
            self._end(output, FinishReason.TOOL_CALL)
        elif (recorded := recorded_result(*self._request[output], token_ids)) is not None:
            self._put_in(output, recorded)
            calls.append(ToolCall(found.tool, found.call.content, CallOutcome.RECORDED))
        else:
            tool, earlier = self._watch.tools[found.tool], earlier_calls(calls, found.tool)
            call, ids = self._watch.put_in(found, answered(tool, found.call.content, earlier))
            calls.append(call)
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
