"""Stage `train`: any trainer's recipe. The stage's table is that recipe; what it leaves out is the pipeline's."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.models.checkpoint import TRAINER_STATE
from groupwise.pipeline.base import Interrupted, Made, Makes, Stage, Workplace
from groupwise.pipeline.directory import content_hash
from groupwise.pipeline.recipe import merged, resolved, with_tasks
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import RECIPES

SHARED = ("model", "sampling")
"""Sections of the pipeline that a trainer's recipe takes over, where it has them."""


class Train(Stage):
    """Trains; the newest checkpoint of the run is what it makes."""

    kind: ClassVar[str] = "train"

    @property
    def makes(self) -> Makes:
        return "reward_model" if self.algorithm == "reward_model" else "model"

    def check(self, table: Mapping[str, Any]) -> dict[str, Any]:
        self.algorithm = table.get("algorithm")
        if self.algorithm not in RECIPES:
            raise ConfigError(
                f"stages.{self.name}.algorithm = {self.algorithm!r}; allowed are {', '.join(map(str, RECIPES))}"
            )
        shared = self.recipe.model_dump(mode="json")
        known = RECIPES[self.algorithm].model_fields
        below = {name: shared[name] for name in SHARED if name in known}
        below["run"] = {"directory": "", "seed": self.recipe.pipeline.seed}
        if table.get("run", {}).get("directory"):
            raise ConfigError(f"stages.{self.name}.run.directory is the pipeline's affair: leave it out")
        whole = merged(below, with_tasks(table, shared["tasks"], f"stages.{self.name}"))
        return parse(RECIPES[self.algorithm], whole, source=f"stages.{self.name}").model_dump(mode="json")

    def run(self, work: Workplace) -> Made:
        run = work.directory.run
        if not run.finished.exists():  # else the process was killed between the run's end and the stage's
            values = merged(resolved(self.settings, work.outputs), {"run": {"directory": str(run.path)}})
            session = work.train(parse(RECIPES[str(self.algorithm)], values, source=f"stages.{self.name}"))
            if session.stopping:
                raise Interrupted
        return made(run)


def made(run: RunDirectory) -> Made:
    """What a finished run made."""
    newest = run.checkpoint(run.steps()[-1])
    facts = json.loads((newest / TRAINER_STATE).read_text())
    held_out = [line for line in run.metrics.lines() if line.get("kind") == "held_out"]
    statistics = {"held_out_accuracy": held_out[-1]["accuracy"]} if held_out else {}
    return Made(
        newest, content_hash(newest), facts.get("sampled_tokens", 0), facts.get("tokens", 0),
        {"steps": facts["step"], **statistics},
    )  # fmt: skip
