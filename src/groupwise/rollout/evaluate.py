"""Evaluation, shared by training and `groupwise eval`: sample problems several times, verify, count."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.algorithms.statistics import Estimate, majority, mean_share, pass_at_k
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import FinishReason, Outcome, Problem, ScoredGroup


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scored completions of an evaluation and what they amount to."""

    scored: tuple[ScoredGroup, ...]

    @property
    def shares(self) -> list[float]:
        """Share of correct completions of each problem; completions that were not judged are left out."""
        return [share for _, share in self._judged()]

    def _judged(self) -> list[tuple[ScoredGroup, float]]:
        rows = []
        for scored in self.scored:
            correct = [verdict.outcome is Outcome.CORRECT for verdict in scored.verdicts if verdict.outcome.judged]
            if correct:
                rows.append((scored, float(np.mean(correct))))
        return rows

    def share_by_problem(self) -> dict[str, float]:
        """Share of correct completions by problem id."""
        return {scored.group.prompt.problem.id: share for scored, share in self._judged()}

    @property
    def verdict_errors(self) -> int:
        """Completions that the verifier failed on."""
        return sum(verdict.outcome.failed for scored in self.scored for verdict in scored.verdicts)

    @property
    def no_verdict(self) -> int:
        """Completions on which the verifier has no verdict, by choice."""
        return sum(verdict.outcome is Outcome.NONE for scored in self.scored for verdict in scored.verdicts)

    @property
    def pass_at_1(self) -> Estimate:
        """Share of correct completions, with the interval over problems."""
        return mean_share(self.shares)

    def pass_at(self, k: int) -> Estimate:
        """Unbiased pass@k with the interval over problems."""
        values = []
        for scored in self.scored:
            judged = [verdict for verdict in scored.verdicts if verdict.outcome.judged]
            if len(judged) >= k:
                correct = sum(verdict.outcome is Outcome.CORRECT for verdict in judged)
                values.append(pass_at_k(len(judged), correct, k))
        return mean_share(values)

    @property
    def majority_correct(self) -> Estimate:
        """Share of problems whose most frequent answer is correct."""
        values = []
        for scored in self.scored:
            winner = majority([verdict.answer for verdict in scored.verdicts])
            right = {verdict.answer for verdict in scored.verdicts if verdict.outcome is Outcome.CORRECT}
            values.append(float(winner is not None and winner in right))
        return mean_share(values)

    def by_difficulty(self) -> dict[str, Estimate]:
        """pass@1 of each difficulty label."""
        labels: dict[str, list[float]] = {}
        for scored, share in self._judged():
            labels.setdefault(scored.group.prompt.problem.difficulty, []).append(share)
        return {label: mean_share(shares) for label, shares in sorted(labels.items())}

    @property
    def mean_length(self) -> float:
        """Tokens per completion."""
        return float(np.mean([c.num_tokens for scored in self.scored for c in scored.group.completions]))

    @property
    def truncated(self) -> float:
        """Share of completions that ran into the token limit."""
        reasons = [c.finish_reason is FinishReason.LENGTH for scored in self.scored for c in scored.group.completions]
        return float(np.mean(reasons))


def evaluate(
    actors: Actors, problems: Sequence[Problem], num_samples: int, sampling: SamplingConfig, draws: Draws
) -> Evaluation:
    """Sample `num_samples` completions of each problem and verify them.

    The draws depend on seed, purpose, problem and sample alone, so two checkpoints meet the same random numbers (a
    paired comparison), whatever the step.
    """
    return Evaluation(tuple(sample_and_score(actors, problems, num_samples, sampling, draws)))
