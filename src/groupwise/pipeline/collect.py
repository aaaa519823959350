"""Completions for a data set: sampled and verified a few problems at a time, so that a kill loses only those."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from groupwise.evaluation.run_data import Row, evaluation_rows
from groupwise.models.policy import Policy
from groupwise.rollout.collect import collect
from groupwise.rollout.engine import Request, Sampled, generate
from groupwise.rollout.sampling import SamplingConfig
from groupwise.randomness import key
from groupwise.runs.rollouts import write_rollouts
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Problem
from groupwise.verifiers import Verifier, check_failures, score

CLOSED = "</think>"

PROBLEMS_PER_PART = 32


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
    reflection: Mapping[str, str] | None = None,
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
            if reflection is not None:
                groups = reflected(policy, groups, sampling, reflection, seed, purpose)
            scored = score(groups, verifier, sampling.max_tokens)
            check_failures(scored, verifier.config.max_failure_share)
            write_rollouts(part, scored)
        rows += evaluation_rows(part)
    progress(len(problems), len(problems))
    return rows


def reflected(
    policy: Policy, groups: Sequence[Group], sampling: SamplingConfig, phrases: Mapping[str, str], seed: int, purpose: str
) -> list[Group]:
    """The groups' completions with their reasoning opened again: cut before `</think>`, a phrase added, gone on with.

    A completion that closes no reasoning, or whose language has no phrase, stays as it is. What was put in was not
    sampled: its log-probabilities and entropies are NaN.
    """
    drafts = {
        (place, completion.sample_index): _draft(policy, group, completion, phrases)
        for place, group in enumerate(groups)
        for completion in group.completions
    }
    some = {where: ids for where, ids in drafts.items() if ids and len(ids) < sampling.max_tokens}
    requests = [
        Request((*groups[place].prompt.token_ids, *ids), (key(seed, purpose, "reflection", groups[place].prompt.problem.id, i),))
        for (place, i), ids in some.items()
    ]
    after = dict(zip(some, (found[0] for found in generate(policy, requests, sampling)), strict=True))
    return [
        replace(
            group,
            completions=tuple(
                _joined(policy, one, some[place, one.sample_index], after[place, one.sample_index])
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
    return ids


def _joined(policy: Policy, draft: Completion, ids: list[int], after: Sampled) -> Completion:
    nothing = np.full(len(ids), np.nan, np.float32)
    said = after.token_ids.tolist()
    visible = said[:-1] if after.finish_reason is FinishReason.STOP else said
    return Completion(
        draft.sample_index,
        np.concatenate([np.array(ids, np.int64), after.token_ids]),
        np.concatenate([nothing, after.logprobs]),
        np.concatenate([nothing, after.entropy]),
        after.finish_reason,
        policy.tokenizer.decode([*ids, *visible]),
    )
