"""Where a run's metrics are shown, too: W&B, TensorBoard, trackio, MLflow, or a place of your own.

A sink reads the lines that the run has written to `metrics.jsonl`, in a process of its own; the run never waits for it
but at its end, for a bounded time. To add one: a module with a `Sink`, and a line in `SINKS`.
"""

from typing import Annotated

from pydantic import StringConstraints

from groupwise.config.kinds import Kinds
from groupwise.runs.sinks.base import Line, Sink, SinkConfig, SinkRun

SINKS = Kinds(
    "sink",
    {
        name: f"groupwise.runs.sinks.{name}:{name.capitalize()}"
        for name in ("wandb", "tensorboard", "trackio", "mlflow")
    },
)
"""The sinks by kind."""

SinkName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
"""A name of the user's own; files in the run directory carry it."""
SinkSections = dict[SinkName, Annotated[SinkConfig, SINKS]]
"""The `[sinks.NAME]` sections of a recipe."""

__all__ = ["SINKS", "Line", "Sink", "SinkConfig", "SinkName", "SinkRun", "SinkSections"]
