"""Tier `bubblewrap`: fork servers, and programs of the host's /usr, each in a bubblewrap of its own."""

import subprocess

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, RunResult
from groupwise.sandbox.bubblewrap import find_bubblewrap, fork_server_command, machine
from groupwise.sandbox.command import run_command
from groupwise.sandbox.fork_server import ForkServer
from groupwise.sandbox.host import launcher, make_cgroups, remove_cgroups
from groupwise.sandbox.local import LocalSandbox
from groupwise.sandbox.seccomp import sandbox_filter
from groupwise.sandbox.streams import memory_file

_SERVER_MB = 64
"""Memory of a fork server itself."""


class BubblewrapSandbox(LocalSandbox):
    """Namespaces, seccomp and limits; works for the superuser and for ordinary users."""

    def start_server(self) -> ForkServer:
        """A new fork server.

        Raises:
            SandboxError: bubblewrap is missing, or this host forbids namespaces.
        """
        find_bubblewrap()
        config = self.config
        groups = make_cgroups(config.memory_mb + config.files_mb + _SERVER_MB, config.max_processes + 4)

        def spawn(control: int, errors: int) -> "subprocess.Popen[bytes]":
            with memory_file(sandbox_filter(machine())) as rules:
                return subprocess.Popen(
                    [*launcher(groups), *fork_server_command(config, rules)],
                    stdin=control,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[rules],
                    env={},
                    start_new_session=True,
                )

        try:
            return ForkServer(spawn, groups)
        except SandboxError as error:
            remove_cgroups(groups)
            raise SandboxError(
                f"bubblewrap does not start here ({error}): allow user namespaces (in a container by its seccomp or "
                "AppArmor profile, on Ubuntu by sysctl kernel.apparmor_restrict_unprivileged_userns=0), or set "
                'sandbox.tier = "landlock", which is weaker'
            ) from None

    def run_command(self, program: Program) -> RunResult:
        """Run a program of the host's /usr over files."""
        return run_command(program, self.config)
