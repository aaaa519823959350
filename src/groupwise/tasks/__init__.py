"""The tasks. To add one: write its file, then add its class and its configuration to `table.py`."""

from typing import Annotated

from pydantic import Field

from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.tasks.base import Task
from groupwise.tasks.countdown import CountdownConfig
from groupwise.tasks.mixture import Mixture, MixtureConfig
from groupwise.tasks.table import SINGLE_TASKS, SingleOptions

TaskOptions = Annotated[SingleOptions | MixtureConfig, Field(discriminator="name")]
"""The [task] section of a recipe: `name` says which task's dials the others are."""

TASKS: dict[str, type[Task]] = {**SINGLE_TASKS, Mixture.name: Mixture}
"""Task classes by name."""


def make_task(config: TaskOptions) -> Task:
    """The task that a configuration describes."""
    return TASKS[config.name](config)


__all__ = ["TASKS", "ArithmeticConfig", "CountdownConfig", "TaskOptions", "make_task"]
