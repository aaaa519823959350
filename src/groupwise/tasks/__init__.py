"""The tasks. To add one: write its file, then add its class to `TASKS` and its configuration to `TaskOptions`."""

from typing import Annotated

from pydantic import Field

from groupwise.tasks.arithmetic import Arithmetic, ArithmeticConfig
from groupwise.tasks.base import Task
from groupwise.tasks.code import Code, CodeConfig
from groupwise.tasks.countdown import Countdown, CountdownConfig
from groupwise.tasks.jsonl import Jsonl
from groupwise.tasks.jsonl_config import JsonlConfig
from groupwise.tasks.logic import LOGIC_TASKS, LogicOptions
from groupwise.tasks.proofs import PROOF_TASKS, ProofOptions
from groupwise.tasks.word_problems import WordProblems, WordProblemsConfig

TaskOptions = Annotated[
    ArithmeticConfig | WordProblemsConfig | CountdownConfig | JsonlConfig | CodeConfig | LogicOptions | ProofOptions,
    Field(discriminator="name"),
]
"""The [task] section of a recipe: `name` says which task's dials the others are."""

_ALL: tuple[type[Task], ...] = (Arithmetic, WordProblems, Countdown, Jsonl, Code, *LOGIC_TASKS, *PROOF_TASKS)
TASKS: dict[str, type[Task]] = {task.name: task for task in _ALL}
"""Task classes by name."""


def make_task(config: TaskOptions) -> Task:
    """The task that a configuration describes."""
    return TASKS[config.name](config)
