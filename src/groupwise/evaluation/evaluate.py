"""Evaluation, shared by trainers, pipelines and `groupwise eval`: sample problems several times and verify."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf, Section
from groupwise.evaluation.held_out import ALARM
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.row import Row, rows_of
from groupwise.types import Problem, ScoredGroup
from groupwise.verifiers import VERIFIERS, VerifierConfig

JUDGED_AGAIN = ReadIf(lambda evaluation: evaluation.second_verifier is not None, "a second_verifier")


class EvaluationConfig(Section):
    """Evaluation on held-out problems during the run, and once on the test split at its end."""

    every: int = Field(20, ge=1)
    """Steps between two evaluations on the dev split."""
    num_problems: int = Field(100, ge=1)
    """Dev problems (the first of the split)."""
    num_samples: int = Field(4, ge=1)
    """Completions per dev problem."""
    test_problems: int = Field(200, ge=0)
    """Test problems; the test split is opened once, after training, for the start and the best checkpoint. 0: never."""
    test_samples: int = Field(4, ge=1)
    """Completions per test problem."""
    second_verifier: Annotated[VerifierConfig, VERIFIERS] | None = None
    """Verifier that training never uses and that judges a sample of every dev evaluation again, for example `math`
    beside `number`: where it rejects what training rewards, training has found a hole in its verifier. Missing keys of
    its section are those of the `verifier` section."""
    second_sample: Annotated[int, Field(ge=1), JUDGED_AGAIN] = 100
    """Completions with a correct answer that it judges, drawn at random."""
    alarm: Annotated[float, Field(ge=0, lt=1), JUDGED_AGAIN] = ALARM
    """The alarm sounds when it rejects more than this share of them, beyond chance (lower end of the 95 % interval)."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scored completions of an evaluation; `evaluation.metrics` makes figures of its rows."""

    scored: tuple[ScoredGroup, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return rows_of(self.scored)


def evaluate(
    actors: Actors, problems: Sequence[Problem], num_samples: int, sampling: SamplingConfig, draws: Draws
) -> Evaluation:
    """Sample `num_samples` completions of each problem and verify them; any checkpoint gets the same random numbers."""
    return Evaluation(tuple(sample_and_score(actors, problems, num_samples, sampling, draws)))
