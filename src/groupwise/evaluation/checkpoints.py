"""The context of a checkpoint: task, verifier and sampling of the run it lies in, if any."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ValidationInfo, model_validator

from groupwise.config import FOLDER, Changes, Section, as_overrides, parse, read_toml
from groupwise.config.schema import SHIPPED
from groupwise.errors import ConfigError, DataError, told_as
from groupwise.models.config import ADAPTER_CONFIG
from groupwise.models.prompts import settled_task
from groupwise.rollout.engine import AnyEngine, EngineConfig
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.directory import PROVENANCE
from groupwise.runs.inputs import located, recorded
from groupwise.runs.progress import tell
from groupwise.tasks import TASKS, TaskOptions, make_task, with_verifier
from groupwise.tasks.base import Task, TaskConfig
from groupwise.types import SPLITS, Problem, Split
from groupwise.verifiers import VERIFIERS, VerifierConfig
from groupwise.verifiers.style import BehaviourConfig
from groupwise.verifiers.table import with_shared

PROBLEMS = 200
CHECKPOINTS = "checkpoints"
"""Folder of a run that holds its checkpoints."""


class _Context(Section):
    """The parts of a recipe that evaluation needs."""

    task: TaskOptions
    """The task, which makes problems."""
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """The verifier; without a kind, the task's."""
    sampling: SamplingConfig = SamplingConfig()
    """Sampling of completions."""
    behaviour: BehaviourConfig = BehaviourConfig()
    """Phrases that are looked for in completions."""
    engine: AnyEngine = EngineConfig()
    """The engine that samples; not that of the run, whose servers may be gone."""

    @model_validator(mode="before")
    @classmethod
    def _add_verifier(cls, values: Any, info: ValidationInfo) -> Any:
        return with_verifier(values, (info.context or {}).get(FOLDER))


@dataclass(frozen=True, slots=True)
class Context:
    """Task, verifier, sampling, engine and phrases for a checkpoint."""

    task: Task
    verifier: VerifierConfig
    sampling: SamplingConfig
    behaviour: BehaviourConfig
    engine: EngineConfig
    is_divided: bool
    """True where a run has divided the task's rows into splits."""
    other_tests: str = ""
    """File of the test problems, if the caller named another file beside it."""

    @classmethod
    def parse(
        cls, tables: Mapping[str, Any], changes: Changes, checkpoint: str = "", *, is_divided: bool = False
    ) -> Self:
        """Read the parts; a `checkpoint` is asked by its chat template where they do not say how."""
        parts = parse(_Context, tables, changes, source="the task")
        task = settled_task(parts.task, parts.verifier, checkpoint) if checkpoint else parts.task
        return cls(make_task(task), parts.verifier, parts.sampling, parts.behaviour, parts.engine, is_divided)

    def problems(self, split: Split | None, most: int | None) -> tuple[str, Sequence[Problem]]:
        """Return the name of the selection and its problems: of a split, by default the first 200.

        Without a split and a number, all rows of a plain file that no run divided.
        """
        if split not in (None, *SPLITS):
            raise ConfigError(f"split {split!r}: allowed are {', '.join(SPLITS)}")
        rows = None if split or self.is_divided else self.task.undivided()
        if rows:
            return "all rows", rows[:most]
        name: Split = split or "test"
        if name == "test" and self.other_tests:
            raise ConfigError(
                f"task.path is a file to train on, and the test problems are those of {self.other_tests}: set "
                "task.test_path to measure on other problems, or name the split train or dev"
            )
        try:
            problems = self.task.problems(name)[: most or PROBLEMS]
        except DataError as error:
            raise (
                error if split else DataError(f"{error}; another is measured by its name, --split (`split=`)")
            ) from None
        if not problems:
            raise ConfigError(f"task {self.task.name} has no {name} problems")
        return name, problems


def refuse_run(path: str) -> None:
    """Refuse the directory of a run, which has several checkpoints."""
    folder = Path(path) / CHECKPOINTS
    if configs := [*folder.glob("*/config.json"), *folder.glob(f"*/{ADAPTER_CONFIG}")]:
        names = ", ".join(sorted(str(config.parent) for config in configs))
        raise ConfigError(f"{path} is a run, not a checkpoint: name one of {names}")


def is_known(checkpoint: str) -> bool:
    """Tell whether a checkpoint says which task it was trained for."""
    return "task" in _recipe_of(Path(checkpoint))


def refuse_unread(changes: Changes, read: Sequence[str]) -> None:
    """Refuse changes of what some evaluations read and the caller does not. Raises ConfigError: names the first."""
    for key in _keys(changes):
        if (section := key.partition(".")[0]) in _Context.model_fields and section not in read:
            raise ConfigError(f"{key} has no effect here: allowed are keys of {', '.join(read)}")


def _keys(changes: Changes) -> list[str]:
    return [change.partition("=")[0].strip() for change in as_overrides(changes)]


def context_of(checkpoint: str, task: str | None, sampling: dict[str, Any], changes: Changes = ()) -> Context:
    """Return the task, verifier and sampling of the checkpoint's run, with the caller's changes."""
    refuse_run(checkpoint)
    run = _recipe_of(Path(checkpoint))
    if task is None and "task" not in run:
        names = ", ".join(TASKS.table)
        raise ConfigError(
            f"{checkpoint} lies in no run and has no {PROVENANCE}, so its task is not known: name the task ({names})"
        )
    same_task = task is None or run.get("task", {}).get("kind") == task
    verifier = run.get("verifier", {})
    if not same_task:  # another verifier keeps the settings that all share: extraction and reward
        TASKS.settings(str(task), base=TaskConfig)  # which answers a name of no task
        shared = {key: value for key, value in verifier.items() if key != "kind"}
        verifier = with_shared(TASKS.find(str(task)).verifier, shared, None)
        verifier = {key: value for key, value in verifier.items() if key != "kind"}
    is_trained = same_task and "task" in run
    data = {
        "task": run["task"] if is_trained else {"kind": task},
        "verifier": verifier,
        "behaviour": run.get("behaviour", {}),
        "sampling": run.get("sampling", {}) | {key: value for key, value in sampling.items() if value is not None},
    }
    if is_trained:
        tell_changes(Path(checkpoint).resolve().parent.parent, _keys(changes))
    is_other = "task.path" in _keys(changes) and "task.test_path" not in _keys(changes)
    context = Context.parse(data, changes, checkpoint, is_divided=is_trained and not is_other)
    learnt, prompt = run.get("task", {}).get("template", {}).get("prompt"), context.task.template.prompt
    if learnt not in (None, prompt) and not same_task:
        tell(
            f"{checkpoint} was trained on the prompt {learnt!r} and is asked {prompt!r:.120}: see task.template.prompt"
        )
    return replace(context, other_tests=context.task.test_file or "") if is_other else context


def tell_changes(run: Path, named: Sequence[str] = ()) -> None:
    """Say which data of a run's task changed since it began, but for what stands under these names."""
    for item in recorded(run)[0]:
        is_read = item.makes == "data" and item.name.startswith("task.") and item.name not in named
        difference = item.difference(item.taken()) if is_read else ""
        if difference:
            tell(f"{item.path} {difference} since {run} began: its problems may be others than the run's")


def _recipe_of(checkpoint: Path) -> dict[str, Any]:
    home, record = checkpoint.resolve().parent, checkpoint / PROVENANCE
    if not record.exists():
        config = home.parent / "config.toml"
        # a name of the hub, or of the shipped model, means the same in the directory of any run
        is_of_run = home.name == CHECKPOINTS and str(checkpoint) != SHIPPED and config.exists()
        return located(read_toml(config), config) if is_of_run else {}
    with told_as(ConfigError, f"{record} is no record of an exported model", ValueError, LookupError, TypeError):
        return dict(json.loads(record.read_text(encoding="utf-8"))[-1]["recipe"])
