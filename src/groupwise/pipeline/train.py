"""Stage `train`: any trainer's recipe. The stage's table is that recipe; what it leaves out is the pipeline's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.compute as pc
import pyarrow.parquet as pq

from groupwise.config import dump_toml, parse
from groupwise.errors import ConfigError
from groupwise.models.checkpoint import TRAINER_STATE
from groupwise.pipeline.base import Interrupted, Made, Makes, Stage, Workplace
from groupwise.pipeline.directory import content_hash
from groupwise.pipeline.recipe import merged, resolved, with_sampling, with_tasks
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import RECIPES
from groupwise.training.progress import Progress

SHARED = ("model", "sampling")
"""Sections of the pipeline that a trainer's recipe takes over, where it has them."""


class Train(Stage):
    """Trains; the newest checkpoint of the run is what it makes."""

    kind: ClassVar[str] = "train"

    @property
    def makes(self) -> Makes:
        return "reward_model" if self.algorithm == "reward_model" else "model"

    def check(self, table: Mapping[str, Any]) -> dict[str, Any]:
        algorithm = table.get("algorithm")
        if not isinstance(algorithm, str) or algorithm not in RECIPES:
            raise ConfigError(f"stages.{self.name}.algorithm = {algorithm!r}; allowed are {', '.join(RECIPES)}")
        self.algorithm = algorithm
        shared = self.recipe.model_dump(mode="json")
        known = RECIPES[algorithm].model_fields
        below = {name: shared[name] for name in SHARED if name in known}
        below["run"] = {"directory": "", "seed": self.recipe.pipeline.seed}
        if algorithm == "distill":
            below["teacher"] = {key: value for key, value in shared["model"].items() if key != "path"}
            sampled = isinstance(table.get("data"), Mapping) and table["data"].get("source") in ("teacher", "student")
            below |= {"data": {"sampling": shared["sampling"]}} if sampled else {}
        own = with_sampling(with_tasks(table, shared["tasks"], f"stages.{self.name}"), shared["sampling"])
        whole = merged(below, own)
        settings = parse(RECIPES[algorithm], whole, source=f"stages.{self.name}").model_dump(mode="json")
        if settings["run"]["directory"]:
            raise ConfigError(f"stages.{self.name}.run.directory is the pipeline's affair: leave it out")
        return settings

    def run(self, work: Workplace) -> Made:
        run = work.directory.run
        if not run.finished.exists():  # else the process was killed between the run's end and the stage's
            values = merged(resolved(self.settings, work.outputs), {"run": {"directory": str(run.path)}})
            recipe = parse(RECIPES[str(self.algorithm)], values, source=f"stages.{self.name}")
            if run.config.exists():  # of the same fingerprint: only the paths differ, where the pipeline was moved
                write_file(run.config, dump_toml(recipe).encode())
            session = work.train(recipe)
            if session.stopping:
                raise Interrupted
        return made(run, self.settings.get("loss", {}).get("epochs", 1))


def made(run: RunDirectory, epochs: int) -> Made:
    """What a finished run made; `epochs`: how often reinforcement learning went through what it sampled."""
    newest = run.checkpoint(run.steps()[-1])
    progress = Progress.read(json.loads((newest / TRAINER_STATE).read_text()))
    held_out = [line for line in run.metrics.lines() if line.get("kind") == "held_out"]
    statistics = {"held_out_accuracy": held_out[-1]["accuracy"]} if held_out else {}
    trained = progress.tokens or epochs * _kept_tokens(run)
    return Made(newest, content_hash(newest), progress.sampled_tokens, trained, {"steps": progress.step, **statistics})


def _kept_tokens(run: RunDirectory) -> int:
    """Completion tokens that reinforcement learning kept to learn from."""
    return sum(map(_tokens, sorted((run.path / "rollouts").glob("step-*.parquet"))))


def _tokens(rollouts: Path) -> int:
    lengths = pc.list_value_length(pq.read_table(rollouts, columns=["token_ids"])["token_ids"])
    return int(pc.sum(lengths).as_py())
