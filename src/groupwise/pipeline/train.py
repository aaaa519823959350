"""Stage `train`: any trainer's recipe. The stage's table is that recipe; missing values are the pipeline's."""

import json
from dataclasses import replace
from typing import ClassVar, Self

from groupwise.config import Section, dump_toml
from groupwise.config.schema import Makes
from groupwise.errors import ConfigError
from groupwise.models.checkpoint import TRAINER_STATE
from groupwise.pipeline.base import Interrupted, Made, Source, Stage, Workplace
from groupwise.pipeline.directory import content_hash
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.runs.records import Records
from groupwise.trainers import Recipe, chosen, trainer_of
from groupwise.trainers.base import dated, with_chat, with_precision
from groupwise.training.session import Progress


class Train(Stage[Recipe]):
    """Train; the result is the newest checkpoint of the run."""

    Config: ClassVar[type[Section]] = Recipe
    """Any trainer's: its own class says `algorithm`."""

    @classmethod
    def read(cls, kind: str, source: Source) -> Self:
        algorithm, trainer = chosen(source.table.get("algorithm"), source.folder, f"{source.where}.")
        recipe = replace(source, table={**source.table, "algorithm": algorithm}).parsed(trainer.recipe)
        if recipe.run.directory:
            raise ConfigError(f"{source.where}.run.directory is set by the pipeline: leave it out")
        try:
            with_chat(recipe, is_plain=True)
        except ConfigError as error:
            raise ConfigError(f"{source.where}.{error}") from None
        return cls(source.name, kind, recipe)

    @property
    def makes(self) -> Makes:
        return trainer_of(self.config).makes

    @property
    def algorithm(self) -> str:
        return self.config.algorithm

    def run(self, config: Recipe, work: Workplace) -> Made:
        run = work.directory.run
        if not run.finished.exists():  # else the process was killed between the run's end and the stage's
            where = config.run.model_copy(update={"directory": str(run.path)})
            # the data that stages make of completions are plain text, so all stages of a pipeline are
            recipe = config.model_copy(update={"run": where})
            recipe = with_precision(dated(with_chat(recipe, is_plain=True)))
            if run.config.exists():  # of the same fingerprint: only the paths differ, where the pipeline was moved
                write_file(run.config, dump_toml(recipe).encode())
            work.train(recipe)
            if not run.finished.exists():
                raise Interrupted
        return made(run, trainer_of(config).epochs(config))


def made(run: RunDirectory, epochs: int) -> Made:
    """Return the result of a finished run; `epochs`: passes of reinforcement learning over its samples."""
    newest = run.checkpoint(run.steps()[-1])
    progress = Progress.read(json.loads((newest / TRAINER_STATE).read_text()))
    records = Records.of(run).intact()
    held_out = records.metrics("held_out")
    statistics = {"held_out_accuracy": held_out[-1]["accuracy"]} if held_out else {}
    trained = progress.tokens or epochs * sum(line["kept_tokens"] for line in records.metrics())
    return Made(newest, content_hash(newest), progress.sampled_tokens, trained, {"steps": progress.step, **statistics})
