"""The entry point: registers the commands, runs the one that is named, and reports an error in one sentence."""

import errno
import io
import os
import shlex
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TextIO

from groupwise.cli.app import app, reported
from groupwise.config.places import FOLDERS, RECIPES
from groupwise.errors import GroupwiseError
from groupwise.runs.atomic import FULL, HELD, REFUSED
from groupwise.runs.directory import environment
from groupwise.runs.processes import Stopped, handled, stop

COMMANDS = (
    "init", "train", "preflight", "pipeline", "evaluate", "budget", "sample", "verify", "audit", "doctor", "replay",
    "explore", "keys", "runs",
)  # fmt: skip
"""Modules of commands. Heavy imports are inside their functions, so that `--help` and mistakes in a recipe answer at
once. A new file of commands has its name in this list."""

for name in COMMANDS:
    import_module(f"groupwise.cli.{name}")

for point in sorted(entry_points(group="groupwise.command"), key=lambda point: point.name):
    try:
        point.load()  # a command of an installed package: importing it registers it
    except Exception as error:  # the others work
        print(f"groupwise: the command {point.name} ({point.value}) is not there: {error!r}", file=sys.stderr)

POSIX_ONLY = ("fcntl", "resource")
"""Modules of Python that only Linux and macOS have: locks of run directories and limits of workers need them."""

UNEXPECTED, NOT_WRITTEN = 70, 74
"""Exit status of a fault of ours, and where standard output could not be written; as sysexits.h has them."""


class _Output(io.RawIOBase):
    """Output whose reader may go away, or whose disk may be full: what cannot be written is dropped, nothing ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.lost: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        try:
            return len(data) if self.lost else os.write(self._descriptor, data)
        except BlockingIOError:
            raise
        except OSError as error:
            self.lost = error
            return len(data)


def _safe(stream: TextIO | None) -> tuple[TextIO, _Output | None]:
    """Return a stream that replaces what it cannot encode and never fails, and what it writes to."""
    if stream is None:  # it was closed before we began
        return open(os.devnull, "w", encoding="utf-8"), None
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(stream.buffer, io.BufferedWriter | io.FileIO):
        return stream, None
    raw = _Output(stream.fileno())
    text = io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, "backslashreplace",
        line_buffering=stream.line_buffering, write_through=stream.write_through,
    )  # fmt: skip
    return text, raw


def main() -> None:
    """Run the command line: an error that a user can mend is one sentence on stderr and exit status 2."""
    (sys.stdout, output), (sys.stderr, _) = _safe(sys.stdout), _safe(sys.stderr)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # also those of libraries
    status: Any = 0
    try:
        with handled(stop), reported("--json" in sys.argv):
            app()
    except Stopped as stopped:
        status = _said(stopped.sentence, stopped.code)
    except SystemExit as end:
        status = end.code
    except GroupwiseError as error:
        status = _said(str(error), 2)
    except OSError as error:
        if error.errno not in FULL + REFUSED or not error.filename:
            status = _said(*_recorded(error))
        else:
            status = _said(f"{error.filename} cannot be used: {error.strerror}", 2)
    except ModuleNotFoundError as error:
        what = f"{sys.platform} lacks {error.name!r}; on Windows use WSL2, which is a Linux"
        status = _said(what, 2) if error.name in POSIX_ONLY else _said(*_recorded(error))
    except Exception as error:
        status = _said(*_recorded(error))
    with suppress(Exception):
        sys.stdout.flush()
    if output is not None and output.lost is not None and output.lost.errno != errno.EPIPE:
        said = f"standard output could not be written, and part of it is lost: {output.lost.strerror}"
        status = status or _said(said, NOT_WRITTEN)
    sys.exit(status)


def _said(sentence: str, status: Any) -> Any:
    is_first = True
    if "WORLD_SIZE" in os.environ:  # several ranks fail alike
        from groupwise.ranks.group import RANKS

        is_first = RANKS.is_first_to_say(sentence)
    if is_first:
        print(f"groupwise: {sentence}", file=sys.stderr, flush=True)
    return status


def _recorded(error: Exception) -> tuple[str, int]:
    """Write a traceback into the run that was worked on, or named; return what to say of it and the exit status."""
    own, at = sorted(str(folder) for folder in FOLDERS if RECIPES.resolve() not in folder.parents), ""
    for frame in traceback.extract_tb(error.__traceback__):
        if str(Path(frame.filename).parent) in own:
            at = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        elif RECIPES.parent in Path(frame.filename).parents:
            at = ""  # the user's Python called us, or was left before
    named = [Path(word) for word in sys.argv[1:] if os.path.isfile(os.path.join(word, "config.toml"))]
    lines = ["".join(traceback.format_exception(error)), f"command: {shlex.join(sys.argv)}\n"]
    with suppress(Exception):
        lines += [f"{name}: {value}\n" for name, value in environment().items()]
    where = "which could not be written to a file:\n" + lines[0]
    rank = f"-rank{os.environ['RANK']}" if "RANK" in os.environ else ""
    for folder in (*reversed(HELD), *named, Path(tempfile.gettempdir())):
        path = folder / f"groupwise-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{rank}.txt"
        try:
            path.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        where = f"which is in {path}"
        where += "" if at else "; please report it with that file, after a look at what it tells of you"
        break
    said = f"{' '.join(f'{type(error).__name__}: {error}'.split()):.300}. It has a traceback, {where}"
    whose = f"or of the Python in {', '.join(own)}" if own else "not yours"
    return (f"{at}: {said}", 2) if at else (f"this is a fault of Groupwise, {whose}: {said}", UNEXPECTED)


__all__ = ["app", "main"]
