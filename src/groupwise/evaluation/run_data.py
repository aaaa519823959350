"""What a run directory says, read for pages and comparisons: no model, no torch, nothing but the files.

An unfinished run is read as far as it got: what is not there yet is empty or None, never a zero.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.config import read_toml
from groupwise.errors import DataError
from groupwise.evaluation.row import Row, read_rows
from groupwise.evaluation.siblings import Curve
from groupwise.runs.directory import RunDirectory, find_run
from groupwise.runs.run import lines_by_kind


@dataclass(frozen=True, slots=True)
class EvaluationData:
    """One evaluation: its line in metrics.jsonl and its completions."""

    step: int
    """Finished steps behind the weights (of a test evaluation: steps of the whole run)."""
    line: Mapping[str, Any]
    rows: tuple[Row, ...]
    """Empty when the file of completions is not there any more."""


@dataclass(frozen=True, slots=True)
class RunData:
    """One run as its files tell it."""

    path: Path
    config: Mapping[str, Any]
    """config.toml as nested dictionaries."""
    environment: Mapping[str, Any]
    finished: bool
    """Whether the run has nothing left to do."""
    steps: tuple[Mapping[str, Any], ...]
    """Step lines of metrics.jsonl in order; a step that was done again after a resume counts once."""
    dev: tuple[EvaluationData, ...]
    test_before: EvaluationData | None
    test_after: EvaluationData | None
    seeds: Mapping[int, Curve] = field(default_factory=dict)
    """Of this run and those beside it that differ in their seed alone, by seed; empty where nobody asked."""

    @property
    def best_step(self) -> int | None:
        """Finished steps behind the best checkpoint by dev; None before the first dev evaluation."""
        return next((evaluation.step for evaluation in reversed(self.dev) if evaluation.line.get("best")), None)

    @property
    def best_checkpoint(self) -> Path | None:
        """Link to the best checkpoint, if it is there."""
        best = RunDirectory(self.path).best
        return best if best.exists() else None

    @property
    def num_steps(self) -> int:
        """Steps the recipe asks for."""
        return int(self.config["run"]["num_steps"])


def load_run(path: Path) -> RunData:
    """Read a run directory.

    Raises:
        ConfigError: there is no run at this path.
        DataError: one of its files cannot be read.
    """
    run = find_run(path)
    lines = lines_by_kind(run)
    dev = sorted(lines.get("dev", {}).values(), key=lambda line: int(line["step"]))
    return RunData(
        path=path,
        config=read_toml(run.config),
        environment=_environment(run),
        finished=run.finished.exists(),
        steps=tuple(line for _, line in sorted(lines.get("step", {}).items())),
        dev=tuple(_evaluation(run, f"dev-step-{line['step']:06d}", line) for line in dev),
        test_before=_test(run, "test-before", lines),
        test_after=_test(run, "test-after", lines),
    )


def _test(run: RunDirectory, name: str, lines: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> EvaluationData | None:
    test_lines = list(lines.get(name, {}).values())
    return _evaluation(run, name, test_lines[-1]) if test_lines else None


def _evaluation(run: RunDirectory, name: str, line: Mapping[str, Any]) -> EvaluationData:
    # only evaluations with a line are read: a file without one was written just before the run was killed
    path = run.evaluations(name)
    return EvaluationData(int(line["step"]), line, read_rows(path) if path.exists() else ())


def _environment(run: RunDirectory) -> Mapping[str, Any]:
    path = run.path / "environment.json"
    try:
        environment: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    return environment
