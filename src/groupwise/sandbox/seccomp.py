"""System call filters: classic BPF programs assembled as plain bytes, for Linux on x86-64 and arm64.

Two filters are stacked. The first holds for a whole sandbox: no sockets, namespaces, mounts, keys, tracing or shared
memory that outlives a run. The second is put on each run: no new process, no other program, no signal to anyone else.
A system call newer than the tables does not exist (ENOSYS), so the C library falls back to one that was checked.
"""

import errno
import struct
from pathlib import Path

from groupwise.config import read_toml
from groupwise.sandbox.zygote import OWN_PID

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_ARGUMENT = (16, 24)  # offsets of the low halves of the first two arguments (both machines are little-endian)

_LAST_NUMBER = 450
_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020000 | 0x80  # mount, cgroup, uts, ipc, user, pid, net and time namespaces
_FORBIDDEN_IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX: typing into a terminal

_CALLS = read_toml(Path(__file__).with_name("system_calls.toml"))
_SHARED = _CALLS["shared"]
MACHINES = {"x86_64": (0xC000003E, _SHARED | _CALLS["x86_64"]), "aarch64": (0xC00000B7, _SHARED | _CALLS["aarch64"])}
"""By `platform.machine()`: the kernel's number of the architecture, and its system calls."""

_RUN_ONLY = ("execve", "execveat", "fork", "vfork", "tkill", "pidfd_send_signal", "setsid", "setpgid")
_TO_ITSELF = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_METADATA = ("truncate", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
             "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
             "fremovexattr")  # fmt: skip
_CHECKED = ("clone", "clone3", "ioctl", "prlimit64")
_ALWAYS = tuple(name for name in MACHINES["x86_64"][1] if name not in (*_RUN_ONLY, *_TO_ITSELF, *_METADATA, *_CHECKED))


def sandbox_filter(machine: str, *, metadata: bool = True) -> bytes:
    """Return the filter of a whole sandbox; `metadata` allows changing modes, owners and times of files."""
    architecture, numbers = MACHINES[machine]
    denied = _ALWAYS if metadata else (*_ALWAYS, *_METADATA)
    typing = [_if(_EQUAL, code, _deny(errno.EPERM)) for code in _FORBIDDEN_IOCTLS]
    return _program(
        architecture,
        _if(_AT_LEAST, _LAST_NUMBER + 1, _deny(errno.ENOSYS)),
        _if(_EQUAL, numbers["clone3"], _deny(errno.ENOSYS)),
        _on(numbers["clone"], 0, _if(_ANY_BIT, _CLONE_NAMESPACES, _deny(errno.EPERM))),
        _on(numbers["prlimit64"], 0, _if(_EQUAL, 0, _allow()), _deny(errno.EPERM)),
        _on(numbers["ioctl"], 1, *typing),
        *(_if(_EQUAL, numbers[name], _deny(errno.EPERM)) for name in denied if name in numbers),
    )


def run_filter(machine: str, *, threads: bool = True) -> bytes:
    """Return the second filter, of one run; signals reach only the process on which it is installed."""
    architecture, numbers = MACHINES[machine]
    return _program(
        architecture,
        _on(numbers["clone"], 0, *([_if(_ANY_BIT, _CLONE_THREAD, _allow())] if threads else []), _deny(errno.EPERM)),
        *(_on(numbers[name], 0, _if(_EQUAL, OWN_PID, _allow()), _deny(errno.EPERM)) for name in _TO_ITSELF),
        *(_if(_EQUAL, numbers[name], _deny(errno.EPERM)) for name in _RUN_ONLY if name in numbers),
    )


def _program(architecture: int, *blocks: bytes) -> bytes:
    known = _instruction(_LOAD, _ARCHITECTURE) + _instruction(_EQUAL, architecture, 1, 0) + _instruction(_RETURN, _KILL)
    return known + _instruction(_LOAD, _NUMBER) + b"".join(blocks) + _allow()


def _on(number: int, argument: int, *checks: bytes) -> bytes:
    return _if(_EQUAL, number, _instruction(_LOAD, _ARGUMENT[argument]) + b"".join(checks) + _allow())


def _if(test: int, value: int, body: bytes) -> bytes:
    return _instruction(test, value, 0, len(body) // 8) + body


def _allow() -> bytes:
    return _instruction(_RETURN, _ALLOW)


def _deny(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return a struct sock_filter: u16 code, u8 jt, u8 jf, u32 k."""
    return struct.pack("<HBBI", code, if_true, if_false, value)
