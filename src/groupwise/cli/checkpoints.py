"""What a checkpoint named on the command line comes with: the recipe of the run it lies in, if any."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import Section, parse, read_recorded
from groupwise.errors import ConfigError
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TASKS, TaskOptions, make_task
from groupwise.tasks.base import Task
from groupwise.verifiers import VerifierConfig
from groupwise.verifiers.style.phrases import BehaviourConfig


class _Context(Section):
    """The parts of a recipe that evaluation needs."""

    task: TaskOptions
    """Where problems come from."""
    verifier: VerifierConfig = VerifierConfig()
    """How completions are judged."""
    sampling: SamplingConfig = SamplingConfig()
    """How completions are drawn."""
    behaviour: BehaviourConfig = BehaviourConfig()
    """What is looked for in completions."""


@dataclass(frozen=True, slots=True)
class Context:
    """Task, verifier, sampling and what to look for, for a checkpoint."""

    task: Task
    verifier: VerifierConfig
    sampling: SamplingConfig
    behaviour: BehaviourConfig


def refuse_run(path: str) -> None:
    """A run has several checkpoints, and which one is meant makes a difference.

    Raises:
        ConfigError: the path is a run directory; names its checkpoints.
    """
    if found := sorted((Path(path) / "checkpoints").glob("*/config.json")):
        names = ", ".join(str(config.parent) for config in found)
        raise ConfigError(f"{path} is a run, not a checkpoint: name one of {names}")


def context_of(checkpoint: str, task: str | None, sampling: dict[str, Any], overrides: Sequence[str] = ()) -> Context:
    """The run's own task, verifier and sampling, changed by what the command line says.

    Raises:
        ConfigError: no task is named and the checkpoint lies in no run, it is a run, or a name or value is unknown.
    """
    refuse_run(checkpoint)
    config = Path(checkpoint).resolve().parent.parent / "config.toml"
    run: dict[str, Any] = read_recorded(config) if config.exists() else {}
    if task is not None and task not in TASKS:
        raise ConfigError(f"there is no task {task!r}; known are {', '.join(TASKS)}")
    if task is None and "task" not in run:
        raise ConfigError(f"{checkpoint} lies in no run that says its task: name one with --task ({', '.join(TASKS)})")
    same_task = task is None or run.get("task", {}).get("name") == task
    data = {
        "task": run["task"] if same_task and "task" in run else {"name": task},
        "verifier": run.get("verifier", {}),
        "behaviour": run.get("behaviour", {}),
        "sampling": run.get("sampling", {}) | {key: value for key, value in sampling.items() if value is not None},
    }
    context = parse(_Context, data, overrides, source="the task")
    return Context(make_task(context.task), context.verifier, context.sampling, context.behaviour)
