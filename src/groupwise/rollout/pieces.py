"""Completions in pieces: what is put in between, what the pieces are together, and how a completion goes on.

A piece that nobody drew is a phrase of the caller's. In any other what was put in are results of tools, each behind the
call that it belongs to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from groupwise.models.policy import Policy
from groupwise.rollout.engine import Pause, Request, Sampled
from groupwise.rollout.tools import ToolSections
from groupwise.types import CallOutcome, Completion, FinishReason, ToolCall, put_in

Pieces = Sequence[Sampled]
"""Of one completion, in order. Each has the calls of those before it, too."""


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
        if end > 0:
            result.append(_beginning(piece, end, before))
        end, before = end - len(piece.token_ids), len(piece.calls)
    return result


def _beginning(piece: Sampled, end: int, calls_before: int) -> Sampled:
    if end >= len(piece.token_ids):
        return piece
    drawn = piece.drawn[:end]
    results = len(put_in(piece.token_ids[:end], drawn)) if drawn.any() else 0
    return Sampled(
        piece.token_ids[:end],
        piece.logprobs[:end],
        None if piece.entropy is None else piece.entropy[:end],
        FinishReason.LENGTH,
        drawn,
        piece.calls[: calls_before + results],
    )


def go_on(
    prompt: Sequence[int],
    pieces: Pieces,
    keys: tuple[int, ...],
    max_tokens: int,
    context: int,
    pause: Pause | None = None,
) -> Request | None:
    """The request for what follows; None where there is no room.

    Args:
        prompt: the tokens before the completion.
        pieces: what the completion has; none at its beginning.
        keys: of what follows.
        max_tokens: most tokens of the whole completion; phrases count, results of tools do not.
        context: most tokens that the model reads.
        pause: where to stop.
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
    """What was sampled, with its text and what of it is the completion's own."""
    return Completion(
        index, one.token_ids, one.logprobs, one.entropy, one.finish_reason, text, one.drawn, one.calls, own
    )


def completion_in(policy: Policy, index: int, pieces: Pieces, tools: ToolSections) -> Completion:
    """The completion that pieces make."""
    whole = joined(pieces)
    text: str = policy.tokenizer.decode(visible(policy, whole.token_ids.tolist()))
    return completion_of(index, whole, text, own_text(policy, pieces, tools))


def own_text(policy: Policy, pieces: Pieces, tools: ToolSections) -> str | None:
    """The text without what tools said that may not answer; None where nothing is left out."""
    if not tools or not any(piece.num_put_in for piece in pieces):
        return None
    written, is_whole = [list[int]()], True
    for before, piece in _with_calls(pieces):
        for ids, may_answer in _runs(piece, before, tools):
            if may_answer is None:  # what the policy wrote goes on from piece to piece
                written[-1] += ids.tolist()
            else:
                is_whole = is_whole and may_answer
                written += [ids.tolist(), []] if may_answer else [[]]
    if is_whole:
        return None
    return " ".join(policy.tokenizer.batch_decode([visible(policy, run) for run in written if run]))


def _with_calls(pieces: Pieces) -> Iterator[tuple[int, Sampled]]:
    """Every piece with the number of calls before it."""
    before = 0
    for piece in pieces:
        yield before, piece
        before = len(piece.calls)


def _runs(piece: Sampled, calls_before: int, tools: ToolSections) -> list[tuple[NDArray[np.int64], bool | None]]:
    """Runs of tokens of a piece; of each that a tool put in whether it may answer, else None."""
    if not piece.drawn.any():
        return [(piece.token_ids, None)]
    ran = [tools[call.tool].may_answer for call in piece.calls[calls_before:] if call.outcome not in _NOT_PUT_IN]
    runs = np.split(piece.token_ids, np.flatnonzero(np.diff(piece.drawn)) + 1)
    # a piece begins with what the policy wrote, so every second run is a tool's
    return [(run, (i // 2 < len(ran) and ran[i // 2]) if i % 2 else None) for i, run in enumerate(runs)]


_NOT_PUT_IN = (CallOutcome.FAILED, CallOutcome.LIMIT, CallOutcome.MALFORMED)
"""Calls without a result."""


def visible(policy: Policy, ids: list[int]) -> list[int]:
    """Tokens that a person reads: all but the stop token."""
    return ids[:-1] if ids and ids[-1] in policy.stop_ids else ids
