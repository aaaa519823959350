"""The tasks. To add one: its file, and a line in `table.py`; your own is `kind = "stories.py:Stories"`."""

from groupwise.tasks.base import Task, TaskConfig, Template
from groupwise.tasks.table import TASKS, TaskOptions, make_task, with_verifier

__all__ = ["TASKS", "Task", "TaskConfig", "TaskOptions", "Template", "make_task", "with_verifier"]
