"""The host's part of a sandbox: the interpreter and its scripts, control groups, a user without rights.

The superuser's limit on processes does not bind (kernel, also within a user namespace), so what the superuser launches
first becomes another user. Control groups (version 1 or 2) are used where they can be written.
"""

import contextlib
import itertools
import json
import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from groupwise.errors import SandboxError
from groupwise.sandbox.base import MAX_PROCESSES
from groupwise.sandbox.seccomp import MACHINES

_CGROUPS = Path("/sys/fs/cgroup")
_NUMBERS = itertools.count()
_LAUNCH = """
trap '' TERM HUP USR1  # those of `undisturbed`, which a shell that starts commands holds back no longer
groups=$1 mount=$2
shift 2
for group in $groups; do echo $$ > "$group/cgroup.procs" || exit 1; done
if [ -n "$mount" ]; then mount --bind "$mount" /mnt || exit 1; fi
exec env -i setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs -- "$@"
"""
_PRIVATE_PREFIX = Path("/mnt")
"""Place at which a launch shows the interpreter's directory when only the superuser can reach that."""
_FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8", "-X", "int_max_str_digits=0")  # processor time bounds integers
_LOAD = """
import sys, types
def _load(name, text):
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
"""


def machine() -> str:
    """Return the name of this machine's architecture (SandboxError: its system calls are not in the tables)."""
    name = platform.machine()
    if name not in MACHINES:
        raise SandboxError(f"no system call filter for {name}; there are filters for {', '.join(MACHINES)}")
    return name


def interpreter() -> tuple[Path, Path]:
    """Return the running interpreter's program and the prefix of its standard library, without virtual environments."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable))), Path(sys.base_prefix)


def reachable_interpreter() -> tuple[Path, Path]:
    """Return the same paths as a launched process sees them."""
    program, prefix = interpreter()
    if _is_private(prefix):
        return _PRIVATE_PREFIX / program.relative_to(os.path.realpath(prefix)), _PRIVATE_PREFIX
    return program, prefix


def _is_private(prefix: Path) -> bool:
    modes = [path.stat().st_mode for path in (prefix, *prefix.parents)]
    return os.geteuid() == 0 and not all(mode & stat.S_IXOTH for mode in modes)


def launcher(groups: Sequence[Path] = ()) -> list[str]:
    """Return the beginning of a command without rights, in these groups; empty for ordinary users (SandboxError)."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        raise SandboxError("a sandbox for the superuser needs setpriv and unshare: install util-linux")
    prefix = interpreter()[1]
    mount = os.path.realpath(prefix) if _is_private(prefix) else ""
    own_mounts = ["unshare", "--mount"] if mount else []
    return [*own_mounts, "sh", "-c", _LAUNCH, "sh", " ".join(map(str, groups)), mount]


def make_cgroups(memory_mb: int) -> list[Path]:
    """Make control groups with a limit on memory; return those that this host allows, possibly none."""
    name = f"groupwise-{os.getpid()}-{next(_NUMBERS)}"
    memory, processes = str(memory_mb << 20), str(MAX_PROCESSES + 4)
    version_2 = _make(_CGROUPS / name, {"memory.max": memory, "pids.max": processes})
    return version_2 or [
        *_make(_CGROUPS / "memory" / name, {"memory.limit_in_bytes": memory}),
        *_make(_CGROUPS / "pids" / name, {"pids.max": processes}),
    ]


def _make(group: Path, limits: dict[str, str]) -> list[Path]:
    if not (group.parent / "cgroup.procs").exists() or not os.access(group.parent, os.W_OK) or os.geteuid() != 0:
        return []
    for stale in group.parent.glob("groupwise-*-*"):  # left by killed processes; a group in use cannot be removed
        if not Path("/proc", stale.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                stale.rmdir()
    try:
        group.mkdir()
        for file, value in limits.items():
            (group / file).write_text(value)
    except OSError:
        remove_cgroups([group])
        return []
    return [group]


def remove_cgroups(groups: Sequence[Path]) -> None:
    """Remove control groups whose processes are gone (or about to be)."""
    for group in groups:
        for _ in range(100):
            with contextlib.suppress(OSError):  # busy until the last process is reaped
                group.rmdir()
            if not group.exists():
                break
            time.sleep(0.01)


@cache
def bundle(*names: str) -> str:
    """Return a script that defines these modules of `groupwise.sandbox`, each importing only those before it."""
    files = resources.files("groupwise.sandbox")
    texts = {name: files.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in names}
    loads = [f"_load({f'groupwise.sandbox.{name}'!r}, {text!r})" for name, text in texts.items()]
    return "\n".join([_LOAD, *loads, ""])


def zygote_command(python: str, boot: Mapping[str, Any]) -> list[str]:
    """Return the command of an interpreter that runs the fork server; `boot` is the argument of `zygote.main`."""
    start = "from groupwise.sandbox.zygote import main; import json; main(json.loads(sys.argv[1]))"
    return [python, *_FLAGS, "-c", bundle("zygote") + start, json.dumps(boot)]


def zygote_environment(prefix: str) -> dict[str, str]:
    """Return the environment of the interpreter below `prefix`: sets in fixed order, little address space."""
    return {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1", "LD_LIBRARY_PATH": f"{prefix}/lib"}
