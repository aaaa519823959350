"""The tasks by name, and the verifier that judges a recipe's completions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from groupwise.config import FOLDER, merged
from groupwise.config.kinds import Kinds
from groupwise.errors import ConfigError
from groupwise.tasks.base import Task, TaskConfig
from groupwise.verifiers import VERIFIERS

_HERE = "groupwise.tasks"

TASKS = Kinds(
    "task",
    {
        "arithmetic": f"{_HERE}.arithmetic:Arithmetic",
        "numbers": f"{_HERE}.numbers:Numbers",
        "word_problems": f"{_HERE}.word_problems:WordProblems",
        "countdown": f"{_HERE}.countdown:Countdown",
        "general": f"{_HERE}.general:General",
        "jsonl": f"{_HERE}.jsonl:Jsonl",
        "code": f"{_HERE}.code:Code",
        "knights_knaves": f"{_HERE}.knights_knaves:KnightsKnaves",
        "json_extraction": f"{_HERE}.json_extraction:JsonExtraction",
        "instructions": f"{_HERE}.instructions:Instructions",
        "nim": f"{_HERE}.games:Nim",
        "tic_tac_toe": f"{_HERE}.games:TicTacToe",
        "propositional_proofs": f"{_HERE}.propositional:PropositionalProofs",
        "minif2f": f"{_HERE}.statements:Minif2f",
        "coq_statements": f"{_HERE}.statements:CoqStatements",
        "reasoning_gym": f"{_HERE}.reasoning_gym:ReasoningGym",
        "mixture": f"{_HERE}.mixture:Mixture",
    },
)
"""The module of each."""

TaskOptions = Annotated[TaskConfig, TASKS]
"""The [task] section of a recipe: `kind` says which task's dials the others are."""


def make_task(section: TaskConfig | Mapping[str, Any] | str) -> Task:
    """The task of a section, a table or a kind alone."""
    config = TASKS.read(section)
    task: Task = TASKS.find(config.kind)(config)
    return task


def with_verifier(tables: Any, folder: Path | None) -> Any:
    """A recipe's tables in which `verifier` names its kind: if it names none, it is laid over the task's section."""
    if not isinstance(tables, Mapping) or VERIFIERS.kind_of(section := tables.get("verifier", {})) is not None:
        return tables
    try:
        judge = make_task(TASKS.read(tables.get("task"), {FOLDER: folder})).verifier_config.model_dump(mode="json")  # type: ignore[arg-type]
    except (ConfigError, ValidationError):
        return {**tables, "verifier": "answered"}  # the fault of the task comes first
    if not isinstance(section, Mapping):
        return tables
    for member in judge.get("each", {}).values():  # what the recipe says about all counts for each
        for name in section:
            member.pop(name, None)
    return {**tables, "verifier": merged(judge, section)}
