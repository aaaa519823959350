"""trackio: a local SQLite store with a dashboard, or one on the Hugging Face hub."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from groupwise.runs.sinks.base import Line, Sink, SinkConfig, SinkRun


class TrackioConfig(SinkConfig):
    """trackio; needs `pip install 'groupwise[trackio]'`. `trackio show` opens its dashboard."""

    kind: Literal["trackio"] = "trackio"
    """Which sink."""
    project: str = "groupwise"
    """Its project."""
    group: str | None = None
    """Group of the run, for example of its seeds."""
    space_id: str | None = None
    """Space on the Hugging Face hub that keeps the project; not set: this machine."""


class Trackio(Sink[TrackioConfig]):
    """One trackio run for a run and all its resumes; `line` is each line's place in the metrics.

    trackio takes no value back. Lines that a resumed run writes again are in the store already and are not sent twice.
    """

    Config: ClassVar[type[SinkConfig]] = TrackioConfig

    def __init__(self, config: TrackioConfig, run: SinkRun) -> None:
        import trackio

        self._config, self._name = config, f"{run.name} {run.id}"
        self._run: Any = trackio.init(
            project=config.project, name=self._name, group=config.group, space_id=config.space_id, resume="allow",
            config=dict(run.recipe), embed=False, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    @property
    def held(self) -> int | None:
        if self._config.space_id:
            return None
        from trackio.sqlite_storage import SQLiteStorage

        rows: list[dict[str, Any]] = SQLiteStorage.get_logs(self._config.project, self._name)
        return max((int(row["line"]) + 1 for row in rows), default=0)

    def write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._run.log({**line.values, "line": line.number}, step=line.step)

    def close(self) -> None:
        self._run.finish()
