"""Stage `rejection_sampling`: the data of the second fine-tuning, from a reasoning model's own completions.

DeepSeek-R1 (arXiv:2501.12948, section 2.3.3): many completions per prompt, only correct ones, without mixed languages,
long paragraphs and loops; beside them data without reasoning, three to one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from groupwise.config.schema import DataRef, ModelRef, label
from groupwise.models.policy import load_policy
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.collect import Asked, collect_rows
from groupwise.pipeline.directory import read_rows, write_rows
from groupwise.pipeline.filters import Filters, balanced, counts, keep
from groupwise.pipeline.general import GeneralData, general_rows
from groupwise.randomness import Draws, Purpose, permutation
from groupwise.rollout.sample_and_score import Actors
from groupwise.runs.row import Row
from groupwise.tasks import make_task
from groupwise.tasks.base import split_problems
from groupwise.types import Outcome, Problem
from groupwise.verifiers import make_verifier


class RejectionConfig(Asked):
    """Settings of the stage."""

    path: ModelRef
    """The model that is sampled, for example `{reasoning_rl}`."""
    num_problems: int = Field(512, ge=1)
    """Training problems, the last of the split: fewer of them were seen in training."""
    num_samples: int = Field(8, ge=1)
    """Completions per problem."""
    filters: Filters = Filters()
    """What is kept."""
    per_problem: int = Field(4, ge=0)
    """Most completions of one problem; 0: any number."""
    num_rows: int = Field(2000, ge=1)
    """Most rows of reasoning; taken evenly from the difficulties."""
    include: tuple[DataRef, ...] = ()
    """Data sets whose rows are taken as they are, for example `{cold_start}`; they count as reasoning."""
    reasoning_per_general: float = Field(3.0, gt=0)
    """Rows of reasoning for each row of general data (DeepSeek-R1: 600,000 to 200,000)."""
    general: GeneralData | None = None
    """General data; None: there is none."""


class RejectionSampling(Stage[RejectionConfig]):
    """Samples, rejects, adds general data."""

    Config = RejectionConfig
    makes = "data"

    def run(self, settings: RejectionConfig, work: Workplace) -> Made:
        sampled, problems = self._sample(settings, work)
        selection = keep(sampled, settings.filters, settings.per_problem)
        chosen = balanced(selection.rows, settings.num_rows, settings.seed)
        template = settings.task.template
        model = label(self.config.path)
        reasoning = [_row(row, template.render(problems[row.problem]) + template.prefill, model) for row in chosen]
        reasoning += [row for path in settings.include for row in read_rows(Path(path))]
        rows, statistics = reasoning, dict[str, Any]()
        if settings.general:
            most = round(len(reasoning) / settings.reasoning_per_general)
            general, statistics = general_rows(settings.general, most, settings.seed, settings.model, work.progress)
            rows = reasoning + general
        shuffled = [rows[i] for i in permutation(len(rows), settings.seed, "rejection sampling")]
        digest = write_rows(work.directory.data, shuffled)
        tokens = sum(row.length for row in sampled)
        return Made(work.directory.data, digest, tokens, 0, _statistics(sampled, selection.dropped, rows) | statistics)

    def _sample(self, settings: RejectionConfig, work: Workplace) -> tuple[list[Row], dict[str, Problem]]:
        task = make_task(settings.task)
        problems = split_problems(task, "train", None)[-settings.num_problems :]
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            policy = load_policy(settings.model.at(settings.path))
            actors = Actors.of(policy, task.template, verifier, settings.engine)
            rows = collect_rows(
                actors, problems, settings.num_samples, settings.sampling, Draws(settings.seed, Purpose.REJECTION),
                work.directory.samples, partial(work.progress, "problems sampled"),
            )  # fmt: skip
        return rows, {problem.id: problem for problem in problems}


def _row(row: Row, prompt: str, model: str) -> dict[str, Any]:
    """A row of the data set, with where it came from."""
    return {
        "prompt": prompt,
        "completion": row.text,
        "source": "rejection sampling",
        "model": model,
        "problem": row.problem,
        "reference": row.reference,
        "difficulty": row.difficulty,
        "language": row.language,
        "sample": row.sample,
        "num_tokens": row.num_read,
        "verdict": row.evidence,
    }


def _statistics(
    sampled: Sequence[Row], dropped: Mapping[str, int], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    solved = Counter(row.problem for row in sampled if row.outcome is Outcome.CORRECT)
    return {
        "rows": len(rows),
        "sampled": len(sampled),
        "dropped": dict(dropped),
        "sources": counts(rows, "source"),
        "languages": counts(rows, "language"),
        "problems_solved": len(solved),
        "problems": len({row.problem for row in sampled}),
    }
