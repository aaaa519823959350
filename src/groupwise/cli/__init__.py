"""The command line: `groupwise --help`."""

from groupwise.cli.main import main

__all__ = ["main"]
