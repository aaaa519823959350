"""System call filters: classic BPF programs assembled as plain bytes, for Linux on x86-64 and arm64.

Two filters are stacked. The first holds for a whole sandbox: no sockets, namespaces, mounts, keys, tracing or shared
memory that outlives a run. The second is put on each run: no new process, no other program, no signal to anyone else.
A system call newer than the tables does not exist (ENOSYS), so the C library falls back to one that was checked.
"""

import errno
import struct

from groupwise.sandbox.zygote import OWN_PID

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_ARGUMENT = (16, 24)  # offsets of the low halves of the first two arguments (both machines are little-endian)

_LAST_NUMBER = 450
_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020000 | 0x80  # mount, cgroup, uts, ipc, user, pid, net and time namespaces
_FORBIDDEN_IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX: typing into a terminal

_SHARED = {
    "pidfd_getfd": 438, "process_madvise": 440, "process_mrelease": 448, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "move_mount": 429, "open_tree": 428, "mount_setattr": 442, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "quotactl_fd": 443, "memfd_secret": 447,
    "set_mempolicy_home_node": 450, "clone3": 435, "pidfd_send_signal": 424,
}  # fmt: skip

_X86_64 = _SHARED | {
    "socket": 41, "socketpair": 53, "connect": 42, "bind": 49, "listen": 50, "accept": 43, "accept4": 288,
    "sendto": 44, "sendmsg": 46, "sendmmsg": 307, "recvmmsg": 299, "getsockopt": 55, "setsockopt": 54, "ptrace": 101,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321, "perf_event_open": 298,
    "userfaultfd": 323, "io_setup": 206, "add_key": 248, "request_key": 249, "keyctl": 250, "mount": 165,
    "umount2": 166, "pivot_root": 155, "chroot": 161, "swapon": 167, "swapoff": 168, "quotactl": 179, "unshare": 272,
    "setns": 308, "memfd_create": 319, "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65,
    "semctl": 66, "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240,
    "mq_unlink": 241, "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246,
    "kexec_file_load": 320, "reboot": 169, "acct": 163, "syslog": 103, "settimeofday": 164, "clock_settime": 227,
    "clock_adjtime": 305, "adjtimex": 159, "sethostname": 170, "setdomainname": 171, "vhangup": 153, "iopl": 172,
    "ioperm": 173, "modify_ldt": 154, "personality": 135, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "fanotify_init": 300, "lookup_dcookie": 212, "nfsservctl": 180, "uselib": 134, "ustat": 136, "_sysctl": 156,
    "mbind": 237, "set_mempolicy": 238, "migrate_pages": 256, "move_pages": 279, "sched_setaffinity": 203,
    "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314, "setpriority": 141, "ioprio_set": 251,
    "mknod": 133, "mknodat": 259, "setuid": 105, "setgid": 106, "setreuid": 113, "setregid": 114, "setresuid": 117,
    "setresgid": 119, "setgroups": 116, "setfsuid": 122, "setfsgid": 123, "capset": 126, "clone": 56, "fork": 57,
    "vfork": 58, "execve": 59, "execveat": 322, "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129,
    "rt_tgsigqueueinfo": 297, "setsid": 112, "setpgid": 109, "prlimit64": 302, "ioctl": 16, "chmod": 90, "fchmod": 91,
    "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "utime": 132, "utimes": 235,
    "utimensat": 280, "futimesat": 261, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
    "lremovexattr": 198, "fremovexattr": 199, "truncate": 76,
}  # fmt: skip

_ARM64 = _SHARED | {
    "socket": 198, "socketpair": 199, "connect": 203, "bind": 200, "listen": 201, "accept": 202, "accept4": 242,
    "sendto": 206, "sendmsg": 211, "sendmmsg": 269, "recvmmsg": 243, "getsockopt": 209, "setsockopt": 208,
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280, "perf_event_open": 241,
    "userfaultfd": 282, "io_setup": 0, "add_key": 217, "request_key": 218, "keyctl": 219, "mount": 40, "umount2": 39,
    "pivot_root": 41, "chroot": 51, "swapon": 224, "swapoff": 225, "quotactl": 60, "unshare": 97, "setns": 268,
    "memfd_create": 279, "shmget": 194, "shmat": 196, "shmctl": 195, "shmdt": 197, "semget": 190, "semop": 193,
    "semctl": 191, "semtimedop": 192, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187, "mq_open": 180,
    "mq_unlink": 181, "init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104,
    "kexec_file_load": 294, "reboot": 142, "acct": 89, "syslog": 116, "settimeofday": 170, "clock_settime": 112,
    "clock_adjtime": 266, "adjtimex": 171, "sethostname": 161, "setdomainname": 162, "vhangup": 58, "personality": 92,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "fanotify_init": 262, "lookup_dcookie": 18, "nfsservctl": 42,
    "mbind": 235, "set_mempolicy": 237, "migrate_pages": 238, "move_pages": 239, "sched_setaffinity": 122,
    "sched_setscheduler": 119, "sched_setparam": 118, "sched_setattr": 274, "setpriority": 140, "ioprio_set": 30,
    "mknodat": 33, "setuid": 146, "setgid": 144, "setreuid": 145, "setregid": 143, "setresuid": 147, "setresgid": 149,
    "setgroups": 159, "setfsuid": 151, "setfsgid": 152, "capset": 91, "clone": 220, "execve": 221, "execveat": 281,
    "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "setsid": 157,
    "setpgid": 154, "prlimit64": 261, "ioctl": 29, "fchmod": 52, "fchmodat": 53, "fchown": 55, "fchownat": 54,
    "utimensat": 88, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
    "fremovexattr": 16, "truncate": 45,
}  # fmt: skip

MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _ARM64)}
"""By `platform.machine()`: the kernel's number of the architecture, and its system calls."""

_RUN_ONLY = ("execve", "execveat", "fork", "vfork", "tkill", "pidfd_send_signal", "setsid", "setpgid")
_TO_ITSELF = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_METADATA = ("truncate", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
             "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
             "fremovexattr")  # fmt: skip
_CHECKED = ("clone", "clone3", "ioctl", "prlimit64")
_ALWAYS = tuple(name for name in _X86_64 if name not in (*_RUN_ONLY, *_TO_ITSELF, *_METADATA, *_CHECKED))


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
