"""Tier `landlock`: for hosts that forbid namespaces. The fork server confines itself by landlock, seccomp and limits.

Weaker than `bubblewrap`: process numbers, the network's existence and the names of files can be seen; there is no
place to write. In exchange a program may start neither processes nor threads, so that it ends with its process.
"""

from collections.abc import Sequence
from typing import ClassVar

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, RunResult
from groupwise.sandbox.confine import landlock_version
from groupwise.sandbox.host import machine, reachable_interpreter
from groupwise.sandbox.local import LocalSandbox
from groupwise.sandbox.scripts import zygote_command, zygote_environment
from groupwise.sandbox.seccomp import run_filter, sandbox_filter

_READABLE = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/zero", "/dev/urandom")


class LandlockSandbox(LocalSandbox):
    """Landlock, seccomp and limits. Runs Python sources without files."""

    advice: ClassVar[str] = 'it needs Linux 5.13 or later with landlock switched on; or set sandbox.tier = "bubblewrap"'

    def server_command(self, filter_fd: int) -> list[str]:
        """The fork server, which confines itself."""
        if landlock_version() == 0:
            raise SandboxError(f"this kernel has no landlock: {self.advice}")
        program, prefix = reachable_interpreter()
        boot = {
            "run_filter": run_filter(machine(), threads=False).hex(),
            "sandbox_filter": sandbox_filter(machine(), metadata=False).hex(),
            "readable": [f"{prefix}/lib", *_READABLE],
            "directory": "/",
        }
        environment = [f"{name}={value}" for name, value in zygote_environment(str(prefix)).items()]
        return ["/usr/bin/env", "-i", *environment, *zygote_command(str(program), boot)]

    def run_many(self, programs: Sequence[Program]) -> list[RunResult]:
        """One result per program.

        Raises:
            SandboxError: a program has files.
        """
        if any(program.files for program in programs):
            raise SandboxError("tier landlock has no place for files; programs with files need tier bubblewrap")
        return super().run_many(programs)
