"""The entry point: registers the commands, runs the one that is named, and reports an error in one sentence."""

import os
import sys
import warnings
from importlib import import_module
from importlib.metadata import entry_points

from groupwise.cli.app import app
from groupwise.errors import GroupwiseError
from groupwise.runs.atomic import FULL, REFUSED
from groupwise.runs.signals import Stopped, handled, stop

COMMANDS = (
    "init", "train", "preflight", "pipeline", "evaluate", "budget", "sample", "verify", "audit", "doctor", "replay",
    "explore", "imports", "keys", "runs", "export",
)  # fmt: skip
"""Modules of commands. Heavy imports are inside their functions, so that `--help` and mistakes in a recipe answer at
once. A new command is a file here and its name in this list."""

for name in COMMANDS:
    import_module(f"groupwise.cli.{name}")

for point in sorted(entry_points(group="groupwise.command"), key=lambda point: point.name):
    point.load()  # a command of an installed package: importing it registers it

POSIX_ONLY = ("fcntl", "resource")
"""Modules of Python that only Linux and macOS have: locks of run directories and limits of workers need them."""


def main() -> None:
    """Run the command line: an error that a user can mend is one sentence on stderr and exit status 2."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # also those of libraries
    try:
        with handled(stop):
            app()
    except GroupwiseError as error:
        _say(str(error))
        sys.exit(2)
    except Stopped as stopped:
        _say(stopped.sentence)
        raise
    except OSError as error:
        if error.errno not in FULL + REFUSED or not error.filename:
            raise
        print(f"groupwise: {error.filename} cannot be used: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in POSIX_ONLY:
            raise
        print(f"groupwise: {sys.platform} lacks {error.name!r}; on Windows use WSL2, which is a Linux", file=sys.stderr)
        sys.exit(2)


def _say(sentence: str) -> None:
    is_first = True
    if "WORLD_SIZE" in os.environ:  # several ranks end alike
        from groupwise.ranks.group import RANKS

        is_first = RANKS.is_first_to_say(sentence)
    if is_first:
        print(f"groupwise: {sentence}", file=sys.stderr)


__all__ = ["app", "main"]
