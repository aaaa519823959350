"""Evaluation, shared by trainers, pipelines and `groupwise eval`: sample problems several times and verify."""

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.evaluation.row import Row, rows_of
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import Problem, ScoredGroup


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scored completions of an evaluation; `evaluation.metrics` says of the rows what they amount to."""

    scored: tuple[ScoredGroup, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """One row per completion, made anew on every call."""
        return rows_of(self.scored)


def evaluate(
    actors: Actors, problems: Sequence[Problem], num_samples: int, sampling: SamplingConfig, draws: Draws
) -> Evaluation:
    """Sample `num_samples` completions of each problem and verify them.

    The draws depend on seed, purpose, problem and sample alone, so two checkpoints meet the same random numbers (a
    paired comparison), whatever the step.
    """
    return Evaluation(tuple(sample_and_score(actors, problems, num_samples, sampling, draws)))
