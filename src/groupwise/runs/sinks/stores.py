"""The stores that Groupwise knows; each imports its library when it is opened.

W&B, trackio and MLflow take no value back. Lines that a resumed run writes again are in the store already and are not
sent twice: the first ones stay, whose facts are the same and whose times are those of the first attempt.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from groupwise.config.schema import PlaceRef
from groupwise.runs.directory import RunDirectory, flattened
from groupwise.runs.sinks import Line, Sink, SinkConfig, SinkRun


class WandbConfig(SinkConfig):
    """Weights & Biases; needs `pip install 'groupwise[wandb]'`."""

    project: str = "groupwise"
    """Its project."""
    entity: str | None = None
    """Whose project; not set: your own."""
    group: str | None = None
    """Group of the run, for example of its seeds."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes to disk only; `wandb sync` sends it later."""
    directory: PlaceRef = "."
    """Its own files go into `wandb` in this directory, from the working directory."""


class Wandb(Sink[WandbConfig]):
    """One W&B run for a run and all its resumes."""

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


class TensorboardConfig(SinkConfig):
    """TensorBoard event files; needs `pip install 'groupwise[tensorboard]'`."""

    directory: PlaceRef = ""
    """Directory of the event files, one for each run. Empty: `tensorboard` in the run directory."""


class Tensorboard(Sink[TensorboardConfig]):
    """Rewrites the event file from the run's first line whenever the run continues: files hold what metrics hold."""

    Config: ClassVar[type[SinkConfig]] = TensorboardConfig

    def __init__(self, config: TensorboardConfig, run: SinkRun) -> None:
        from tensorboardX import SummaryWriter

        directory = Path(config.directory) if config.directory else run.path / "tensorboard"
        suffix = f".{run.id}"  # a directory that other writers use, too, keeps their files
        for before in directory.glob(f"events.out.tfevents.*{suffix}"):
            before.unlink()
        self._writer: Any = SummaryWriter(str(directory), filename_suffix=suffix)

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


class TrackioConfig(SinkConfig):
    """trackio; needs `pip install 'groupwise[trackio]'`. `trackio show` opens its dashboard."""

    project: str = "groupwise"
    """Its project."""
    group: str | None = None
    """Group of the run, for example of its seeds."""
    space_id: str | None = None
    """Space on the Hugging Face hub that keeps the project; not set: this machine."""


class Trackio(Sink[TrackioConfig]):
    """One trackio run for a run and all its resumes; `line` is each line's place in the metrics."""

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


TAG = "groupwise.id"
LINE = "line"  # metric that each line brings along: its place in the file, so that the store knows which lines it has
MOST_PARAMS = 100  # parameters in one call; MLflow refuses more
MOST_METRICS = 999  # metrics in one call, but for `line`; MLflow refuses more


class MlflowConfig(SinkConfig):
    """MLflow; needs `pip install 'groupwise[mlflow]'`. `mlflow ui` shows the default store."""

    tracking_uri: str = "sqlite:///mlflow.db"
    """A database, or the address of a tracking server; the default is MLflow's own, in the working directory."""
    experiment: str = "groupwise"
    """Its experiment."""


class Mlflow(Sink[MlflowConfig]):
    """One MLflow run for a run and all its resumes."""

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
        params = [Param(key, str(value)) for key, value in flattened(run.recipe).items()]
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
        self._client.set_terminated(self._id, "FINISHED" if self._directory.finished.exists() else "KILLED")
