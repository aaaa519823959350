"""Completions for a data set: sampled and verified a few problems at a time, so that a kill loses only those."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import Section, parse
from groupwise.errors import ConfigError
from groupwise.evaluation.run_data import Row, evaluation_rows
from groupwise.pipeline.recipe import PipelineRecipe, merged, with_sampling, with_tasks
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.rollouts import write_rollouts
from groupwise.types import Problem

PROBLEMS_PER_PART = 32


def checked(kind: type[Section], table: Mapping[str, Any], recipe: PipelineRecipe, where: str) -> dict[str, Any]:
    """The settings of a stage that makes data of a model's completions; what its table leaves out is the pipeline's.

    Raises:
        ConfigError: the table cannot be used, or the task's prompts are more than text.
    """
    shared = recipe.model_dump(mode="json")
    below = {"model": shared["model"], "sampling": shared["sampling"], "seed": recipe.pipeline.seed}
    own = with_sampling(with_tasks(table, shared["tasks"], where), shared["sampling"])
    whole = parse(kind, merged(below, own), source=where)
    settings = whole.model_dump(mode="json", exclude={"model": {"path"}})
    if settings["task"]["template"]["chat"]:
        raise ConfigError(f"{where}.task.template.chat = true: rows of data are plain text, so false is allowed")
    return settings


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
            some = problems[start : start + PROBLEMS_PER_PART]
            write_rollouts(part, sample_and_score(actors, some, num_samples, sampling, draws))
        rows += evaluation_rows(part)
    progress(len(problems), len(problems))
    return rows
