"""Command lines of bubblewrap: all namespaces new, an empty environment, /usr read-only, one small writable /tmp.

Without --unshare-all's `try` forms where it matters: user namespaces must be had. There is no /proc, no device beyond
null, zero and urandom, and the root is read-only.
"""

import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.errors import SandboxError
from groupwise.sandbox.base import SandboxConfig
from groupwise.sandbox.bundle import bundle
from groupwise.sandbox.host import interpreter, reachable_interpreter
from groupwise.sandbox.seccomp import MACHINES, run_filter, sandbox_filter

PYTHON_FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8")
_PYTHON_HOME = "/opt/python"
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1", "LD_LIBRARY_PATH": f"{_PYTHON_HOME}/lib"}
"""Of the fork server, which clears it: a fixed order of sets, address space that threads do not reserve in bulk."""


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


def machine() -> str:
    """The name of this machine's architecture.

    Raises:
        SandboxError: its system calls are not in our tables.
    """
    name = platform.machine()
    if name not in MACHINES:
        raise SandboxError(f"no system call filter for {name}; there are filters for {', '.join(MACHINES)}")
    return name


def fork_server_command(config: SandboxConfig, filter_fd: int) -> list[str]:
    """bubblewrap with the fork server as process 1; the filter is read from a descriptor."""
    program, prefix = reachable_interpreter()
    if interpreter()[1] == Path("/usr"):
        python, binds = str(program), ["--ro-bind", str(program), str(program)]
    else:
        python = f"{_PYTHON_HOME}/bin/{program.name}"
        binds = ["--ro-bind", f"{prefix}/lib", f"{_PYTHON_HOME}/lib", "--ro-bind", str(program), python]
    boot = json.dumps({"run_filter": run_filter(machine()).hex(), "directory": "/tmp"})
    return [
        *_base(config, filter_fd), *_libraries(["/usr/lib", "/usr/lib64"]), *binds, *_end(_ENVIRONMENT),
        "--as-pid-1", "--", python, *PYTHON_FLAGS, "-c", fork_server_script(), boot,
    ]  # fmt: skip


def fork_server_script() -> str:
    """The fork server as one script."""
    return bundle("confine", "zygote") + "import json; sys.modules['groupwise.sandbox.zygote'].main(json.loads(sys.argv[1]))"


def command_line(
    config: SandboxConfig, filter_fd: int, status_fd: int, files: Mapping[str, int], command: Sequence[str]
) -> list[str]:
    """bubblewrap with a program of the host's /usr; files by descriptor; the end is written to a descriptor."""
    copies = [part for name, fd in files.items() for part in ("--file", str(fd), f"/tmp/{name}")]
    alternatives = ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    return [
        *_base(config, filter_fd), *_libraries(["/usr"]), "--symlink", "usr/bin", "/bin", *alternatives, *copies,
        *_end({"PATH": "/usr/local/bin:/usr/bin", "LC_ALL": "C.UTF-8"}),
        "--json-status-fd", str(status_fd), "--", *command,
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
