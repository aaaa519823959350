"""Attacks on a sandbox: one test per kind. Each is refused or ended, and the next program is served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.sandbox.base import FILES_MB, OUTPUT_KB, Program, RunResult, Sandbox, Status

PRELUDE = """
import ctypes, os, resource, signal, socket, threading, time
libc = ctypes.CDLL(None)
def attempt(*attacks):
    for attack in attacks:
        try:
            got = attack()
        except (OSError, MemoryError, RuntimeError, ValueError):
            continue
        if got != -1:  # how the C library says no
            print("GOT", got, flush=True)
"""


@pytest.fixture(autouse=True)
def _served_afterwards(sandbox: Sandbox) -> Iterator[None]:
    yield
    assert sandbox.run(Program("print(sum(map(int, input().split())))", stdin=b"1 2 3")).stdout == b"6\n"


def run(sandbox: Sandbox, source: str, wall_s: float = 30.0) -> RunResult:
    return sandbox.run(Program(PRELUDE + source, wall_s=wall_s, cpu_s=10))  # much for a slow machine


def assert_refused(sandbox: Sandbox, *attacks: str) -> None:
    """A program that tries them all comes to its end and has got nothing."""
    result = run(sandbox, f"attempt({', '.join(f'lambda: {attack}' for attack in attacks)})\nprint('end')")
    assert (result.stdout, result.stderr, result.exit_code) == (b"end\n", b"", 0)


def test_what_is_not_refused_is_seen(sandbox: Sandbox) -> None:
    for attack in ("open('/tmp/x', 'w')", "socket.AF_INET", "libc.getpid()"):
        with pytest.raises(AssertionError):
            assert_refused(sandbox, attack)


@pytest.mark.parametrize(
    "source",
    ["while True: pass", "time.sleep(600)", "os.kill(os.getpid(), signal.SIGSTOP)",
     "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(9)"],
)  # fmt: skip
def test_27_programs_that_never_end(sandbox: Sandbox, source: str) -> None:
    result = run(sandbox, source, wall_s=0.3)
    assert result.status is Status.TIMEOUT
    assert result.seconds < 30  # half a second on a machine with nothing else to do


def test_28_more_processes_and_threads(sandbox: Sandbox) -> None:
    assert_refused(sandbox, "os.fork()", "os.posix_spawn('/bin/sh', ['sh'], {})", "libc.vfork()", "os.forkpty()")
    start = "[threading.Thread(target=time.sleep, args=(9,), daemon=True).start() for _ in range(99)]"
    assert_refused(sandbox, start)


def test_29_memory_of_every_kind(sandbox: Sandbox) -> None:
    limit = sandbox.config.memory_mb << 20
    assert_refused(
        sandbox, f"bytearray({limit})", f"libc.calloc(1, {limit}) or -1", "libc.memfd_create(b'x', 0)",
        "libc.shmget(0, 4096, 0o1600)", "open('/dev/shm/x', 'wb')",
        f"__import__('mmap').mmap(-1, {limit})", f"[bytearray(1 << 20) for _ in range({limit >> 20})]",
    )  # fmt: skip
    fill = "try:\n  for n in range(99): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20)); print(n)\nexcept OSError: pass"
    assert len(run(sandbox, fill).stdout.split()) <= FILES_MB


@pytest.mark.parametrize(
    "source",
    ["while True: print('x' * 9999)", "while True: os.write(1, b'x' * 65536)", "while True: os.write(2, b'\\xff\\0')"],
)
def test_30_output_without_end(sandbox: Sandbox, source: str) -> None:
    result = run(sandbox, source)
    assert result.status is Status.FLOODED
    assert len(result.stdout) <= OUTPUT_KB << 10 >= len(result.stderr)


def test_30_output_that_is_no_text(sandbox: Sandbox) -> None:
    assert run(sandbox, "os.write(1, b'\\xff\\x00\\xc3')").stdout == b"\xff\x00\xc3"


def test_31_writing_where_nobody_may(sandbox: Sandbox) -> None:
    places = ["/", "/usr/", "/usr/lib/", "/etc/", "/dev/", "/opt/", "/proc/self/", "/var/tmp/"]
    assert_refused(sandbox, *(f"open('{place}x', 'w')" for place in places), "os.rename('/usr', '/tmp/usr')")


def test_32_reading_what_is_the_hosts(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("7919")
    monkeypatch.setenv("GROUPWISE_SECRET", "7919")
    paths = ["/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/self/mem", str(secret)]
    assert_refused(sandbox, *(f"open({path!r}, 'rb').read()" for path in paths), f"os.listdir({str(Path.home())!r})")
    assert run(sandbox, "print(dict(os.environ), os.listdir('/tmp'))").stdout == b"{} []\n"
    assert_refused(sandbox, *(f"os.fstat({number})" for number in range(3, 40)))


def test_33_the_network(sandbox: Sandbox) -> None:
    families, kinds = ("AF_INET", "AF_INET6", "AF_UNIX"), ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW")
    assert_refused(sandbox, *(f"socket.socket(socket.{one}, socket.{two})" for one in families for two in kinds))
    assert_refused(sandbox, "socket.create_connection(('127.0.0.1', 22), 1)", "socket.socketpair()")


def test_34_other_processes(sandbox: Sandbox) -> None:
    assert_refused(
        sandbox, "os.kill(-1, 9)", "os.kill(os.getppid(), 9)", "os.kill(1, 9)", "libc.ptrace(16, os.getppid(), 0, 0)",
        "open('/proc/1/mem', 'r+b')", "libc.process_vm_writev(os.getppid(), None, 0, None, 0, 0)",
    )  # fmt: skip


def test_35_privileges(sandbox: Sandbox) -> None:
    infinite = "(resource.RLIM_INFINITY,) * 2"
    limits = [
        f"resource.setrlimit(resource.RLIMIT_{name}, {infinite}) or 1" for name in ("AS", "CPU", "FSIZE", "NPROC")
    ]
    calls = ["unshare(0x10000000)", "unshare(0x20000)", "mount(b'none', b'/tmp', b'tmpfs', 0, None)", "chroot(b'/tmp')",
             "setuid(0)", "setns(0, 0)", "syscall(321, 0, None, 0)", "syscall(425, 8, None)", "syscall(250, 0, 0)",
             "ioctl(0, 0x5412, b'x')"]  # fmt: skip
    assert_refused(sandbox, *limits, *(f"libc.{call}" for call in calls), "os.execv('/usr/bin/su', ['su'])")


def test_44_things_left_for_the_next_program(sandbox: Sandbox) -> None:
    leave = "open('left', 'w'); os.makedirs('/tmp/a/b'); open('/tmp/a/b/c', 'w'); import builtins; builtins.left = 1"
    look = "import builtins\nprint(os.listdir('.'), os.listdir('/tmp'), hasattr(builtins, 'left'))"
    programs = [Program(PRELUDE + source) for source in (leave, look) * 4]
    seen = [result.stdout for result in sandbox.run_many(programs)]
    assert seen == [b"", b"[] [] False\n"] * 4
