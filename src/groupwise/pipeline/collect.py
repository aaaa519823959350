"""Completions for a data set: sampled and verified a few problems at a time, and filtered.

A kill loses only the problems in hand.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.evaluation.behaviour import Behaviour, row_behaviours
from groupwise.evaluation.metrics import has_format
from groupwise.pipeline.base import ComputeConfig
from groupwise.randomness import Draws, key
from groupwise.rollout.engine import AnyEngine, EngineConfig
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.progress import say
from groupwise.runs.rollouts import read_columns, read_rows, write_rollouts
from groupwise.runs.row import Row, grouped
from groupwise.tasks import TaskOptions
from groupwise.tasks.base import Template
from groupwise.tasks.conversations import ARGUMENTS
from groupwise.tasks.episodes import environments
from groupwise.types import FinishReason, Outcome, Problem

PROBLEMS_PER_PART = 32


class Asked(Section):
    """Settings shared by the stages that ask a model the training problems of a task."""

    task: TaskOptions
    """Task whose training problems are asked; a name in `tasks`."""
    model: ComputeConfig
    """Computation of the models."""
    sampling: SamplingConfig
    """Sampling of completions."""
    engine: AnyEngine = EngineConfig()
    """The engine that samples; a search or a reflection needs `in_process`."""
    seed: int
    """Seed of all draws."""

    plays: ClassVar[bool] = False
    """True where episodes can be rows."""

    @model_validator(mode="after")
    def _single(self) -> Self:
        if environments(self.task) and not self.plays:
            raise ValueError(
                "task is played in an environment, and this stage writes prompts with one completion each; allowed is "
                "a task of single answers, or the stages 'play' and 'rejection_sampling'"
            )
        return self


def collect_rows(
    actors: Actors,
    problems: Sequence[Problem],
    num_samples: int,
    sampling: SamplingConfig,
    draws: Draws,
    folder: Path,
    what: str = "problems sampled",
) -> list[Row]:
    """Return verified completions of the problems, in order; parts that are in the folder are read, not sampled."""
    rows: list[Row] = []
    for start in range(0, len(problems), PROBLEMS_PER_PART):
        say(what, start, len(problems))
        part = folder / f"{draws.name}-{start:06d}.parquet"
        if not part.exists():
            batch = problems[start : start + PROBLEMS_PER_PART]
            write_rollouts(part, sample_and_score(actors, batch, num_samples, sampling, draws))
        rows += read_rows(part)
    say(what, 1, 1)
    return rows


class Filters(Section):
    """Conditions for keeping a completion (DeepSeek-R1, arXiv:2501.12948, section 2.3). It has ended, not in a loop."""

    correct: bool = True
    """The verifier judges its answer correct."""
    tags: bool = True
    """Its tags are closed and in order."""
    one_language: bool = True
    """No word is in another script than that of the problem's language."""
    min_tokens: int = Field(0, ge=0)
    """Fewest tokens, for data that shall show long reasoning."""
    max_tokens: int = Field(0, ge=0)
    """Most tokens; 0: no limit."""
    max_paragraph: int = Field(0, ge=0)
    """Most characters of a paragraph; 0: no limit."""
    shows: tuple[Behaviour, ...] = ()
    """It shows at least one of these behaviours, for example `checks itself`."""


class Kept(NamedTuple):
    """Rows that passed, and the number of the others by reason."""

    rows: list[Row]
    dropped: dict[str, int]


def reason(row: Row, filters: Filters) -> str | None:
    """Return the first fault of a completion; None if it has none."""
    behaviours = row_behaviours(row)
    faults = {
        "verifier failed": row.outcome.failed,
        "no verdict": row.outcome is Outcome.NONE,
        "not correct": filters.correct and row.outcome is not Outcome.CORRECT,
        "tags": filters.tags and not row.turns and not has_format(row),  # each turn of an episode has tags
        "cut off": row.finish_reason is FinishReason.LENGTH,
        "mixed language": filters.one_language and Behaviour.MIXES_LANGUAGES in behaviours,
        "loop": Behaviour.LOOPS in behaviours and not row.turns,  # replies may repeat
        "too short": row.num_read < filters.min_tokens,
        "too long": bool(filters.max_tokens) and row.num_read > filters.max_tokens,
        "long paragraph": 0 < filters.max_paragraph < max(map(len, row.text.split("\n\n"))),
        "no such behaviour": bool(filters.shows) and not behaviours.intersection(filters.shows),
    }
    return next((name for name, applies in faults.items() if applies), None)


def keep(rows: Iterable[Row], filters: Filters, per_problem: int, before: Iterable[Row] = ()) -> Kept:
    """Keep rows that pass, each text once for its problem, at most `per_problem` (0: any number) of a problem.

    `before`: rows of other sources that were kept; their texts are not taken again.
    """
    passed, dropped, of_problem = list[Row](), Counter[str](), Counter[str]()
    seen = {(row.problem, row.text) for row in before}
    for row in rows:
        problem, text = row.problem, row.text
        fault = reason(row, filters)
        fault = fault or ("duplicate" if (problem, text) in seen else None)
        fault = fault or ("enough of its problem" if per_problem and of_problem[problem] >= per_problem else None)
        if fault:
            dropped[fault] += 1
        else:
            seen.add((problem, text))
            of_problem[problem] += 1
            passed.append(row)
    return Kept(passed, dict(dropped))


def balanced(rows: Sequence[Row], size: int, seed: int) -> list[Row]:
    """Take at most `size` rows, as evenly over the difficulties as they allow: one of each in turn, in random order."""
    shuffled = sorted(rows, key=lambda row: key(seed, "balance", row.problem, row.sample))
    queues = grouped(shuffled, lambda row: row.difficulty)
    chosen: list[Row] = []
    while len(chosen) < size and any(queues.values()):
        for label in sorted(queues):
            if queues[label] and len(chosen) < size:
                chosen.append(queues[label].pop())
    return chosen


def data_row(template: Template, problem: Problem, row: Row, source: str, model: str) -> dict[str, Any]:
    """Write a sampled completion as a row of a data set: as texts, or as messages where a chat template rendered."""
    of_chat = [{"role": "assistant", "content": template.prefill + row.text}]
    arguments = {ARGUMENTS: template.arguments} if template.chat and template.arguments else {}
    return {
        "prompt": template.messages(problem) if template.chat else template.render(problem) + template.prefill,
        "completion": of_chat if template.chat else row.text, "source": source, "model": model,
        "problem": problem.id, "reference": problem.reference, "difficulty": problem.difficulty,
        "language": problem.language, "sample": row.sample, "num_tokens": row.num_read, "verdict": row.evidence,
        **arguments,
    }  # fmt: skip


def episodes_in(folder: Path, tokenizer: Any) -> dict[tuple[str, int], list[tuple[str, bool]]]:
    """Return the episodes in the parts of a folder as texts, each with true where the policy said it.

    A turn is without the end token, which fine-tuning adds.
    """
    columns = ["problem", "sample", "prompt", "token_ids", "sampled", "turns"]
    found = dict[tuple[str, int], list[tuple[str, bool]]]()
    for part in sorted(folder.glob("*.parquet")):
        for record in read_columns(part, columns).to_pylist():
            if json.loads(record["turns"] or "[]"):
                mask = record["sampled"] or [True] * len(record["token_ids"])
                pieces = [(record["prompt"], False)]
                for is_own, tokens in groupby(zip(mask, record["token_ids"], strict=True), lambda token: token[0]):
                    text = tokenizer.decode([token for _, token in tokens])
                    pieces.append((text.removesuffix(tokenizer.eos_token) if is_own else text, is_own))
                found[record["problem"], record["sample"]] = pieces
    return found


def counts(rows: Iterable[Mapping[str, Any]], field: str) -> Mapping[str, int]:
    """Count the rows with each value of a field; rows of a user's file may lack the field."""
    return dict(sorted(Counter(str(row.get(field, "unknown")) for row in rows).items()))
