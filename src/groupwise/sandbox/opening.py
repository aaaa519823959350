"""Opening a sandbox: the tier of the configuration, or an error; never a weaker one in its place.

Tier `remote`: an HTTP executor at `url`, asked by POST with JSON; bytes travel as base64.

Request: {"runs": [[program], [tester, solver], ...]}. A run of one program is run alone; of two, each one's standard
output is the other's standard input, in a sandbox each. A program has `source` or `command` (list), `stdin`, `files`
(name to content) and its limits `wall_s`, `cpu_s`, `memory_mb`, `max_processes`, `files_mb`, `output_kb`.
Reply: {"results": [[result], [result, result], ...]} in the same order. A result has `status` (exited, signalled,
timeout, flooded, failed), `exit_code` (minus the signal's number, or null), `stdout`, `stderr`, `seconds`, `evidence`.
"""

import base64
import json
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import Any

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.bubblewrap import BubblewrapSandbox
from groupwise.sandbox.local import LandlockSandbox
from groupwise.sandbox.post import OversizedError, post

_SPARE_S = 30.0  # seconds a request may take beside the deadlines of its programs
_MAX_REPLY = 1 << 28


class RemoteSandbox(Sandbox):
    """Programs run elsewhere. Where the executor does not answer as agreed, their status is FAILED."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config

    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        body = {"runs": [[self._encode(program) for program in run] for run in runs]}
        headers = {"Content-Type": "application/json"}
        seconds = _SPARE_S + sum(max(program.limits(self.config).wall_s for program in run) for run in runs)
        try:
            reply = post(self.config.url, json.dumps(body).encode("ascii"), headers, seconds, _MAX_REPLY)
            if reply.status != 200:
                raise ValueError(f"it answers with the status {reply.status}")
            results = [
                [
                    RunResult(
                        Status(end["status"]),
                        None if end["exit_code"] is None else int(end["exit_code"]),
                        base64.b64decode(end["stdout"], validate=True),
                        base64.b64decode(end["stderr"], validate=True),
                        float(end["seconds"]),
                        str(end["evidence"]),
                    )
                    for end in run
                ]
                for run in json.loads(reply.body)["results"]
            ]
            if [len(run) for run in results] != [len(run) for run in runs]:
                raise ValueError("the number of results is not that of the programs")
            return results
        except (OSError, HTTPException, OversizedError, ValueError, KeyError, TypeError, RecursionError) as error:
            failed = RunResult(Status.FAILED, None, b"", b"", 0.0, f"{self.config.url}: {error!r}"[:400])
            return [[failed] * len(run) for run in runs]

    def _encode(self, program: Program) -> dict[str, Any]:
        return {
            "source": program.source,
            "command": list(program.command),
            "stdin": base64.b64encode(program.stdin).decode(),
            "files": {name: base64.b64encode(content).decode() for name, content in program.files.items()},
            **program.limits(self.config)._asdict(),
            "output_kb": program.output_kb,
        }


_REFUSED = """
def refused(*attempts):
    for attempt in attempts:
        try:
            result = attempt()
        except (OSError, MemoryError, RuntimeError, ValueError):
            continue
        print("not refused:", result)
        raise SystemExit
    print("held")
"""

_PROGRAMS = {
    "new processes": """
import os, time
def fork():
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(9)
            os._exit(0)
    return "200 processes"
refused(fork)
""",
    "threads": """
import threading, time
def start():
    for _ in range(LIMIT.max_processes + 1):
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
    return "more threads than allowed"
refused(start)
""",
    "files of the host": """
import os
paths = ("/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/self/environ", "/proc/1/mem", SECRET)
refused(*(lambda path=path: open(path).read() and path for path in paths), lambda: os.listdir("/root"))
""",
    "writing outside /tmp": """
places = ("/", "/usr/", "/usr/lib/", "/etc/", "/dev/", "/dev/shm/", "/var/tmp/", "/opt/", "/opt/python/lib/")
refused(*(lambda place=place: open(place + "groupwise-probe", "w") for place in places))
""",
    "filling the disk": """
def fill():
    for number in range(LIMIT.files_mb + 1):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    return "more than the limit"
refused(fill)
""",
    "the network": """
import socket
kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
refused(*(lambda f=f, k=k: socket.socket(f, k) for f in families for k in kinds))
""",
    "the environment and open files": """
import os
if os.environ:
    print("environment:", *os.environ)
refused(*(lambda fd=fd: os.fstat(fd) and fd for fd in range(3, 256)))
""",
    "memory": "refused(lambda: len(bytearray((LIMIT.memory_mb + 1) << 20)))",
    "signals to others": """
import os
refused(lambda: os.kill(os.getppid(), 0), lambda: os.kill(-1, 0), lambda: os.kill(1, 0))
""",
    "higher limits": """
import resource as r
def raise_limit(which):
    r.setrlimit(which, (r.RLIM_INFINITY, r.RLIM_INFINITY))
    return which
refused(*(lambda w=w: raise_limit(w) for w in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NPROC)))
""",
    "privileged system calls": """
import ctypes, os
libc = ctypes.CDLL(None)
def call(name, *arguments):
    def attempt():
        if getattr(libc, name)(*arguments) == -1:
            raise OSError
        return name
    return attempt
refused(call("ptrace", 16, os.getppid(), 0, 0), call("unshare", 0x10000000), call("unshare", 0x20000),
        call("mount", b"none", b"/tmp", b"tmpfs", 0, None), call("shmget", 0, 4096, 0o1600),
        call("memfd_create", b"x", 0), call("setns", 0, 0), call("chroot", b"/tmp"), call("setuid", 0))
""",
}


def check(sandbox: Sandbox) -> None:
    """Run every program of the self-test (SandboxError: names what was not refused, with the program's own words)."""
    limits = Program().limits(sandbox.config)._asdict()
    with tempfile.NamedTemporaryFile(prefix="groupwise-secret-") as secret:
        secret.write(b"secret")
        secret.flush()
        start = f"from types import SimpleNamespace\nLIMIT = SimpleNamespace(**{limits})\nSECRET = {secret.name!r}\n"
        results = sandbox.run_many([Program(f"{start}{_REFUSED}{text}") for text in _PROGRAMS.values()])
    for name, result in zip(_PROGRAMS, results, strict=True):
        _require(result.stdout == b"held\n", name, result)
    sleeper, flood, benign = sandbox.run_many([
        Program("import time; time.sleep(60)", wall_s=0.2),
        Program("while True: print('flood' * 1000)"),
        Program("print(sum(map(int, input().split())))", stdin=b"1 2 3"),
    ])  # fmt: skip
    _require(sleeper.status is Status.TIMEOUT, "running past the deadline", sleeper)
    _require(flood.status is Status.FLOODED, "endless output", flood)
    _require(benign.stdout == b"6\n", "an honest program's answer", benign)


def _require(held: bool, name: str, result: RunResult) -> None:
    if not held:
        words = (result.stdout + result.stderr).decode(errors="replace").strip()[-200:]
        raise SandboxError(
            f"the sandbox does not hold, so nothing is run in it: {name}: {result.status} {result.evidence} {words!r}"
        )


TIERS: Mapping[str, Callable[[SandboxConfig], Sandbox]] = {
    "bubblewrap": BubblewrapSandbox, "landlock": LandlockSandbox, "remote": RemoteSandbox,
}  # fmt: skip


def open_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """Open a sandbox that refuses all that the self-test tries (SandboxError: says what to install or set)."""
    config = config or SandboxConfig()
    sandbox = TIERS[config.tier](config)
    try:
        check(sandbox)
    except BaseException:
        sandbox.close()
        raise
    return sandbox


class LazySandbox(Sandbox):
    """A sandbox that opens when it is first used, and again after it was closed."""

    def __init__(self, config: SandboxConfig, sandbox: Sandbox | None = None) -> None:
        self.config, self._sandbox, self._lock = config, sandbox, threading.Lock()

    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        if not runs:
            return []
        with self._lock:
            self._sandbox = self._sandbox or open_sandbox(self.config)
        return self._sandbox.run_all(runs)

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
