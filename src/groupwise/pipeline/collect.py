"""Completions for a data set: sampled and verified a few problems at a time, so that a kill loses only those."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np
from pydantic import model_validator

from groupwise.config import Section
from groupwise.errors import ModelError
from groupwise.evaluation.run_data import Row, evaluation_rows
from groupwise.models.policy import Policy
from groupwise.pipeline.base import ComputeConfig
from groupwise.randomness import key
from groupwise.rollout.collect import collect
from groupwise.rollout.engine import Request, Sampled, generate
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.rollouts import write_rollouts
from groupwise.tasks import TaskOptions
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Problem
from groupwise.verifiers import Verifier, check_failures, score

CLOSED = "</think>"

PROBLEMS_PER_PART = 32


class Asked(Section):
    """What the settings of all stages have that ask a model the training problems of a task."""

    task: TaskOptions
    """Whose training problems are asked; a name in `tasks`."""
    model: ComputeConfig
    """How models compute."""
    sampling: SamplingConfig
    """How completions are drawn."""
    seed: int
    """Seed of all draws."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: rows of data are plain text, so false is allowed")
        return self


def collect_rows(
    policy: Policy,
    template: Template,
    problems: Sequence[Problem],
    verifier: Verifier,
    sampling: SamplingConfig,
    folder: Path,
    *,
    num_samples: int,
    seed: int,
    purpose: str,
    reflection: Mapping[str, str] = MappingProxyType({}),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Verified completions of the problems, in order; parts that are already in the folder are read, not sampled.

    With `reflection` (a phrase by language) every completion that closes its reasoning is a draft: the model goes on
    after the reasoning and the phrase, and what it says then takes the draft's place.
    """
    rows: list[Row] = []
    for start in range(0, len(problems), PROBLEMS_PER_PART):
        progress(start, len(problems))
        part = folder / f"{purpose}-{start:06d}.parquet"
        if not part.exists():
            some = problems[start : start + PROBLEMS_PER_PART]
            groups = collect(policy, template, some, num_samples, sampling, seed=seed, purpose=purpose, step=0)
            if reflection:
                groups = reflected(policy, groups, sampling, reflection, seed, purpose)
            scored = score(groups, verifier, sampling.max_tokens)
            check_failures(scored, verifier.config.max_failure_share)
            write_rollouts(part, scored)
        rows += evaluation_rows(part)
    progress(len(problems), len(problems))
    return rows


def reflected(
    policy: Policy,
    groups: Sequence[Group],
    sampling: SamplingConfig,
    phrases: Mapping[str, str],
    seed: int,
    purpose: str,
) -> list[Group]:
    """The groups' completions with their reasoning opened again: cut before `</think>`, a phrase added, gone on with.

    A completion that closes no reasoning, whose language has no phrase, or that leaves no room, stays as it is.
    What was put in was not sampled: its log-probabilities and entropies are NaN.

    Raises:
        ModelError: the tokenizer cannot write a phrase.
    """
    drafts = {
        (place, completion.sample_index): _draft(policy, group, completion, phrases)
        for place, group in enumerate(groups)
        for completion in group.completions
    }
    room = policy.context_length - sampling.max_tokens
    some = {
        (place, i): ids
        for (place, i), ids in drafts.items()
        if ids and len(ids) < sampling.max_tokens and len(groups[place].prompt.token_ids) + len(ids) <= room
    }
    requests = [
        Request((*prompt.token_ids, *ids), (key(seed, purpose, "reflection", prompt.problem.id, i),))
        for (place, i), ids in some.items()
        for prompt in (groups[place].prompt,)
    ]
    after = dict(zip(some, (found[0] for found in generate(policy, requests, sampling)), strict=True))
    return [
        replace(
            group,
            completions=tuple(
                _joined(policy, one, some[place, one.sample_index], after[place, one.sample_index], sampling.max_tokens)
                if (place, one.sample_index) in after
                else one
                for one in group.completions
            ),
        )
        for place, group in enumerate(groups)
    ]


def _draft(policy: Policy, group: Group, completion: Completion, phrases: Mapping[str, str]) -> list[int] | None:
    thought, closed, _ = completion.text.partition(CLOSED)
    phrase = phrases.get(group.prompt.problem.language)
    if not closed or phrase is None:
        return None
    ids: list[int] = policy.tokenizer(thought + phrase, add_special_tokens=False)["input_ids"]
    unknown = policy.tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        raise ModelError(f"the tokenizer cannot write the phrase {phrase!r} of `reflection`")
    return ids


def _joined(policy: Policy, draft: Completion, ids: list[int], after: Sampled, max_tokens: int) -> Completion:
    """What was put in and what followed; no longer than any other completion may be."""
    nothing = np.full(len(ids), np.nan, np.float32)
    tokens = np.concatenate([np.array(ids, np.int64), after.token_ids])[:max_tokens]
    finish_reason = after.finish_reason if len(ids) + len(after.token_ids) <= max_tokens else FinishReason.LENGTH
    visible = tokens[:-1] if finish_reason is FinishReason.STOP else tokens
    return Completion(
        draft.sample_index,
        tokens,
        np.concatenate([nothing, after.logprobs])[:max_tokens],
        np.concatenate([nothing, after.entropy])[:max_tokens],
        finish_reason,
        policy.tokenizer.decode(visible.tolist()),
    )
