"""Reasoning that is opened again: a phrase is put into a completion, and the policy continues after it.

For models that do not follow examples: `<think>12+5=17.</think>...` becomes `<think>12+5=17. Wait, let me check.` and
what the model says then. What was put in is masked (`Completion.sampled`): it is read, never trained or counted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from groupwise.errors import ModelError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws
from groupwise.rollout.engine import Engine, Request, Sampled
from groupwise.rollout.pieces import Pieces, beginning, completion_in, joined, of_completion, phrase
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import Group

CLOSED = "</think>"


def reflected(
    policy: Policy,
    engine: Engine,
    groups: Sequence[Group],
    sampling: SamplingConfig,
    phrases: Mapping[str, str],
    draws: Draws,
) -> list[Group]:
    """The groups' completions, cut before `</think>`, with a phrase (by language) added, and gone on with.

    A completion that closes no reasoning, whose language has no phrase, or that leaves no room, stays as it is.

    Raises:
        ModelError: the tokenizer cannot write a phrase.
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
    """The reasoning, as it was sampled up to its end, and a phrase; None where it has no end, or there is no phrase.

    Raises:
        ModelError: the tokenizer cannot write the phrase.
    """
    end = reasoning_end(policy, pieces)
    if end is None or said is None:
        return None
    begun = beginning(pieces, end.tokens)
    return [*begun, phrase(_written(policy, end.rest, said), begun[-1].calls if begun else ())]


class ReasoningEnd(NamedTuple):
    """Where a completion closes its reasoning."""

    tokens: int
    """How many stand before it."""
    rest: str
    """The end of the reasoning, where it is in one token with the mark behind it."""


def reasoning_end(policy: Policy, pieces: Pieces) -> ReasoningEnd | None:
    """The first mark that no tool has printed; None where the reasoning is open."""
    whole = joined(pieces)
    ids = whole.token_ids.tolist()
    text = policy.tokenizer.decode(ids)
    for mark in re.finditer(re.escape(CLOSED), text):
        thought = text[: mark.start()]
        tokens = _whole_tokens(policy, ids, thought)
        if whole.drawn[tokens]:
            return ReasoningEnd(tokens, thought[len(policy.tokenizer.decode(ids[:tokens])) :])
    return None


def _whole_tokens(policy: Policy, ids: Sequence[int], thought: str) -> int:
    """Most tokens that say nothing but the beginning of a text."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(policy.tokenizer.decode(ids[:middle])) <= len(thought) else (low, middle - 1)
    while not thought.startswith(policy.tokenizer.decode(ids[:low])):  # it ends within a character
        low -= 1
    return low


def _written(policy: Policy, thought: str, phrase: str) -> list[int]:
    """The ids of a phrase, and of what stands before it.

    Raises:
        ModelError: the tokenizer cannot write the phrase.
    """
    text = thought + phrase
    ids: list[int] = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    unknown = policy.tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        raise ModelError(f"the tokenizer cannot write the phrase {phrase!r} that opens reasoning again")
    return ids
