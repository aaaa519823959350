"""Completions for a data set: sampled and verified a few problems at a time, so that a kill loses only those."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from pydantic import model_validator

from groupwise.config import Section
from groupwise.pipeline.base import ComputeConfig
from groupwise.randomness import Draws
from groupwise.rollout.engine import AnyEngine, EngineConfig
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.rollouts import read_rows, write_rollouts
from groupwise.runs.row import Row
from groupwise.tasks import TaskOptions
from groupwise.types import Problem

PROBLEMS_PER_PART = 32


class Asked(Section):
    """Settings shared by the stages that ask a model the training problems of a task."""

    task: TaskOptions
    """Whose training problems are asked; a name in `tasks`."""
    model: ComputeConfig
    """How models compute."""
    sampling: SamplingConfig
    """How completions are drawn."""
    engine: AnyEngine = EngineConfig()
    """The engine that samples; a search or a reflection needs `in_process`."""
    seed: int
    """Seed of all draws."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: rows of data are plain text, so false is allowed")
        return self


def collect_rows(
    actors: Actors,
    problems: Sequence[Problem],
    num_samples: int,
    sampling: SamplingConfig,
    draws: Draws,
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Verified completions of the problems, in order; parts that are already in the folder are read, not sampled."""
    rows: list[Row] = []
    for start in range(0, len(problems), PROBLEMS_PER_PART):
        progress(start, len(problems))
        part = folder / f"{draws.name}-{start:06d}.parquet"
        if not part.exists():
            batch = problems[start : start + PROBLEMS_PER_PART]
            write_rollouts(part, sample_and_score(actors, batch, num_samples, sampling, draws))
        rows += read_rows(part)
    progress(len(problems), len(problems))
    return rows
