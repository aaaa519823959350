"""Comparisons: two evaluations of the same problems, and variants of a recipe on the same seeds, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.algorithms.statistics import Estimate, mean_over_seeds, paired_difference
from groupwise.config import Section
from groupwise.config.schema import PlaceRef
from groupwise.errors import DataError
from groupwise.evaluation.behaviour import PATTERNS, Patterns
from groupwise.evaluation.metrics import (
    MEASURES,
    Measure,
    Metric,
    by_problem,
    mean_of,
    measures,
    metric,
    of_verdicts,
)
from groupwise.runs.records import Evaluation, Records
from groupwise.runs.row import Row


def compare(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> Estimate:
    """Return the mean of b - a over problems (by id), with a 95 % interval; pairing removes the problems' difficulty.

    >>> compare({"1+1": 0.5, "2+2": 0.0}, {"2+2": 0.5, "1+1": 1.0})
    Estimate(value=0.5, low=0.5, high=0.5)

    Raises:
        DataError: the two sides do not hold the same problems; restrict them to `common` ones first.
    """
    lone_problems = sorted(shares_a.keys() ^ shares_b.keys())
    if lone_problems:
        raise DataError(
            f"a paired difference needs the same problems on both sides; {len(lone_problems)} are on one side only, "
            f"for example {lone_problems[0]}"
        )
    return paired_difference(list(shares_a.values()), [shares_b[problem] for problem in shares_a])


def common(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Restrict both sides to their common problems, in the order of the first."""
    shared = [problem for problem in shares_a if problem in shares_b]
    return {problem: shares_a[problem] for problem in shared}, {problem: shares_b[problem] for problem in shared}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations on the same problems and random numbers."""

    split: str
    before: Evaluation
    after: Evaluation

    @property
    def num_problems(self) -> int:
        sides = (by_problem(side.rows, MEASURES["pass_at_1"]) for side in (self.before, self.after))
        return len(common(*sides)[0])


def before_after(run: Records) -> Pair | None:
    """Return the test evaluations, or else the first and the newest dev evaluation; None without two evaluations."""
    if run.test_before and run.test_after and run.test_before.rows and run.test_after.rows:
        return Pair("test", run.test_before, run.test_after)
    dev = [evaluation for evaluation in run.dev if evaluation.rows]
    return Pair("dev", dev[0], dev[-1]) if len(dev) > 1 else None


class Change(NamedTuple):
    """One metric before and after, over the problems that both sides judged."""

    metric: Metric
    before: Estimate
    after: Estimate
    difference: Estimate


def changes(pair: Pair, patterns: Patterns = PATTERNS) -> dict[str, Change]:
    """Compare every measured metric of a pair of evaluations, with intervals over problems."""
    every = {**measures(patterns), **of_verdicts([*pair.before.rows, *pair.after.rows])}
    return {key: change(pair.before.rows, pair.after.rows, key, measure) for key, measure in every.items()}


def change(before: Sequence[Row], after: Sequence[Row], key: str, measure: Measure) -> Change:
    """Compare one metric over the problems that have it on both sides."""
    sides = common(by_problem(before, measure), by_problem(after, measure))
    return Change(metric(key), mean_of(key, sides[0].values()), mean_of(key, sides[1].values()), compare(*sides))


class Variant(Section):
    """A variant: changes of the comparison's recipe."""

    recipe: str = ""
    """Recipe file, relative to the comparison's; empty: the comparison's `recipe`."""
    extends: tuple[str, ...] = ()
    """Recipes that change it, beside the comparison's file or shipped, for example `algorithms/dapo.toml`."""
    overrides: tuple[str, ...] = ()
    """Dotted changes on top, for example `grpo.group_size=8`."""


class Comparison(Section):
    """Variants of a recipe."""

    directory: PlaceRef
    """Directory of the runs, one directory per variant and seed; finished ones are not run again."""
    recipe: str
    """The recipe that all variants start from, relative to this file."""
    seeds: int = Field(5, ge=1)
    """Runs of each variant: seeds 0, 1, ... The same seed gives the same problems and draws to all."""
    jobs: int = Field(1, ge=1)
    """Runs at one time."""
    overrides: tuple[str, ...] = ()
    """Changes for all variants, for example the token budget."""
    variants: dict[str, Variant] = Field(min_length=1)
    """The variants by name; the others are compared with the first."""


class VariantRun(NamedTuple):
    """One run of a variant."""

    pass_at_1: float
    tokens: int
    seconds: float
    processor_seconds: float
    peak_memory_mb: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A variant over its seeds; 95 % intervals."""

    name: str
    pass_at_1: Estimate
    difference: Estimate | None
    tokens: float
    seconds: Estimate
    processor_seconds: Estimate
    peak_memory_mb: float
    num_seeds: int

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return "reference"
        if self.difference.low > 0:
            return "better"
        return "worse" if self.difference.high < 0 else "no difference shown"


def read_run(path: Path) -> VariantRun:
    """Read the figures of a finished run."""
    run = Records.open(path).intact()
    if run.test_after is None:
        raise DataError(f"{path} has no test evaluation: set evaluation.test_problems above 0 to compare")
    return VariantRun(
        pass_at_1=float(run.test_after.line["pass_at_1"][0]),
        tokens=sum(int(step["sampled_tokens"]) for step in run.metrics()),
        seconds=sum(float(step[part]) for step in run.metrics() for part in ("generate_s", "verify_s", "train_s")),
        processor_seconds=sum(float(step["processor_s"]) for step in run.metrics()),
        peak_memory_mb=max(float(step["peak_memory_mb"]) for step in run.metrics()),
    )


def rows(runs: Mapping[str, Sequence[VariantRun]]) -> list[Compared]:
    """Summarise each variant's runs (in the order of seeds) against the first variant's."""
    reference = next(iter(runs.values()))
    table = []
    for name, variant_runs in runs.items():
        pairs = zip(reference, variant_runs, strict=True)
        differences = [after.pass_at_1 - before.pass_at_1 for before, after in pairs]
        table.append(
            Compared(
                name=name, pass_at_1=mean_over_seeds([run.pass_at_1 for run in variant_runs]),
                difference=None if variant_runs is reference else mean_over_seeds(differences),
                tokens=sum(run.tokens for run in variant_runs) / len(variant_runs),
                seconds=mean_over_seeds([run.seconds for run in variant_runs]),
                processor_seconds=mean_over_seeds([run.processor_seconds for run in variant_runs]),
                peak_memory_mb=max(run.peak_memory_mb for run in variant_runs), num_seeds=len(variant_runs),
            )
        )  # fmt: skip
    return table


def as_markdown(table: Sequence[Compared]) -> str:
    """Return the comparison as a table."""
    lines = [
        "| Variant | pass@1 | difference | verdict | tokens | training, s | processor, s | peak memory, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in table:
        gain, (wall, processor) = row.difference, (row.seconds, row.processor_seconds)
        difference = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]" if gain else ""
        lines.append(
            f"| {row.name} | {row.pass_at_1} | {difference} | {row.verdict} | {row.tokens:,.0f} | "
            f"{wall.value:.0f} [{wall.low:.0f}, {wall.high:.0f}] | "
            f"{processor.value:.0f} [{processor.low:.0f}, {processor.high:.0f}] | {row.peak_memory_mb:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def as_dict(table: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the comparison as JSON values."""
    return [
        {
            "variant": row.name, "pass_at_1": row.pass_at_1._asdict(),
            "difference": row.difference._asdict() if row.difference else None, "verdict": row.verdict,
            "tokens": row.tokens, "seconds": row.seconds._asdict(),
            "processor_seconds": row.processor_seconds._asdict(), "peak_memory_mb": row.peak_memory_mb,
            "seeds": row.num_seeds,
        }
        for row in table
    ]  # fmt: skip
