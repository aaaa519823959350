"""A run as its pages read it, from `Records`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.evaluation.siblings import Curve
from groupwise.runs.records import Evaluation, Records

EvaluationData = Evaluation


@dataclass(frozen=True, slots=True)
class RunData:
    """One run as its files tell it."""

    path: Path
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    finished: bool
    steps: tuple[Mapping[str, Any], ...]
    dev: tuple[Evaluation, ...]
    test_before: Evaluation | None
    test_after: Evaluation | None
    best_step: int | None
    best_checkpoint: Path | None
    seeds: Mapping[int, Curve] = field(default_factory=dict)

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
    run = Records.open(path).intact()
    return RunData(
        path, run.config, run.environment, run.finished, tuple(run.metrics()), tuple(run.dev), run.test_before,
        run.test_after, run.best_step, run.best,
    )  # fmt: skip
