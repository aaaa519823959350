"""The filters, run by an interpreter of classic BPF written here, and their tables against the kernel's headers."""

import errno
import re
import struct
from pathlib import Path

import pytest

from groupwise.sandbox.seccomp import MACHINES, run_filter, sandbox_filter
from groupwise.sandbox.zygote import OWN_PID

ALLOW, KILL = 0x7FFF0000, 0x80000000
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
HARMLESS = {"x86_64": {"read": 0, "write": 1, "mmap": 9, "futex": 202, "openat": 257, "exit_group": 231, "recvmsg": 47},
            "aarch64": {"read": 63, "write": 64, "mmap": 222, "futex": 98, "openat": 56, "exit_group": 94}}  # fmt: skip
NEW_USER, THREAD, NEW_TIME = 0x10000000, 0x10000, 0x80

machines = pytest.mark.parametrize("machine", sorted(MACHINES))


def decide(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel returns for a call."""
    given = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *given)
    code = list(struct.iter_unpack("<HBBI", program))
    place, value = 0, 0
    while True:
        operation, if_true, if_false, constant = code[place]
        place += 1
        if operation == 0x20:
            value = struct.unpack_from("<I", data, constant)[0]
        elif operation == 0x06:
            return constant
        else:
            holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[operation]
            place += if_true if holds else if_false


def refused(error: int) -> int:
    return 0x00050000 | error


@machines
def test_what_a_sandbox_allows(machine: str) -> None:
    architecture, numbers = MACHINES[machine]
    program = sandbox_filter(machine)
    assert len(program) // 8 < 4096
    for name, number in HARMLESS[machine].items():
        assert decide(program, architecture, number) == ALLOW, name
    for name in ("socket", "mount", "unshare", "setns", "ptrace", "bpf", "keyctl", "shmget", "memfd_create", "setuid"):
        assert decide(program, architecture, numbers[name]) == refused(errno.EPERM), name
    assert decide(program, architecture, numbers["clone"], THREAD) == ALLOW
    for flag in (NEW_USER, NEW_TIME, 0x20000, 0x40000000, 0x02000000):
        assert decide(program, architecture, numbers["clone"], THREAD | flag) == refused(errno.EPERM), hex(flag)
    assert decide(program, architecture, numbers["clone3"]) == refused(errno.ENOSYS)
    for number in (451, 100_000, 0x40000000 | 1, -1):
        assert decide(program, architecture, number) == refused(errno.ENOSYS), number
    for terminal in (0x5412, 0x541C, 0xFFFF_0000_5412):
        assert decide(program, architecture, numbers["ioctl"], 0, terminal) == refused(errno.EPERM)
    assert decide(program, architecture, numbers["ioctl"], 0, 0x5401) == ALLOW
    assert decide(program, architecture, numbers["prlimit64"], 0) == ALLOW
    assert decide(program, architecture, numbers["prlimit64"], 1) == refused(errno.EPERM)


@machines
def test_modes_of_files_can_be_kept_as_they_are(machine: str) -> None:
    architecture, numbers = MACHINES[machine]
    for name in ("fchmod", "fchown", "utimensat", "setxattr", "truncate"):
        assert decide(sandbox_filter(machine), architecture, numbers[name]) == ALLOW
        assert decide(sandbox_filter(machine, metadata=False), architecture, numbers[name]) == refused(errno.EPERM)


@machines
def test_what_a_run_may_do_beside(machine: str) -> None:
    architecture, numbers = MACHINES[machine]
    program = run_filter(machine)
    assert decide(program, architecture, numbers["clone"], THREAD) == ALLOW
    assert decide(program, architecture, numbers["clone"], 17) == refused(errno.EPERM)
    assert decide(run_filter(machine, threads=False), architecture, numbers["clone"], THREAD) == refused(errno.EPERM)
    for name in {"fork", "vfork", "execve", "execveat", "tkill", "setsid", "setpgid"} & set(numbers):
        assert decide(program, architecture, numbers[name]) == refused(errno.EPERM), name
    for name in ("kill", "tgkill", "rt_sigqueueinfo"):
        assert decide(program, architecture, numbers[name], OWN_PID) == ALLOW, name
        for other in (0, 1, 0xFFFFFFFF, OWN_PID - 1):
            assert decide(program, architecture, numbers[name], other) == refused(errno.EPERM), name


@machines
def test_another_architecture_is_killed(machine: str) -> None:
    for program in (sandbox_filter(machine), run_filter(machine)):
        assert decide(program, 0x40000003, HARMLESS[machine]["read"]) == KILL


@machines
def test_numbers_are_the_kernels(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not here (package linux-libc-dev)")
    text = HEADERS[machine].read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
    table = MACHINES[machine][1]
    assert {name: known[name] for name in table} == table
