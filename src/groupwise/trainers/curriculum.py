"""The choice of a step's problems: shuffled epochs, or by the difficulty that earlier steps found."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.randomness import key, permutation, uniforms
from groupwise.types import Outcome, Problem, ScoredGroup

UNSEEN = 0.5
"""Pass rate of what nobody has tried: worth the most, so it is tried."""
LEAST_WEIGHT = 0.01
"""Of problems always or never solved: they may change, so they come back now and then."""
FADING = 0.5
"""Share of the old rate that a new observation leaves."""


def problem_order(num_problems: int, prompts_per_step: int, seed: int, step: int) -> list[int]:
    """Problems of a step, then the rest of its epoch as spares: each epoch is a keyed shuffle cut into steps.

    The shuffle's remainder is left out of its epoch, so no problem occurs twice in a step.
    """
    epoch, position = divmod(step, num_problems // prompts_per_step)
    order = permutation(num_problems, seed, "problem order", epoch)
    turned = np.roll(order, -position * prompts_per_step)
    return [int(index) for index in turned]


class PassRates:
    """The pass rate of each problem and each difficulty, remembered across steps and fading as the policy changes."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._by_problem: dict[str, float] = dict(state.get("problem", {}))
        self._by_difficulty: dict[str, float] = dict(state.get("difficulty", {}))

    def state(self) -> dict[str, dict[str, float]]:
        """What a checkpoint keeps, as JSON."""
        return {"problem": dict(self._by_problem), "difficulty": dict(self._by_difficulty)}

    def learn(self, scored: Sequence[ScoredGroup]) -> None:
        """Learn from what a step found."""
        shares: dict[str, list[float]] = {}
        for group in scored:
            judged = [verdict.outcome is Outcome.CORRECT for verdict in group.verdicts if verdict.outcome.judged]
            if judged:
                problem, share = group.group.prompt.problem, sum(judged) / len(judged)
                _fade(self._by_problem, problem.id, share)
                shares.setdefault(problem.difficulty, []).append(share)
        for difficulty, measured in shares.items():
            _fade(self._by_difficulty, difficulty, sum(measured) / len(measured))

    def estimate(self, problem: Problem) -> float:
        """The best known pass rate of the problem: its own, else its difficulty's, else one half."""
        return self._by_problem.get(problem.id, self._by_difficulty.get(problem.difficulty, UNSEEN))

    def draw(self, problems: Sequence[Problem], seed: int, step: int) -> list[int]:
        """All problems in random order, drawn without replacement with weights p(1 - p).

        p(1 - p) is the variance of the reward, to which a group's expected signal is proportional. Weighted sampling
        without replacement by exponential keys (Efraimidis and Spirakis 2006).
        """
        rates = np.array([self.estimate(problem) for problem in problems])
        weights = np.maximum(rates * (1 - rates), LEAST_WEIGHT)
        draws = uniforms(key(seed, "curriculum", step), np.arange(len(problems)))
        return [int(index) for index in np.argsort(-np.log1p(-draws) / weights, kind="stable")]


def _fade(rates: dict[str, float], name: str, share: float) -> None:
    rates[name] = share if name not in rates else FADING * rates[name] + (1 - FADING) * share
