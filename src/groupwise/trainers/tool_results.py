"""Results of tools that a run has recorded: a step that is sampled again needs no tool.

That is so in a replay, and after a kill for the steps between the last checkpoint and the kill. What a tool said stands
in the recorded tokens, at the places where `sampled` is false.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from groupwise.rollout.engine import Recorded
from groupwise.runs.directory import RunDirectory
from groupwise.runs.rollouts import read_columns

if TYPE_CHECKING:
    from groupwise.trainers.rl import Learner

L = TypeVar("L", bound="Learner")


def recorded_results(path: Path) -> dict[str, tuple[Recorded, ...]]:
    """The completions of a file of rollouts by problem; empty where there is no such file, or it has no tokens."""
    if not path.exists():
        return {}
    found: dict[str, list[Recorded]] = defaultdict(list)
    for row in read_columns(path, ["problem", "token_ids", "sampled"]).to_pylist():
        if row["token_ids"] is None:
            return {}
        ids = np.array(row["token_ids"], np.int64)
        sampled = np.ones(len(ids), np.bool_) if row["sampled"] is None else np.array(row["sampled"], np.bool_)
        found[row["problem"]].append(Recorded(ids, sampled))
    return {problem: tuple(completions) for problem, completions in found.items()}


def with_results(learner: L, run: RunDirectory, step: int) -> L:
    """The learner for a step that may have been recorded before."""
    if not learner.recipe.sampling.tools:
        return learner
    return replace(learner, actors=replace(learner.actors, recorded=recorded_results(run.rollouts(step))))
