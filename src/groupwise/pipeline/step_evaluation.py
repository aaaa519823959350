"""Stage `step_evaluation`: process reward models side by side, on the same labelled steps.

Each is measured by the first mistakes it finds (`evaluation.steps`) and as a judge: the completions of a problem are a
pool, and the expected accuracy of every choice and vote among k of them is taken over its subsets (`algorithms.pools`).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import Field

from groupwise.algorithms.pools import best_of_k, weighted_vote
from groupwise.algorithms.statistics import majority_of, mean_share, pass_at_k
from groupwise.algorithms.step_metrics import AGGREGATES
from groupwise.config import Section
from groupwise.config.schema import DataRef, ModelRef, RewardModelRef
from groupwise.errors import DataError
from groupwise.evaluation.steps import evaluate_scorer
from groupwise.models.steps import load_scorer
from groupwise.pipeline.base import ComputeConfig, Made, Stage, Workplace
from groupwise.pipeline.recipe import Name
from groupwise.runs.ledger import or_null
from groupwise.runs.progress import counted
from groupwise.runs.row import grouped
from groupwise.tasks.step_rows import StepRow, check_apart, labelled, read_steps


class StepJudgeConfig(Section):
    """A process reward model."""

    path: RewardModelRef
    """Its directory, for example `{prm}`."""
    reference: ModelRef = ""
    """The model that an implicit one was trained from; empty: it has a head."""
    beta: float = Field(0.05, gt=0, allow_inf_nan=False)
    """β of an implicit one."""


class StepEvaluationConfig(Section):
    """Settings of the stage."""

    model: ComputeConfig
    """Computation of the models."""
    judges: dict[Name, StepJudgeConfig] = Field(min_length=1)
    """The models, by names that you choose."""
    file: DataRef
    """Labelled steps to measure on; all completions of one problem are a pool."""
    dev: DataRef = ""
    """Labelled steps of other problems, on which each threshold is chosen; empty: it is 1/2."""
    choices: tuple[int, ...] = (4, 16)
    """k of the choices among k completions; none: they are not measured. Problems with fewer are left out of that k,
    and counted; where all have fewer, that is an error."""


class StepEvaluation(Stage[StepEvaluationConfig]):
    """Score, and compare with the labels."""

    Config = StepEvaluationConfig
    makes = "data"

    def run(self, settings: StepEvaluationConfig, work: Workplace) -> Made:
        rows, dev = read_steps(settings.file), labelled(read_steps(settings.dev), settings.dev) if settings.dev else []
        check_apart(rows, settings.file, dev, settings.dev, "a threshold chosen on what is measured flatters")
        pools = _pools(rows)
        most = max(map(len, pools))
        if too_large := [k for k in settings.choices if not 1 <= k <= most]:
            raise DataError(
                f"choices = {', '.join(map(str, settings.choices))}: no problem of {settings.file} has {too_large[0]} "
                f"completions; 1 to {most} are allowed"
            )
        large = {f"with {k} completions": sum(len(pool) >= k for pool in pools) for k in settings.choices}
        found: dict[str, Any] = {"controls": controls(rows, settings.choices)}
        for name, judge in counted("judges", settings.judges.items(), len(settings.judges)):
            scorer = load_scorer(settings.model.at(judge.path), judge.reference, judge.beta)
            evaluation, scores = evaluate_scorer(scorer, rows, dev, settings.dev)
            figures = {key: value for key, value in or_null(asdict(evaluation)).items() if key != "rows"}
            found[name] = figures | chosen(rows, scores, settings.choices)
        shown = {
            name: {key: value[0] if isinstance(value, list) else value for key, value in figures.items()}
            for name, figures in found.items()
        }
        statistics = {"completions": len(rows), "problems": {"all": len(pools), **large}, **shown}
        return work.made([{"judge": name, **figures} for name, figures in found.items()], statistics)


def controls(rows: Sequence[StepRow], choices: Sequence[int]) -> dict[str, list[float]]:
    """Measure without a judge: one completion, the majority of k, and a judge that is always right."""
    pools = _pools(rows)
    found = {"pass@1": mean_share([sum(map(_right, pool)) / len(pool) for pool in pools])}
    for k in choices:
        large = [pool for pool in pools if len(pool) >= k]
        votes = [majority_of(_answers(pool), list(map(_right, pool)), k) for pool in large]
        found[f"majority@{k}"] = mean_share(votes)
        found[f"pass@{k}"] = mean_share([pass_at_k(len(pool), sum(map(_right, pool)), k) for pool in large])
    return {name: list(estimate) for name, estimate in found.items() if not math.isnan(estimate.value)}


def chosen(
    rows: Sequence[StepRow], scores: Sequence[Sequence[float]], choices: Sequence[int]
) -> dict[str, list[float]]:
    """Measure the best-scored of k, and the answer with the largest sum of scores among k, by expected accuracy."""
    found = {}
    for how, join in AGGREGATES.items():
        joined = {id(row): join(of_row) for row, of_row in zip(rows, scores, strict=True)}
        pools = [(pool, [joined[id(row)] for row in pool], list(map(_right, pool))) for pool in _pools(rows)]
        for k in choices:
            large = [entry for entry in pools if len(entry[0]) >= k]
            best = [best_of_k(of_pool, right, k) for _, of_pool, right in large]
            votes = [weighted_vote(_answers(pool), of_pool, right, k).value for pool, of_pool, right in large]
            found[f"best of {k} by {how}"] = mean_share(best)
            found[f"vote of {k} by {how}"] = mean_share(votes)
    return {name: list(estimate) for name, estimate in found.items() if not math.isnan(estimate.value)}


def _pools(rows: Sequence[StepRow]) -> list[list[StepRow]]:
    return list(grouped(rows, lambda row: row.problem or row.prompt).values())


def _right(row: StepRow) -> bool:
    return bool(row.final_answer_correct)


def _answers(pool: Sequence[StepRow]) -> list[str | None]:
    given = [row.provenance.get("answer") for row in pool]
    return [None if answer is None else str(answer) for answer in given]
