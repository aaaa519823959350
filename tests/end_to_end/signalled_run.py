"""A GRPO run that sends itself a signal at an exact place; imported by the processes that `test_resume` starts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.trainers import run_rl
from groupwise.trainers.grpo import GrpoRecipe

OPERATIONS = ("fsync", "replace", "truncate", "symlink", "unlink", "rmdir")
"""Functions of `os` between which the state of a disk can be seen."""


def train_and_signal(recipe: GrpoRecipe, number: int, place: int | str) -> None:
    """Run the recipe; just before an operation on the disk, the process sends itself a signal.

    Args:
        place: which operation: the n-th of the process, or the first whose file or directory has this name.
    """
    count = 0

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            names = [Path(argument).name for argument in arguments if isinstance(argument, (str, Path))]
            if place == count or place in names:
                os.kill(os.getpid(), number)
            return operation(*arguments, **options)

        return call

    for name in OPERATIONS:
        setattr(os, name, watched(getattr(os, name)))
    run_rl(recipe)
