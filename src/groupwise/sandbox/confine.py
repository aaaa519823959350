"""Confinement that a process puts on itself: seccomp filters, landlock, limits. Standard library only.

Runs inside a sandbox too, where the package is not: its text is put in front of `zygote.py`.
"""

import ctypes
import os
import resource
import struct
from collections.abc import Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE, _READ = 0b0010, 0b1100
"""Landlock rights on files and directories below a path."""
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights each version of landlock knows; since version 5 the same."""

OWN_PID = 0x7FFFFFFE
"""Stands in a filter for the number of the process on which it is installed."""


def install_filter(program: bytes) -> None:
    """Put a seccomp filter on this process, for good; needs `refuse_new_privileges` first."""
    program = program.replace(struct.pack("<I", OWN_PID), struct.pack("<I", os.getpid()))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(_LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), header), "seccomp")


def refuse_new_privileges() -> None:
    """No program that this process starts can gain privileges."""
    _check(_LIBC.prctl(_NO_NEW_PRIVILEGES, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0))), "no_new_privs")


def landlock_version() -> int:
    """The kernel's version of landlock; 0 where there is none."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def restrict_files(readable: Sequence[str]) -> None:
    """Landlock: from now on only what lies below these paths can be opened, and only to read; /dev/null also to write.

    Where the kernel can, TCP is refused, and signals and abstract sockets reach no process outside.
    """
    version = landlock_version()
    rights = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
    attributes = struct.pack("@QQQ", rights, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _check(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock")
    for path in filter(os.path.exists, readable):
        _allow(rules, path, _READ if os.path.isdir(path) else _READ & ~0b1000)
    _allow(rules, "/dev/null", _WRITE | _READ & ~0b1000)
    _check(_LIBC.syscall(_RESTRICT_SELF, rules, 0), "landlock")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    _check(_LIBC.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, descriptor), 0), f"landlock rule for {path}")
    os.close(descriptor)


def limit(cpu_s: int, memory_mb: int, files_mb: int, max_processes: int) -> None:
    """Hard limits of this process; only the one on processor time warns (SIGXCPU) a second before it kills."""
    mega = 1 << 20
    limits = {
        resource.RLIMIT_AS: memory_mb * mega, resource.RLIMIT_FSIZE: files_mb * mega, resource.RLIMIT_CORE: 0,
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
