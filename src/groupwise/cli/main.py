"""The entry point: runs the command that is named, and reports an error in one sentence."""

import os
import sys
import warnings

from groupwise.cli import commands  # noqa: F401  registers them
from groupwise.cli.app import app
from groupwise.errors import GroupwiseError


def main() -> None:
    """Entry point: a mistake a user can mend is one sentence on stderr and exit code 2; a warning is one sentence."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # also those of libraries
    try:
        app()
    except GroupwiseError as error:
        if "WORLD_SIZE" not in os.environ or _is_first_to_say(str(error)):
            print(f"groupwise: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in POSIX_ONLY:
            raise
        print(f"groupwise: {sys.platform} lacks {error.name!r}; on Windows use WSL2, which is a Linux", file=sys.stderr)
        sys.exit(2)


POSIX_ONLY = ("fcntl", "resource")
"""Modules of Python that only Linux and macOS have: locks of run directories and limits of workers are theirs."""


def _is_first_to_say(sentence: str) -> bool:
    from groupwise.ranks.group import RANKS

    return RANKS.is_first_to_say(sentence)


__all__ = ["app", "main"]
