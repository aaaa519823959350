"""Processes that start at once: they are forked from a server that has imported the package, and torch with it, once.

One server is enough for all tests of a process, so all modules of this folder take theirs from here. Where the package
itself starts processes, this module may stand for `subprocess`: `Popen` of `python -m groupwise`.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from subprocess import DEVNULL as DEVNULL
from subprocess import PIPE as PIPE
from subprocess import STDOUT as STDOUT
from typing import Any, TextIO

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["preloaded"])


def start(run: Callable[..., Any], *arguments: Any) -> ForkServerProcess:
    """Call a function in a process of its own."""
    process = CONTEXT.Process(target=run, args=arguments, daemon=True)
    process.start()
    return process


class Popen:
    """Stands for a `subprocess.Popen` of `python -m groupwise ...`: a process that is forked instead of started."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdout: int,
        stderr: int = STDOUT,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        program, *module, self.args = words[0], *words[1:3], list(words[3:])
        assert (program, module) == (sys.executable, ["-m", "groupwise"])
        reader, writer = CONTEXT.Pipe(duplex=False)
        # not a daemon: it may start processes of its own
        self._process = CONTEXT.Process(target=_command, args=(self.args, writer, dict(env or os.environ)))
        self._process.start()
        writer.close()
        self.stdout: TextIO = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    def __enter__(self) -> "Popen":
        return self

    def __exit__(self, *error: object) -> None:
        if any(error):
            self._process.kill()
        self._process.join()
        self.stdout.close()

    @property
    def returncode(self) -> int | None:
        """None as long as it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def _command(arguments: list[str], writer: Connection, environment: dict[str, str]) -> None:
    """Be `groupwise` with these arguments."""
    import torch

    from groupwise.cli.main import main
    from groupwise.runs import processes

    os.setsid()  # Ctrl-C is sent to it, and reaches it only so
    for descriptor in (1, 2):
        os.dup2(writer.fileno(), descriptor)
    writer.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have ignored it
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", 1)))
    sys.argv = ["groupwise", *arguments]
    global CONTEXT
    CONTEXT = multiprocessing.get_context("fork")  # type: ignore[assignment]  # it would start a server of its own
    processes.subprocess = sys.modules[__name__]  # type: ignore[attr-defined]
    main()
