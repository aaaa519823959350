"""Completions in pieces: phrases of the caller, results of tools, and how a completion continues."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ModelError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws
from groupwise.rollout.engine import Engine, Pause, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tools import ToolSections
from groupwise.types import CallOutcome, Completion, FinishReason, Group, ToolCall, put_in

REPLACED = "\ufffd"
"""Stands for bytes that are no character, or none yet."""
Pieces = Sequence[Sampled]
"""The pieces of one completion, in order. Each has the calls of those before it, too."""


@dataclass(slots=True)
class Draft:
    """A completion of a request that is sampled in rounds."""

    request: int
    sample: int
    pieces: list[Sampled] = field(default_factory=list, init=False)

    @property
    def token_ids(self) -> NDArray[np.int64]:
        return np.concatenate([piece.token_ids for piece in self.pieces])

    @property
    def num_drawn(self) -> int:
        return sum(piece.num_drawn for piece in self.pieces)


def phrase(ids: Sequence[int], calls: tuple[ToolCall, ...] = ()) -> Sampled:
    """A piece that nobody drew, behind these calls."""
    zeros = np.zeros(len(ids), np.float32)
    return Sampled(np.array(ids, np.int64), zeros, zeros, FinishReason.LENGTH, np.zeros(len(ids), np.bool_), calls)


def of_completion(one: Completion) -> Sampled:
    """A whole completion, in which only tools have put something in, as a piece."""
    return Sampled(one.token_ids, one.sampling_logprobs, one.entropy, one.finish_reason, one.sampled, one.calls)


def joined(pieces: Pieces) -> Sampled:
    """The pieces, at least one, in one; it ends and has called as the last of them says."""
    entropies = [piece.entropy for piece in pieces if piece.entropy is not None]
    return replace(
        pieces[-1],
        token_ids=np.concatenate([piece.token_ids for piece in pieces]),
        logprobs=np.concatenate([piece.logprobs for piece in pieces]),
        entropy=np.concatenate(entropies) if len(entropies) == len(pieces) else None,
        sampled=np.concatenate([piece.drawn for piece in pieces]),
    )


def beginning(pieces: Pieces, end: int) -> list[Sampled]:
    """The pieces of the first `end` tokens, with the calls whose results they have; none of them is empty."""
    result, before = list[Sampled](), 0
    for piece in pieces:
        if end <= 0:
            break
        if end < len(piece.token_ids):
            ids, drawn = piece.token_ids[:end], piece.drawn[:end]
            entropy = None if piece.entropy is None else piece.entropy[:end]
            calls = piece.calls[: before + (len(put_in(ids, drawn)) if drawn.any() else 0)]
            result.append(Sampled(ids, piece.logprobs[:end], entropy, FinishReason.LENGTH, drawn, calls))
            break
        result.append(piece)
        end, before = end - len(piece.token_ids), len(piece.calls)
    return result


def go_on(
    prompt: Sequence[int],
    pieces: Pieces,
    keys: tuple[int, ...],
    max_tokens: int,
    context: int,
    pause: Pause | None = None,
) -> Request | None:
    """Return the request for what follows the pieces; None where there is no room.

    `max_tokens` counts phrases and what was drawn, not results of tools.
    """
    if not pieces:
        return Request(tuple(prompt), keys, pause=pause)
    begun = joined(pieces)
    token_ids = (*prompt, *begun.token_ids.tolist())
    left = min(max_tokens - length(pieces), context - len(token_ids))
    if left < 1:
        return None
    return Request(
        token_ids, keys, len(begun.token_ids), left, pause, calls=begun.calls, since_result=begun.since_put_in
    )


def length(pieces: Pieces) -> int:
    """Tokens that count as a completion's length: all but the results of tools."""
    return sum(piece.num_drawn or len(piece.token_ids) for piece in pieces)


def completion_of(index: int, one: Sampled, text: str, own: str | None) -> Completion:
    """Return a sampled completion with its text, and the part of the text that counts as its answer."""
    return Completion(
        index, one.token_ids, one.logprobs, one.entropy, one.finish_reason, text, one.drawn, one.calls, own, one.turns
    )


def completion_in(policy: Policy, index: int, pieces: Pieces, tools: ToolSections) -> Completion:
    """The completion that pieces make."""
    whole = joined(pieces)
    text: str = policy.tokenizer.decode(visible(policy, whole.token_ids.tolist()))
    return completion_of(index, whole, text, own_text(policy, pieces, tools))


def own_text(policy: Policy, pieces: Pieces, tools: ToolSections) -> str | None:
    """The text without what environments, and tools that may not answer, said; None where nothing is left out."""
    if any(piece.turns for piece in pieces):
        [one] = pieces  # an episode is sampled in one go
        said = np.split(one.token_ids, np.flatnonzero(np.diff(one.drawn)) + 1)[::2]
        return "\n".join(policy.tokenizer.batch_decode([visible(policy, run.tolist()) for run in said]))
    if not tools or not any(piece.num_put_in for piece in pieces):
        return None
    written, is_whole, before = [list[int]()], True, 0
    for piece in pieces:
        ran = [tools[call.tool].may_answer for call in piece.calls[before:] if call.outcome not in _NOT_PUT_IN]
        before = len(piece.calls)
        # a piece begins with what the policy wrote, or is a phrase, so every second run is a tool's
        for i, ids in enumerate(np.split(piece.token_ids, np.flatnonzero(np.diff(piece.drawn)) + 1)):
            if i % 2 == 0:  # what the policy wrote goes on from piece to piece
                written[-1] += ids.tolist()
            else:
                may_answer = i // 2 < len(ran) and ran[i // 2]
                is_whole = is_whole and may_answer
                written += [ids.tolist(), []] if may_answer else [[]]
    if is_whole:
        return None
    return " ".join(policy.tokenizer.batch_decode([visible(policy, run) for run in written if run]))


_NOT_PUT_IN = (CallOutcome.FAILED, CallOutcome.LIMIT, CallOutcome.MALFORMED)
"""Calls without a result."""


def visible(policy: Policy, ids: list[int]) -> list[int]:
    """Tokens that a person reads: all but the stop token."""
    return ids[:-1] if ids and ids[-1] in policy.stop_ids else ids


class Written:
    """The text of a completion as it grows: what was added makes, put together, the text of the whole."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._text = ""

    def add(self, ids: Sequence[int], is_end: bool = False) -> str:
        """Return what all tokens so far add to the text; half a character waits for its other bytes.

        Where a tokenizer writes the beginning of a text otherwise once more follows, the whole stands at the end again.
        """
        text: str = self._tokenizer.decode(list(ids))
        shown = text if is_end else text.rstrip(REPLACED)
        if not shown.startswith(self._text):
            return f"\n{shown}" if is_end else ""
        added, self._text = shown[len(self._text) :], shown
        return added


CLOSED = "</think>"


def reflected(
    policy: Policy,
    engine: Engine,
    groups: Sequence[Group],
    sampling: SamplingConfig,
    phrases: Mapping[str, str],
    draws: Draws,
) -> list[Group]:
    """Cut the groups' completions before `</think>`, add a phrase (by language) and continue them.

    A completion that closes no reasoning, whose language has no phrase, or that leaves no room, stays as it is.
    """
    opened: list[tuple[int, int, Sampled]] = []
    requests = []
    for index, group in enumerate(groups):
        room = policy.context_length - sampling.max_tokens - len(group.prompt.token_ids)
        for completion in group.completions:
            begun = opened_again(policy, [of_completion(completion)], phrases.get(group.prompt.problem.language))
            ids = joined(begun).token_ids.tolist() if begun else []
            if begun and len(ids) < sampling.max_tokens and len(ids) <= room:
                after = draws.key_after("reflection", group.prompt.problem.id, completion.sample_index)
                left = sampling.max_tokens - len(ids)
                opened.append((index, completion.sample_index, phrase(ids)))
                requests.append(Request((*group.prompt.token_ids, *ids), (after,), max_tokens=left))
    completions = [list(group.completions) for group in groups]

    def finished(request: int, sampled: Sequence[Sampled]) -> None:
        index, sample, begun = opened[request]
        completions[index][sample] = completion_in(policy, sample, [begun, *sampled], {})

    engine.generate(requests, sampling, finished)
    return [replace(group, completions=tuple(own)) for group, own in zip(groups, completions, strict=True)]


def opened_again(policy: Policy, pieces: Pieces, said: str | None) -> list[Sampled] | None:
    """Return the reasoning up to its end, and a phrase; None where it has no end, or there is no phrase."""
    end = reasoning_end(policy, pieces)
    if end is None or said is None:
        return None
    tokens, rest = end
    begun = beginning(pieces, tokens)
    ids: list[int] = policy.tokenizer(rest + said, add_special_tokens=False)["input_ids"]
    unknown = policy.tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        raise ModelError(f"the tokenizer cannot write the phrase {said!r} that opens reasoning again")
    return [*begun, phrase(ids, begun[-1].calls if begun else ())]


def reasoning_end(policy: Policy, pieces: Pieces) -> tuple[int, str] | None:
    """Tokens before the first mark that no tool has printed, and the text behind them; None where it is open."""
    whole, decode = joined(pieces), policy.tokenizer.decode
    ids = whole.token_ids.tolist()
    text = decode(ids)
    for mark in re.finditer(re.escape(CLOSED), text):
        thought = text[: mark.start()]
        tokens = bisect_right(range(1, len(ids) + 1), len(thought), key=lambda count: len(decode(ids[:count])))
        while not thought.startswith(decode(ids[:tokens])):  # it ends within a character
            tokens -= 1
        if whole.drawn[tokens]:
            return tokens, thought[len(decode(ids[:tokens])) :]
    return None
