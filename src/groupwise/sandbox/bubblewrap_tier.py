"""Tier `bubblewrap`: fork servers, and programs of the host's /usr, each in a bubblewrap of its own."""

from typing import ClassVar

from groupwise.sandbox.base import Program, RunResult
from groupwise.sandbox.bubblewrap import fork_server_command
from groupwise.sandbox.command import run_command
from groupwise.sandbox.local import LocalSandbox


class BubblewrapSandbox(LocalSandbox):
    """Namespaces, seccomp and limits; works for the superuser and for ordinary users."""

    advice: ClassVar[str] = (
        "allow user namespaces (in a container by its seccomp or AppArmor profile, on Ubuntu by sysctl "
        'kernel.apparmor_restrict_unprivileged_userns=0), or set sandbox.tier = "landlock", which is weaker'
    )

    def server_command(self, filter_fd: int) -> list[str]:
        """bubblewrap with the fork server as process 1."""
        return fork_server_command(self.config, filter_fd)

    def run_command(self, program: Program) -> RunResult:
        """Run a program of the host's /usr over files."""
        return run_command(program, self.config)
