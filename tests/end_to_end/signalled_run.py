"""A run that sends itself a signal at an exact place; imported by the processes that the tests of this folder start."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes

from groupwise.trainers import train

PATIENCE_S = 600.0

OPERATIONS = ("fsync", "replace", "truncate", "symlink", "unlink", "rmdir")
"""Functions of `os` between which the state of a disk can be seen."""


def train_and_signal(recipe: Any, number: int, place: int | str, run: Callable[[Any], Any] = train) -> None:
    """Run the recipe; just before an operation on the disk, the process sends itself a signal.

    Args:
        recipe: of the run.
        number: of the signal.
        place: which operation: the n-th of the process, or the first whose file or directory has this name.
        run: what runs the recipe.
    """
    count = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have ignored it

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
    run(recipe)


def exit_code(recipe: Any, place: int | str, run: Callable[[Any], Any] = train, number: int = signal.SIGKILL) -> Any:
    """Run the recipe in a process of its own, with a signal at a place; returns its exit code."""
    process = processes.start(train_and_signal, recipe, number, place, run)
    process.join(PATIENCE_S)
    return process.exitcode
