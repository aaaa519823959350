"""Variants of a recipe against each other: the same seeds for all, intervals over seeds, no winner without evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.algorithms.statistics import Estimate, mean_over_seeds
from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.evaluation.run_data import load_run


class Variant(Section):
    """One contender: what it changes."""

    recipe: str = ""
    """Its recipe file, relative to the comparison's; empty: the comparison's own `recipe`."""
    extends: tuple[str, ...] = ()
    """Recipes that are put over it, beside the comparison's file or shipped, for example `algorithms/dapo.toml`."""
    overrides: tuple[str, ...] = ()
    """Dotted changes on top, for example `grpo.group_size=8`."""


class Comparison(Section):
    """What is compared with what."""

    directory: str
    """Where the runs are kept, one directory per variant and seed; finished ones are not run again."""
    recipe: str
    """The recipe that all variants start from, relative to this file."""
    seeds: int = Field(5, ge=1)
    """Runs of each variant: seeds 0, 1, ... The same seed gives the same problems and draws to all."""
    jobs: int = Field(1, ge=1)
    """Runs at one time."""
    overrides: tuple[str, ...] = ()
    """Changes for all variants, for example the token budget."""
    variants: dict[str, Variant] = Field(min_length=1)
    """The contenders by name; the first is what the others are compared with."""


class VariantRun(NamedTuple):
    """One run of a variant."""

    pass_at_1: float
    """Held-out, on the test split, of the checkpoint that was best on dev."""
    tokens: int
    """Completion tokens sampled in training."""
    seconds: float
    """Wall-clock time of the training steps."""
    processor_seconds: float
    """Processor time of the training steps, all threads."""
    peak_memory_mb: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A variant over its seeds; 95 % intervals."""

    name: str
    pass_at_1: Estimate
    difference: Estimate | None
    """To the first variant, paired by seed; None for the first itself."""
    tokens: float
    seconds: Estimate
    processor_seconds: Estimate
    peak_memory_mb: float
    num_seeds: int

    @property
    def verdict(self) -> str:
        """`better` or `worse` only where the paired interval excludes zero."""
        if self.difference is None:
            return "reference"
        if self.difference.low > 0:
            return "better"
        return "worse" if self.difference.high < 0 else "no difference shown"


def read_run(path: Path) -> VariantRun:
    """What a finished run says of itself.

    Raises:
        DataError: it has no test evaluation.
    """
    run = load_run(path)
    if run.test_after is None:
        raise DataError(f"{path} has no test evaluation: set evaluation.test_problems above 0 to compare")
    return VariantRun(
        pass_at_1=float(run.test_after.line["pass_at_1"][0]),
        tokens=sum(int(step["sampled_tokens"]) for step in run.steps),
        seconds=sum(float(step[part]) for step in run.steps for part in ("generate_s", "verify_s", "train_s")),
        processor_seconds=sum(float(step["processor_s"]) for step in run.steps),
        peak_memory_mb=max(float(step["peak_memory_mb"]) for step in run.steps),
    )


def rows(runs: Mapping[str, Sequence[VariantRun]]) -> list[Compared]:
    """Summarise each variant's runs (in the order of seeds) against the first variant's."""
    reference = next(iter(runs.values()))
    return [
        _row(name, variant_runs, None if variant_runs is reference else reference)
        for name, variant_runs in runs.items()
    ]


def _row(name: str, runs: Sequence[VariantRun], reference: Sequence[VariantRun] | None) -> Compared:
    difference = None
    if reference is not None:
        pairs = zip(reference, runs, strict=True)
        difference = mean_over_seeds([after.pass_at_1 - before.pass_at_1 for before, after in pairs])
    return Compared(
        name=name,
        pass_at_1=mean_over_seeds([run.pass_at_1 for run in runs]),
        difference=difference,
        tokens=sum(run.tokens for run in runs) / len(runs),
        seconds=mean_over_seeds([run.seconds for run in runs]),
        processor_seconds=mean_over_seeds([run.processor_seconds for run in runs]),
        peak_memory_mb=max(run.peak_memory_mb for run in runs),
        num_seeds=len(runs),
    )


def as_markdown(table: Sequence[Compared]) -> str:
    """The comparison as a table."""
    lines = [
        "| Variant | pass@1 | difference | verdict | tokens | training, s | processor, s | peak memory, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in table:
        difference = _signed(row.difference) if row.difference else ""
        lines.append(
            f"| {row.name} | {row.pass_at_1} | {difference} | {row.verdict} | {row.tokens:,.0f} | "
            f"{_seconds(row.seconds)} | {_seconds(row.processor_seconds)} | {row.peak_memory_mb:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _seconds(estimate: Estimate) -> str:
    return f"{estimate.value:.0f} [{estimate.low:.0f}, {estimate.high:.0f}]"


def _signed(estimate: Estimate) -> str:
    return f"{estimate.value:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def as_dict(table: Sequence[Compared]) -> list[dict[str, Any]]:
    """The comparison for machines."""
    return [
        {
            "variant": row.name,
            "pass_at_1": row.pass_at_1._asdict(),
            "difference": row.difference._asdict() if row.difference else None,
            "verdict": row.verdict,
            "tokens": row.tokens,
            "seconds": row.seconds._asdict(),
            "processor_seconds": row.processor_seconds._asdict(),
            "peak_memory_mb": row.peak_memory_mb,
            "seeds": row.num_seeds,
        }
        for row in table
    ]
