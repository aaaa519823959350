"""The fork server: process 1 of a sandbox. It forks one process per run and kills whatever that leaves behind.

Standard library only; its text, after that of `confine.py`, is given to the interpreter. It never reads a request, the
forked process does: nothing of one run (source, input, expected values) is in the memory that the next one inherits.

Requests are one byte and four descriptors: the request (JSON), standard input, output and error. Reports are
`REPORT`: the wait status, and 1 when the run left more behind than could be removed. End of file is the order to end.
"""

import atexit
import builtins
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import types
from typing import Any, NoReturn

from groupwise.sandbox.confine import install_filter, limit, refuse_new_privileges, restrict_files

REPORT = struct.Struct("<iB")
_PRELOADED = ("array", "bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io",
              "itertools", "math", "operator", "random", "re", "statistics", "string", "typing")  # fmt: skip


def main(boot: dict[str, Any]) -> None:
    """Serve until the parent is gone. Returns only in a forked process, after its program has run.

    `boot`: `run_filter` (hexadecimal), `directory`; without namespaces also `readable` and `sandbox_filter`.
    """
    control = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(boot["directory"])
    os.environ.clear()
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # what the module `site` would have set
    for name in _PRELOADED:
        __import__(name)
    if "readable" in boot:
        refuse_new_privileges()
        restrict_files(boot["readable"])
        install_filter(bytes.fromhex(boot["sandbox_filter"]))
    gc.collect()
    gc.freeze()
    os.write(control, sys.version.encode())
    _run(_serve(control), bytes.fromhex(boot["run_filter"]))


def _serve(control: int) -> list[int]:
    """Fork for every request; returns its descriptors, in the forked process only."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, control)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1, 4)
        if not message:
            _end()
        pid = os.fork()
        if pid == 0:
            return descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        status = _wait(pid, control)
        os.write(control, REPORT.pack(status, os.getpid() == 1 and not _clean()))


def _wait(pid: int, control: int) -> int:
    """The wait status of a run, once it and all that it started are gone; ends everything when the parent is gone."""
    ended = os.pidfd_open(pid)
    gone = control in select.select([ended, control], [], [])[0]
    os.close(ended)
    if gone:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    _end_others()
    if gone:
        _end()
    return status


def _end_others() -> None:
    """Kill and reap every process beside this one; only process 1 has any."""
    if os.getpid() == 1:
        try:
            os.kill(-1, signal.SIGKILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            return


def _clean() -> bool:
    """Remove the files of a run; False when it left anything else."""
    for name in os.listdir():
        try:
            os.unlink(name)
        except OSError:
            return False
    return True


def _end() -> NoReturn:
    os._exit(0)


def _run(descriptors: list[int], run_filter: bytes) -> None:
    """Become the program: its descriptors, files, limits and filter, then its source as `__main__`."""
    with open(descriptors[0], "rb") as file:
        request = json.load(file)
    for target, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, target)
    os.closerange(3, 1024)
    for name, content in request["files"].items():
        with open(name, "wb") as file:
            file.write(content.encode("latin-1"))
    limit(**request["limits"])
    install_filter(run_filter)
    sys.argv = ["program.py"]
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    _exit(_execute(request["source"], module.__dict__))


def _execute(source: str, namespace: dict[str, Any]) -> int:
    """The exit status of a source, as the interpreter would give it."""
    try:
        exec(compile(source, "program.py", "exec"), namespace)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _exit(status: int) -> NoReturn:
    """End as the interpreter would, without taking it apart, which costs more than most programs."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
