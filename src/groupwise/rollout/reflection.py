"""Reasoning that is opened again: a phrase is put into a completion, and the policy continues after it.

For models that do not follow examples: `<think>12+5=17.</think>...` becomes `<think>12+5=17. Wait, let me check.` and
what the model says then. What was put in is masked (`Completion.sampled`): it is read, never trained or counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ModelError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws
from groupwise.rollout.engine import Engine, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import Completion, FinishReason, Group

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
    drafts: list[tuple[int, Completion, list[int]]] = []
    for index, group in enumerate(groups):
        room = policy.context_length - sampling.max_tokens - len(group.prompt.token_ids)
        for completion in group.completions:
            ids = _opened(policy, completion, phrases.get(group.prompt.problem.language))
            if ids and len(ids) < sampling.max_tokens and len(ids) <= room:
                drafts.append((index, completion, ids))
    requests = []
    for index, completion, ids in drafts:
        prompt = groups[index].prompt
        after = draws.key_after("reflection", prompt.problem.id, completion.sample_index)
        requests.append(Request((*prompt.token_ids, *ids), (after,)))
    completions = [list(group.completions) for group in groups]

    def finished(request: int, sampled: Sequence[Sampled]) -> None:
        index, draft, ids = drafts[request]
        completions[index][draft.sample_index] = _joined(policy, draft, ids, sampled[0], sampling.max_tokens)

    engine.generate(requests, sampling, finished)
    return [replace(group, completions=tuple(own)) for group, own in zip(groups, completions, strict=True)]


def _opened(policy: Policy, completion: Completion, phrase: str | None) -> list[int] | None:
    """Token ids of the reasoning and the phrase."""
    thought, closed, _ = completion.text.partition(CLOSED)
    if not closed or phrase is None:
        return None
    return written(policy, thought, phrase)


def written(policy: Policy, thought: str, phrase: str) -> list[int]:
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


def _joined(policy: Policy, draft: Completion, ids: list[int], after: Sampled, max_tokens: int) -> Completion:
    """What was put in and what followed; no longer than any other completion may be."""
    put_in = len(ids)
    tokens = np.concatenate([np.array(ids, np.int64), after.token_ids])[:max_tokens]
    finish_reason = after.finish_reason if put_in + len(after.token_ids) <= max_tokens else FinishReason.LENGTH
    visible = tokens[:-1] if finish_reason is FinishReason.STOP else tokens

    def padded(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate([np.zeros(put_in, np.float32), values])[:max_tokens]

    return Completion(
        draft.sample_index,
        tokens,
        padded(after.logprobs),
        None if after.entropy is None else padded(after.entropy),
        finish_reason,
        policy.tokenizer.decode(visible.tolist()),
        sampled=np.arange(len(tokens)) >= put_in,
    )
