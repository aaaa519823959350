"""An arm with a seed: the recipe that is run, the command that runs it, and the mark of what it is."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.config import Section, overridden, read_recipe, recipe_file
from groupwise.models.config import ModelConfig
from groupwise.pipeline import PipelineRecipe, load_pipeline
from groupwise.pipeline.fingerprint import code_of
from groupwise.runs.atomic import MANIFEST
from groupwise.trainers import Recipe, load_recipe, trainer_of
from groupwise_lab.claims.config import Arm, EvaluationConfig

SHIPPED = "base"
"""The path of the model inside the package."""
_OWN = re.compile(r"(?P<file>[^:]*\.py):(?P<name>\w+)")


class Marks(NamedTuple):
    """The recipe and the base model of a result."""

    recipe: str
    """16 hex digits of what the arm's recipes say, and of the user's Python that they name; seeds and directories do
    not count. What recipes leave to defaults is code."""
    base: str
    """Edition of the shipped model and 8 hex digits of its weights."""


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One arm with one seed."""

    name: str
    arm: Arm
    seed: int
    folder: Path
    """Of the ledger; its recipes stand relative to it."""
    home: Path
    """Folder of this arm and seed."""

    @property
    def directory(self) -> Path:
        """The run, or the pipeline."""
        return self.home / "run"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Changes of the recipe, seed and directory among them."""
        section = {"train": "run", "pipeline": "pipeline"}[self.arm.kind]
        own = (f"{section}.directory={json.dumps(str(self.directory))}", f"{section}.seed={self.seed}")
        return (*self.arm.overrides, *own)

    @property
    def command(self) -> list[str]:
        """Arguments of `groupwise` that run it, or resume it; empty where nothing is trained."""
        if self.arm.kind == "model":
            return []
        words = [self.arm.kind, str(self.folder / self.arm.recipe)]
        words += [word for name in self._over for word in ("--extend", name)]
        return words + [word for override in self.overrides for word in ("--set", override)]

    @property
    def _over(self) -> tuple[str, ...]:
        return tuple(str(recipe_file(name, self.folder)) for name in self.arm.extends)

    def recipe(self) -> Recipe | PipelineRecipe | None:
        """Return the recipe of the command, resolved and checked; None where nothing is trained."""
        if self.arm.kind == "train":
            return load_recipe(self.folder / self.arm.recipe, self.overrides, self._over)
        return self._pipeline() if self.arm.kind == "pipeline" else None

    def _pipeline(self) -> PipelineRecipe:
        return load_pipeline(self.folder / self.arm.recipe, self.overrides)[0]

    def marks(self) -> Marks:
        """Return the marks of a result measured today."""
        recipe = self.recipe()
        told = [evaluation_tables(evaluation, self.folder) for _, evaluation in sorted(self.arm.evaluations.items())]
        sizes = [evaluation.model_dump(mode="json") for _, evaluation in sorted(self.arm.evaluations.items())]
        whole = {"path": self.arm.path, "recipe": said(recipe) if recipe else {}, "evaluations": told, "sizes": sizes}
        return Marks(_mark(whole, self.folder), base_mark())


def code_mark(run: ArmRun) -> str:
    """16 hex digits of the code that runs an arm, as pipelines know it (`pipeline.fingerprint`)."""
    recipe = run.recipe()
    if isinstance(recipe, PipelineRecipe):
        return code_of("groupwise.pipeline.runner", recipe.model_dump(mode="json"))
    if recipe is None:
        return code_of("groupwise.evaluation.measure", ModelConfig().model_dump(mode="json"))
    return code_of(trainer_of(recipe).recipe.__module__, recipe.model_dump(mode="json"))


def said(recipe: Section) -> dict[str, Any]:
    """Return the values of a recipe that are no defaults, without its seed and its directory."""
    tables: dict[str, Any] = recipe.model_dump(mode="json", exclude_defaults=True)
    for section in ("run", "pipeline"):
        if isinstance(tables.get(section), dict):
            tables[section] = {key: value for key, value in tables[section].items() if key not in ("directory", "seed")}
    return tables


def recipe_mark(recipe: Section, folder: Path) -> str:
    """16 hex digits of a recipe alone."""
    return _mark(said(recipe), folder)


def _mark(value: Any, folder: Path) -> str:
    text = json.dumps(_placed(value, folder), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _placed(value: Any, folder: Path) -> Any:
    """The value with the content of a user's file for its place, which differs from machine to machine."""
    if isinstance(value, Mapping):
        # arms train the shipped model, which has no chat template: that a template leaves it open says the same
        return {key: False if key == "chat" and item is None else _placed(item, folder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_placed(item, folder) for item in value]
    if isinstance(value, str) and (match := _OWN.fullmatch(value)) and (path := Path(match["file"])).is_file():
        return f"{path.name}:{match['name']}:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return value


def evaluation_tables(evaluation: EvaluationConfig, folder: Path) -> dict[str, Any]:
    """Return the changes of an evaluation to task, verifier, sampling and behaviour, as nested tables."""
    over = [str(recipe_file(name, folder)) for name in evaluation.extends]
    return overridden(read_recipe({}, (), over), evaluation.overrides)


EDITION = "2nd"
"""Edition of the shipped base model."""


def base_mark() -> str:
    """Edition of the shipped model, and the first digits of its weights' hash."""
    manifest = json.loads((Path(str(resources.files("groupwise"))) / "base_model" / MANIFEST).read_text("utf-8"))
    return f"{EDITION} {manifest['model.safetensors'][:8]}"
