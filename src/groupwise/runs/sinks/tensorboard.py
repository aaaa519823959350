"""TensorBoard: event files in the run directory, so that `tensorboard --logdir runs` shows all runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from groupwise.runs.sinks.base import Line, Sink, SinkConfig, SinkRun


class TensorboardConfig(SinkConfig):
    """TensorBoard event files; needs `pip install 'groupwise[tensorboard]'`."""

    kind: Literal["tensorboard"] = "tensorboard"
    """Which sink."""
    directory: str = ""
    """Where the event files go; one directory for each run. Empty: `tensorboard` in the run directory."""


class Tensorboard(Sink[TensorboardConfig]):
    """Rewrites the event file from the run's first line whenever the run continues: files hold what metrics hold."""

    Config: ClassVar[type[SinkConfig]] = TensorboardConfig

    def __init__(self, config: TensorboardConfig, run: SinkRun) -> None:
        from tensorboardX import SummaryWriter

        directory = Path(config.directory) if config.directory else run.path / "tensorboard"
        own = f".{run.id}"  # a directory that other writers use, too, keeps their files
        for before in directory.glob(f"events.out.tfevents.*{own}"):
            before.unlink()
        self._writer: Any = SummaryWriter(str(directory), filename_suffix=own)

    @property
    def held(self) -> int:
        return 0

    def write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            for name, value in line.values.items():
                self._writer.add_scalar(name, value, line.step, walltime=line.time)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
