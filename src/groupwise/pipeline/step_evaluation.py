"""Stage `step_evaluation`: process reward models side by side, on the same labelled steps.

How well each finds first mistakes (`evaluation.steps`), and what it is worth as a judge: the completions of a problem
are a pool, and the expected accuracy of every choice and vote among k of them is taken over its subsets
(`algorithms.pools`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from groupwise.algorithms.pools import best_of_k, weighted_vote
from groupwise.algorithms.statistics import Estimate, majority_at_k, mean_share, pass_at_k
from groupwise.algorithms.step_metrics import AGGREGATES
from groupwise.config import Section
from groupwise.config.schema import DataRef, ModelRef, RewardModelRef
from groupwise.errors import DataError
from groupwise.evaluation.steps import evaluate_scorer
from groupwise.models.steps import load_scorer
from groupwise.pipeline.base import ComputeConfig, Made, Stage, Workplace
from groupwise.pipeline.directory import write_rows
from groupwise.pipeline.recipe import Name
from groupwise.tasks.step_rows import StepRow, read_step_rows


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
    """How models compute."""
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
    """Scores, and compares with the labels."""

    Config = StepEvaluationConfig
    makes = "data"

    def run(self, settings: StepEvaluationConfig, work: Workplace) -> Made:
        rows, dev = read_step_rows(settings.file), read_step_rows(settings.dev) if settings.dev else []
        _check_apart(rows, dev, settings)
        large = _problems_by_choice(rows, settings)
        found: dict[str, Any] = {"controls": controls(rows, settings.choices)}
        for done, (name, judge) in enumerate(settings.judges.items()):
            work.progress("judges", done, len(settings.judges))
            scorer = load_scorer(settings.model.at(judge.path), judge.reference, judge.beta)
            evaluation, scores = evaluate_scorer(scorer, rows, dev, settings.dev)
            figures = {key: value for key, value in evaluation.as_dict().items() if key != "rows"}
            found[name] = {key: _plain(value) for key, value in figures.items()} | chosen(
                rows, scores, settings.choices
            )
        records = [{"judge": name, **figures} for name, figures in found.items()]
        digest = write_rows(work.directory.data, records)
        shown = {name: {key: _value(value) for key, value in of.items()} for name, of in found.items()}
        return Made(work.directory.data, digest, 0, 0, {"completions": len(rows), "problems": large, **shown})


def _check_apart(rows: Sequence[StepRow], dev: Sequence[StepRow], settings: StepEvaluationConfig) -> None:
    if shared := {row.problem or row.prompt for row in rows} & {row.problem or row.prompt for row in dev}:
        raise DataError(
            f"{settings.dev} and {settings.file} share {len(shared)} problems (for example {min(shared)[:60]!r}): a "
            "threshold chosen on what is measured flatters; allowed are rows of other problems"
        )


def _problems_by_choice(rows: Sequence[StepRow], settings: StepEvaluationConfig) -> dict[str, int]:
    """How many problems have enough completions for each k."""
    pools = _pools(rows)
    most = max(map(len, pools))
    if too_large := [k for k in settings.choices if not 1 <= k <= most]:
        raise DataError(
            f"choices = {', '.join(map(str, settings.choices))}: no problem of {settings.file} has {too_large[0]} "
            f"completions; 1 to {most} are allowed"
        )
    enough = {k: sum(len(pool) >= k for pool in pools) for k in settings.choices}
    return {"all": len(pools), **{f"with {k} completions": count for k, count in enough.items()}}


def controls(rows: Sequence[StepRow], choices: Sequence[int]) -> dict[str, list[float]]:
    """What needs no judge: one completion, the majority of k, and a judge that is always right."""
    pools = _pools(rows)
    found = {"pass@1": mean_share([sum(map(_right, pool)) / len(pool) for pool in pools])}
    for k in choices:
        large = [pool for pool in pools if len(pool) >= k]
        found[f"majority@{k}"] = mean_share([_majority(pool, k) for pool in large])
        found[f"pass@{k}"] = mean_share([pass_at_k(len(pool), sum(map(_right, pool)), k) for pool in large])
    return {name: list(estimate) for name, estimate in found.items() if large_enough(estimate)}


def chosen(
    rows: Sequence[StepRow], scores: Sequence[Sequence[float]], choices: Sequence[int]
) -> dict[str, list[float]]:
    """Expected accuracy of the best-scored of k, and of the answer with the largest sum of scores among k.

    Each for every way to join the scores of steps.
    """
    found = {}
    for how, join in AGGREGATES.items():
        joined = {id(row): join(of_row) for row, of_row in zip(rows, scores, strict=True)}
        pools = [(pool, [joined[id(row)] for row in pool], list(map(_right, pool))) for pool in _pools(rows)]
        for k in choices:
            large = [one for one in pools if len(one[0]) >= k]
            best = [best_of_k(of_pool, right, k) for _, of_pool, right in large]
            votes = [weighted_vote(_answers(pool), of_pool, right, k).value for pool, of_pool, right in large]
            found[f"best of {k} by {how}"] = mean_share(best)
            found[f"vote of {k} by {how}"] = mean_share(votes)
    return {name: list(estimate) for name, estimate in found.items() if large_enough(estimate)}


def large_enough(estimate: Estimate) -> bool:
    """Whether there was a pool of that size."""
    return not math.isnan(estimate.value)


def _pools(rows: Sequence[StepRow]) -> list[list[StepRow]]:
    pools: dict[str, list[StepRow]] = {}
    for row in rows:
        pools.setdefault(row.problem or row.prompt, []).append(row)
    return list(pools.values())


def _right(row: StepRow) -> bool:
    return bool(row.final_answer_correct)


def _answers(pool: Sequence[StepRow]) -> list[str | None]:
    given = [row.provenance.get("answer") for row in pool]
    return [None if answer is None else str(answer) for answer in given]


def _majority(pool: Sequence[StepRow], k: int) -> float:
    counts: dict[tuple[bool, str], int] = {}
    for row, answer in zip(pool, _answers(pool), strict=True):
        if answer is not None:
            counts[_right(row), answer] = counts.get((_right(row), answer), 0) + 1
    right, wrong = ([n for (is_right, _), n in counts.items() if is_right is of] for of in (True, False))
    return majority_at_k(right, wrong, len(pool) - sum(counts.values()), k)


def _plain(value: Any) -> Any:
    """A figure as JSON: an interval as [value, low, high], null where there was nothing to measure."""
    if isinstance(value, Mapping):
        return [_plain(value[key]) for key in ("value", "low", "high")]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _value(figure: Any) -> Any:
    return figure[0] if isinstance(figure, list) else figure
