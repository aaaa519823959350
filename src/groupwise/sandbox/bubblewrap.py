"""Command lines of bubblewrap: all namespaces new, an empty environment, /usr read-only, one small writable /tmp.

There is no /proc, no device beyond null, zero and urandom, no program of the host but the interpreter or, for commands,
those of /usr. Nothing is shared with other sandboxes.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.errors import SandboxError
from groupwise.sandbox.base import SandboxConfig
from groupwise.sandbox.host import interpreter, machine, reachable_interpreter
from groupwise.sandbox.scripts import zygote_command, zygote_environment
from groupwise.sandbox.seccomp import run_filter

_PYTHON_HOME = "/opt/python"


def find_bubblewrap() -> str:
    """Path of the program.

    Raises:
        SandboxError: it is not installed; says how to install it.
    """
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError(
            "the sandbox needs bubblewrap, which is not installed: `apt-get install bubblewrap` (or set "
            'sandbox.tier = "landlock", which is weaker, or "remote")'
        )
    return found


def fork_server_command(config: SandboxConfig, filter_fd: int) -> list[str]:
    """bubblewrap with the fork server as process 1; the filter is read from a descriptor."""
    program, prefix = reachable_interpreter()
    if interpreter()[1] == Path("/usr"):
        python, binds = str(program), ["--ro-bind", str(program), str(program)]
    else:
        python = f"{_PYTHON_HOME}/bin/{program.name}"
        binds = ["--ro-bind", f"{prefix}/lib", f"{_PYTHON_HOME}/lib", "--ro-bind", str(program), python]
    boot = {"run_filter": run_filter(machine()).hex(), "directory": "/tmp"}
    return [
        *_base(config, filter_fd), *_libraries(["/usr/lib", "/usr/lib64"]), *binds,
        *_end(zygote_environment(_PYTHON_HOME)), "--as-pid-1", "--", *zygote_command(python, boot),
    ]  # fmt: skip


def command_line(
    config: SandboxConfig, filter_fd: int, status_fd: int, files: Mapping[str, int], command: Sequence[str]
) -> list[str]:
    """bubblewrap with a program of the host's /usr; files by descriptor; the end is written to a descriptor."""
    copies = [part for name, fd in files.items() for part in ("--file", str(fd), f"/tmp/{name}")]
    alternatives = ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    return [
        *_base(config, filter_fd), *_libraries(["/usr"]), "--symlink", "usr/bin", "/bin", *alternatives, *copies,
        *_end({"PATH": "/usr/local/bin:/usr/bin", "LC_ALL": "C.UTF-8"}),
        "--die-with-parent", "--json-status-fd", str(status_fd), "--", *command,
    ]  # fmt: skip


def _base(config: SandboxConfig, filter_fd: int) -> list[str]:
    devices = [part for name in ("null", "zero", "urandom") for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    return [
        find_bubblewrap(), "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL",
        "--hostname", "sandbox", "--clearenv", "--seccomp", str(filter_fd), *devices,
        "--size", str(config.files_mb << 20), "--tmpfs", "/tmp", "--chdir", "/tmp",
    ]  # fmt: skip


def _libraries(readable: Sequence[str]) -> list[str]:
    """The host's libraries: /lib is a link into /usr, or a directory of its own on older systems."""
    binds = [part for path in readable for part in ("--ro-bind-try", path, path)]
    for path in ("/lib", "/lib64"):
        if os.path.islink(path):
            binds += ["--symlink", os.readlink(path), path]
        else:
            binds += ["--ro-bind-try", path, path]
    return [*binds, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]


def _end(environment: Mapping[str, str]) -> list[str]:
    sets = [part for name, value in environment.items() for part in ("--setenv", name, value)]
    return [*sets, "--remount-ro", "/"]
