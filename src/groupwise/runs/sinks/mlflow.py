"""MLflow: a local database or a tracking server."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from groupwise.runs.directory import RunDirectory
from groupwise.runs.sinks.base import Line, Sink, SinkConfig, SinkRun

TAG = "groupwise.id"
LINE = "line"
"""Metric that each line brings along: its place in the file, so that the store knows which lines it has."""
MOST_PARAMS = 100
"""Parameters in one call; MLflow refuses more."""
MOST_METRICS = 999
"""Metrics in one call, but for `line`; MLflow refuses more."""


class MlflowConfig(SinkConfig):
    """MLflow; needs `pip install 'groupwise[mlflow]'`. `mlflow ui` shows the default store."""

    kind: Literal["mlflow"] = "mlflow"
    """Which sink."""
    tracking_uri: str = "sqlite:///mlflow.db"
    """A database, or the address of a tracking server; the default is MLflow's own, in the working directory."""
    experiment: str = "groupwise"
    """Its experiment."""


class Mlflow(Sink[MlflowConfig]):
    """One MLflow run for a run and all its resumes.

    MLflow takes no value back. Lines that a resumed run writes again are in the store already and are not sent twice.
    """

    Config: ClassVar[type[SinkConfig]] = MlflowConfig

    def __init__(self, config: MlflowConfig, run: SinkRun) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._directory, self._client = RunDirectory(run.path), MlflowClient(tracking_uri=config.tracking_uri)
        known = self._client.get_experiment_by_name(config.experiment)
        experiment = known.experiment_id if known else self._client.create_experiment(config.experiment)
        before = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'")
        if before:
            self._id: str = before[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(experiment, tags={TAG: run.id}, run_name=run.name).info.run_id
        params = [Param(key, value) for key, value in _flat(run.recipe)]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + MOST_PARAMS])

    @property
    def held(self) -> int:
        newest = self._client.get_run(self._id).data.metrics.get(LINE)
        return 0 if newest is None else int(newest) + 1

    def write(self, lines: Sequence[Line]) -> None:
        from mlflow.entities import Metric

        for line in lines:
            when = int(1000 * line.time)
            metrics: list[Any] = [Metric(name, value, when, line.step) for name, value in line.values.items()]
            while len(metrics) > MOST_METRICS:
                self._client.log_batch(self._id, metrics=metrics[:MOST_METRICS])
                metrics = metrics[MOST_METRICS:]
            # `line` last and in the order of lines: what was cut off before it is not held
            self._client.log_batch(self._id, metrics=[*metrics, Metric(LINE, line.number, when, line.number)])

    def close(self) -> None:
        done = self._directory.finished.exists()
        self._client.set_terminated(self._id, "FINISHED" if done else "KILLED")


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value)
