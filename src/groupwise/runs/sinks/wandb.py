"""Weights & Biases, online or offline."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from groupwise.runs.sinks.base import Line, Sink, SinkConfig, SinkRun


class WandbConfig(SinkConfig):
    """Weights & Biases; needs `pip install 'groupwise[wandb]'`."""

    kind: Literal["wandb"] = "wandb"
    """Which sink."""
    project: str = "groupwise"
    """Its project."""
    entity: str | None = None
    """Whose project; not set: your own."""
    group: str | None = None
    """Group of the run, for example of its seeds."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes to disk only; `wandb sync` sends it later."""
    directory: str = "."
    """Its own files go into `wandb` in this directory, from the working directory."""


class Wandb(Sink[WandbConfig]):
    """One W&B run for a run and all its resumes.

    W&B takes no value back. Lines that a resumed run writes again have been taken before and are not sent twice: the
    first ones stay, whose facts are the same and whose times are those of the first attempt.
    """

    Config: ClassVar[type[SinkConfig]] = WandbConfig

    def __init__(self, config: WandbConfig, run: SinkRun) -> None:
        import wandb

        settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)  # it is no part of the run
        self._run: Any = wandb.init(
            id=run.id, name=run.name, resume="allow", config=dict(run.recipe), project=config.project,
            entity=config.entity, group=config.group, mode=config.mode, dir=config.directory, settings=settings,
        )  # fmt: skip
        self._run.define_metric("*", step_metric="step")

    def write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._run.log({**line.values, "step": line.step}, step=line.number)

    def close(self) -> None:
        self._run.finish()
