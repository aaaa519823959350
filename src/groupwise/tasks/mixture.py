"""Several tasks in one: problems of all parts, interleaved in proportion to their weights, each judged as in its task.

    [task]
    kind = "mixture"
    [task.parts.sums]
    weight = 3
    task = { kind = "arithmetic", kinds = ["sum"] }
    [task.parts.talk]
    weight = 1
    task = { kind = "general" }

The difficulty of its problems begins with the name of their part (`sums: sum 2x2`): evaluations in training have pass@1
of each part, and the report a curve of each.

A split ends where the part whose turn it is has no problem left, so that the proportions hold in all of it
and in every prefix.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.tasks.base import Task, TaskConfig
from groupwise.tasks.table import TaskOptions, make_task
from groupwise.types import FAMILY_END, Problem, Split
from groupwise.verifiers import VerifierConfig, verifier_config

T = TypeVar("T")
PartName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


class MixturePart(Section):
    """One task of a mixture."""

    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Its share of the problems, relative to the weights of the others."""
    task: TaskOptions
    """The task; any but a mixture."""


class MixtureConfig(TaskConfig):
    """The tasks of a mixture. All its problems have its template."""

    parts: dict[PartName, MixturePart] = Field(min_length=1)
    """The tasks, by names that you choose. Their own templates must be equal to the mixture's, or left out."""

    @model_validator(mode="after")
    def _check_templates(self) -> Self:
        for name, part in self.parts.items():
            if part.task.kind == self.kind:
                raise ValueError(f"parts.{name}.task is a mixture itself; any other task is allowed")
            if part.task.template not in (self.template, type(part.task).model_fields["template"].default):
                raise ValueError(
                    f"parts.{name}.task.template is not the template of the mixture, and all problems of a run are "
                    "rendered with one template: set task.template, and leave out those of the parts"
                )
        return self


class Mixture(Task):
    """Problems of several tasks, each of which names the verifier of its task."""

    name: ClassVar[str] = "mixture"
    verifier: ClassVar[str] = "routed"
    answers_any_question: ClassVar[bool] = False
    Config = MixtureConfig
    config: MixtureConfig

    def __init__(self, config: MixtureConfig) -> None:
        super().__init__(config)
        self._tasks = {name: make_task(part.task) for name, part in config.parts.items()}
        self._problems: dict[Split, Sequence[Problem]] = {}

    @property
    def verifier_config(self) -> VerifierConfig:
        judges: dict[str, tuple[str, VerifierConfig]] = {}
        for name, task in self._tasks.items():
            judge = task.verifier_config
            first, other = judges.setdefault(judge.kind, (name, judge))
            if judge != other:
                raise ConfigError(
                    f"parts.{first}.task and parts.{name}.task are judged by verifiers of the kind {judge.kind!r} with "
                    "different settings; only equal ones are allowed (verifier = ... of each task)"
                )
        each = {kind: judge for kind, (_, judge) in judges.items() if judge != verifier_config(kind)}
        return self.config.verifier or verifier_config({"kind": self.verifier, "each": each})

    def problems(self, split: Split) -> Sequence[Problem]:
        if split in self._problems:
            return self._problems[split]
        parts = {
            name: [
                replace(
                    problem,
                    verifier=task.verifier_config.kind,
                    difficulty=f"{name}{FAMILY_END}{problem.difficulty}" if problem.difficulty else name,
                )
                for problem in task.problems(split)
            ]
            for name, task in self._tasks.items()
        }
        owners: dict[str, str] = {}
        for name, problems in parts.items():
            for problem in problems:
                if owners.setdefault(problem.id, name) != name:
                    raise ConfigError(
                        f"task.parts.{owners[problem.id]} and task.parts.{name} both have the problem {problem.id} in "
                        f"their {split} splits; only tasks whose problems differ are allowed"
                    )
        weights = {name: part.weight for name, part in self.config.parts.items()}
        self._problems[split] = tuple(interleaved(parts, weights))
        return self._problems[split]


def interleaved(parts: Mapping[str, Sequence[T]], weights: Mapping[str, float]) -> Iterator[T]:
    """The parts' elements, each in its order, in proportion to the weights; ends when the next one is missing.

    Next is the part with the smallest (taken + 1/2) / weight, the first of equals: Webster's method of apportionment.
    """
    counts = dict.fromkeys(parts, 0)
    while True:
        name = min(parts, key=lambda part: (counts[part] + 0.5) / weights[part])
        if counts[name] == len(parts[name]):
            return
        yield parts[name][counts[name]]
        counts[name] += 1
