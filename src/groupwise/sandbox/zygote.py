"""The fork server: it forks a process at each order, reports its end, and leaves nothing of it behind.

It serves sandboxes, as process 1 where there are namespaces, and the trusted workers of `verifiers/workers.py`. Inside
a sandbox the package does not exist: the text of this file, standard library only, is given to the interpreter. The
server never reads a program, the forked process does: nothing of one run (source, input, expected values) is in the
memory that the next one inherits.

Orders and answers are the messages `ORDER` and `ANSWER` on a Unix socket, the control, which is the standard input:

- RUN with four descriptors (the program as JSON, standard input, output and error) forks a process for one program. The
  answer comes when it has ended: its wait status, and whether all that it left behind could be removed.
- FORK with two descriptors (a channel, and a file for what is printed) forks a worker. The answer is its process id.
- END kills the worker with that process id, and what it forked. The answer is its wait status.

The end of file, or another parent process, is the order to kill everything and leave.
"""

import atexit
import builtins
import contextlib
import ctypes
import gc
import io
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import types
from collections.abc import Sequence
from typing import Any

ORDER = struct.Struct("<cq")
ANSWER = struct.Struct("<q?")
RUN, FORK, END = b"R", b"F", b"E"
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that Slurm and others send to every process of a job. Only the job itself knows what is to be finished first,
and a program that dies by one would count as wrong."""
_LOOK_AFTER_PARENT_S = 1.0
_PRELOADED = ("array", "bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io",
              "itertools", "math", "operator", "random", "re", "statistics", "string", "typing")  # fmt: skip

_LIBC = ctypes.CDLL(None, use_errno=True)
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE, _READ = 0b0010, 0b1100  # landlock rights on files and directories below a path
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of rights that each version of landlock knows; since version 5 the same."""
OWN_PID = 0x7FFFFFFE  # stands in a filter for the number of the process on which it is installed


class Server:
    """Forks by order. What it forks returns from `serve`."""

    def __init__(self, control: int) -> None:
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, control)
        self._pid, self._parent = os.getpid(), os.getppid()
        self._workers: set[int] = set()
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def serve(self) -> list[int]:
        """Obey until the parent is gone; in a forked process, return the descriptors that came with the order."""
        os.write(self._control.fileno(), sys.version.encode())  # `send` is refused in a sandbox
        try:
            while self._wait():
                order, descriptors, _, _ = socket.recv_fds(self._control, ORDER.size, 4)
                if not order:
                    break
                action, pid = ORDER.unpack(order)
                if action == END:
                    answer = self._end(pid), True
                else:
                    pid = os.fork()
                    if pid == 0:
                        self._control.close()
                        if action == FORK:
                            _lead(0)
                        return descriptors
                    for descriptor in descriptors:
                        os.close(descriptor)
                    if action == FORK:
                        _lead(pid)
                        self._workers.add(pid)
                    answer = (pid, True) if action == FORK else self._follow(pid)
                os.write(self._control.fileno(), ANSWER.pack(*answer))
        except ConnectionError:  # the parent is gone, perhaps without having read an answer
            pass
        finally:
            if os.getpid() == self._pid:
                for pid in list(self._workers):
                    self._end(pid)
        os._exit(0)

    def _wait(self, *ends: int) -> bool:
        """Wait for an order or a descriptor; False when the parent is gone (or, with descriptors, gives an order)."""
        control = self._control.fileno()
        while not (ready := select.select([control, *ends], [], [], _LOOK_AFTER_PARENT_S)[0]):
            if os.getppid() != self._parent:
                return False
        return not ends or control not in ready

    def _follow(self, pid: int) -> tuple[int, bool]:
        ended = os.pidfd_open(pid)
        is_wanted = self._wait(ended)
        os.close(ended)
        if not is_wanted:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        is_clean = True
        if os.getpid() == 1:  # in separate namespaces: every other process, and every file here, is of this run
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(-1, signal.SIGKILL)
                while True:
                    os.waitpid(-1, 0)
            try:
                for name in os.listdir():
                    os.unlink(name)
            except OSError:
                is_clean = False
        if not is_wanted:
            os._exit(0)
        return status, is_clean

    def _end(self, pid: int) -> int:
        if pid not in self._workers:
            return 0
        # with what it forked; harmless where it has ended already: it is not reaped before the next line
        os.killpg(pid, signal.SIGKILL)
        self._workers.discard(pid)
        return os.waitpid(pid, 0)[1]


def _lead(pid: int) -> None:
    """Give a worker its own process group; server and worker both do it, as neither knows which runs first."""
    with contextlib.suppress(PermissionError, ProcessLookupError):  # it has ended, or has been told already
        os.setpgid(pid, 0)


def main(boot: dict[str, Any]) -> None:
    """Serve programs until the parent is gone; a forked process becomes its program and ends with it.

    `boot`: `run_filter` (hexadecimal), `directory`; without namespaces also `readable` and `sandbox_filter`.
    """
    control = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(boot["directory"])
    os.environ.clear()
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # what the module `site` would have set
    for home in (builtins, io):
        vars(home).update(open=staticmethod(_open))  # which, as the built-in one, is no method of a class that has it
    for name in _PRELOADED:
        __import__(name)
    if "readable" in boot:
        refuse_new_privileges()
        restrict_files(boot["readable"])
        install_filter(bytes.fromhex(boot["sandbox_filter"]))
    gc.collect()
    gc.freeze()
    descriptors = Server(control).serve()
    with open(descriptors[0], "rb") as file:
        request = json.load(file)
    for target, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, target)
    os.closerange(3, 1024)
    for number, name in ((1, "stdout"), (2, "stderr")):
        # anew: those of the server hold that a file is behind them, and a wrapper of their buffer would seek in a pipe
        old = getattr(sys, name)
        stream = _OPEN(number, "w", encoding=old.encoding, errors=old.errors, closefd=False)
        stream.reconfigure(line_buffering=old.line_buffering)
        vars(sys).update({name: stream, f"__{name}__": stream})
    for name, content in request["files"].items():
        with open(name, "wb") as file:
            file.write(content.encode("latin-1"))
    limit(**request["limits"])
    install_filter(bytes.fromhex(boot["run_filter"]))
    sys.argv = ["program.py"]
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    status = _execute(request["source"], module.__dict__)
    # end as the interpreter would, without taking it apart, which costs more than most programs
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    files = [value for value in module.__dict__.values() if issubclass(type(value), io.IOBase)]
    streams: list[Any] = [sys.stdout, sys.stderr, *files, sys.__stdout__, sys.__stderr__]  # a program may exchange them
    for stream in streams:
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status & 0xFF)


_OPEN = open


def _open(file: Any, *others: Any, **named: Any) -> Any:
    """Open a file, or a standard stream by a name that leads into /proc, which is not there."""
    stream = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}.get(str(file))
    return _OPEN(file if stream is None else os.dup(stream), *others, **named)


def _execute(source: str, namespace: dict[str, Any]) -> int:
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


def install_filter(program: bytes) -> None:
    """Put a seccomp filter on this process, for good; needs `refuse_new_privileges` first."""
    program = program.replace(struct.pack("<I", OWN_PID), struct.pack("<I", os.getpid()))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(_LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), header), "seccomp")


def refuse_new_privileges() -> None:
    """Keep every program that this process starts from gaining privileges."""
    _check(_LIBC.prctl(_NO_NEW_PRIVILEGES, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0))), "no_new_privs")


def landlock_version() -> int:
    """Return the kernel's version of landlock; 0 where there is none."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def restrict_files(readable: Sequence[str]) -> None:
    """Let this process only read below these paths, and write /dev/null; no TCP or signals where the kernel can."""
    version = landlock_version()
    rights = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
    attributes = struct.pack("@QQQ", rights, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _check(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock")
    allowed = [(path, _READ if os.path.isdir(path) else _READ & ~0b1000) for path in readable if os.path.exists(path)]
    for path, path_rights in (*allowed, ("/dev/null", _WRITE | _READ & ~0b1000)):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", path_rights, descriptor)
        _check(_LIBC.syscall(_ADD_RULE, rules, 1, rule, 0), f"landlock rule for {path}")
        os.close(descriptor)
    _check(_LIBC.syscall(_RESTRICT_SELF, rules, 0), "landlock")
    os.close(rules)


def limit(cpu_s: int, memory_mb: int, files_mb: int, max_processes: int) -> None:
    """Set hard limits on this process; only the one on processor time warns (SIGXCPU) a second before it kills."""
    limits = {
        resource.RLIMIT_AS: memory_mb << 20, resource.RLIMIT_FSIZE: files_mb << 20, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 64, resource.RLIMIT_MEMLOCK: 0, resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NPROC: max_processes,
    }  # fmt: skip
    for which, most in limits.items():
        resource.setrlimit(which, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result
