"""Workers: the parent's deadline holds, the dead are reported, and the pool heals."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from groupwise.errors import SandboxError, VerifierError
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import Worker, WorkerPool

HOOK = """
import os, signal, sys, time

def run(request):
    what = request["answer"]
    if what == "sleep": time.sleep(60)
    if what == "nap": time.sleep(1)
    if what == "deaf":
        for number in range(1, 32):
            if number not in (signal.SIGKILL, signal.SIGSTOP): signal.signal(number, signal.SIG_IGN)
        while True: pass
    if what == "die": os._exit(3)
    if what == "segfault": os.kill(os.getpid(), signal.SIGSEGV)
    if what == "complain": sys.stderr.write("the reason"); sys.stderr.flush(); os._exit(1)
    if what == "raise": raise ValueError("odd")
    if what == "print": print("noise" * 1000)
    if what == "memory": bytearray(3 << 30)
    return {"outcome": "correct", "evidence": f"{os.getpid()} {what}"}
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "worker_hook.py").write_text(HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "worker_hook:run"


@pytest.fixture
def pool(target: str) -> Iterator[WorkerPool]:
    pool = WorkerPool(target)
    yield pool
    pool.close()


def ask(pool: WorkerPool, what: str, timeout_s: float = 20.0) -> tuple[str, str]:
    reply = pool.call({"answer": what}, timeout_s)
    return reply.status, reply.value["evidence"] if reply.status == "ok" else reply.evidence


def test_one_worker_serves_many_requests_and_its_prints_do_no_harm(pool: WorkerPool) -> None:
    first, second, third = ask(pool, "a"), ask(pool, "print"), ask(pool, "b")
    assert first[0] == second[0] == third[0] == "ok"
    assert first[1].split()[0] == third[1].split()[0] != str(os.getpid())


def test_every_way_to_fail_is_reported_and_healed(pool: WorkerPool) -> None:
    for what, evidence in [
        ("die", "exit status 3"), ("segfault", "SIGSEGV"), ("complain", "the reason"), ("raise", "ValueError: odd"),
        ("memory", "MemoryError"),
    ]:  # fmt: skip
        status, said = ask(pool, what)
        assert status == "crashed"
        assert evidence in said
        assert ask(pool, "next")[0] == "ok"


@pytest.mark.parametrize("what", ["sleep", "deaf"])
def test_a_hanging_worker_is_killed_in_time(pool: WorkerPool, what: str) -> None:
    pid = int(ask(pool, "warm")[1].split()[0])
    start = time.monotonic()
    assert ask(pool, what, timeout_s=0.3)[0] == "timeout"
    assert time.monotonic() - start < 20
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ask(pool, "next")[0] == "ok"


def test_a_target_that_cannot_be_imported_is_a_crash_not_a_hang() -> None:
    pool = WorkerPool("groupwise.no_such_module:run")
    pool.start()  # which says nothing; the first request does
    reply = pool.call({}, 20.0)
    assert reply.status == "crashed"
    assert "no_such_module" in reply.evidence


def test_a_started_pool_answers_at_once(pool: WorkerPool) -> None:
    pool.start()
    first = server(pool)
    pool.start()
    assert ask(pool, "a")[0] == "ok"
    assert server(pool) == first


def test_many_threads_and_workers_keep_the_order(target: str) -> None:
    pool = WorkerPool(target, num_workers=2)
    replies = pool.map([{"answer": str(i)} for i in range(40)], 20.0)
    assert [reply.value["evidence"].split()[1] for reply in replies] == [str(i) for i in range(40)]
    pool.close()


def test_failures_become_verdicts_without_reward_and_are_not_cached(target: str) -> None:
    problem = Problem("p", "q", "x^2")
    for answer, timeout_s, outcome in [("sleep", 2.0, Outcome.TIMEOUT), ("die", 60.0, Outcome.CRASHED)]:
        with MathVerifier(MathVerifier.Config(kind="math", timeout_s=timeout_s), WorkerPool(target)) as verifier:
            verdicts = verifier.verify_many([Request(problem, f"\\boxed{{{answer}}}"), Request(problem, r"\boxed{y}")])
            assert [v.outcome for v in verdicts] == [outcome, Outcome.CORRECT]
            assert verdicts[0].reward is None
            assert verdicts[1].reward == 1.0
            assert answer in verdicts[0].evidence


def script(tmp_path: Path, source: str) -> "subprocess.Popen[str]":
    """A program of its own, which is started."""
    (tmp_path / "script.py").write_text(textwrap.dedent(source))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_works_from_a_thread_of_a_script_without_a_main_guard(tmp_path: Path) -> None:
    source = r"""
        import threading
        from groupwise.types import Problem
        from groupwise.verifiers.math import MathVerifier

        print("imported", flush=True)
        def work():
            print(MathVerifier().verify(Problem("p", "q", "x+1"), r"\boxed{1+x}").outcome)
        thread = threading.Thread(target=work); thread.start(); thread.join()
    """
    with script(tmp_path, source) as ran:
        assert ran.communicate(timeout=60)[0].split() == ["imported", "correct"]


def test_importing_verifiers_imports_neither_torch_nor_sympy_and_starts_nothing(tmp_path: Path) -> None:
    source = r"""
        import sys; from groupwise.verifiers.math import MathVerifier; from groupwise.types import Problem
        print(MathVerifier().verify(Problem('p','q','7'), r'\boxed{7.0}').outcome)
        print(sorted({'torch','sympy','math_verify','transformers'} & set(sys.modules)))
    """
    with script(tmp_path, source) as ran:
        assert ran.communicate(timeout=60)[0].split() == ["correct", "[]"]


def test_a_new_worker_costs_little_because_the_server_has_imported_everything() -> None:
    pool = WorkerPool("groupwise.verifiers.math.symbolic:judge")
    try:
        assert pool.call({"reference": "x+y", "answer": "y+x"}, 60.0).value["outcome"] == "correct"
        first, seconds = pool._server, []
        for _ in range(5):
            worker = pool._idle.get()
            assert worker is not None
            worker.kill()
            pool._idle.put(None)
            start = time.monotonic()
            assert pool.call({"reference": "x+y", "answer": "y+x"}, 60.0).value["outcome"] == "correct"
            seconds.append(time.monotonic() - start)
        assert pool._server is first
        assert min(seconds) < 0.5  # some milliseconds on an idle machine; the imports alone take longer
    finally:
        pool.close()


def test_an_interrupted_order_leaves_no_answer_for_the_next_one(pool: WorkerPool) -> None:
    """Else the next worker would be taken for the one before, and at last for process 0: a kill of the whole group."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    pid, server_ = server(pool), pool._server
    assert server_ is not None
    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(pid, signal.SIGSTOP)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            Worker(server_)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(SandboxError, match="the fork server has ended"):
        Worker(server_)


def test_a_dead_server_is_replaced_and_its_worker_does_not_outlive_its_deadline(pool: WorkerPool) -> None:
    worker, first = int(ask(pool, "a")[1].split()[0]), server(pool)
    os.kill(first, signal.SIGKILL)
    assert ask(pool, "deaf", timeout_s=0.3)[0] == "timeout"
    assert ask(pool, "next")[0] == "ok"
    assert server(pool) != first
    assert not alive(worker)


def test_closing_leaves_no_process(pool: WorkerPool) -> None:
    worker, parent = int(ask(pool, "a")[1].split()[0]), server(pool)
    pool.close()
    assert not alive(worker)
    assert not alive(parent)
    with pytest.raises(VerifierError, match="closed"):
        ask(pool, "again")
    assert pool._server is None


def test_closing_starts_nothing_for_calls_that_still_wait(pool: WorkerPool) -> None:
    parent = server(pool)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(pool.call, {"answer": "nap"}, 20.0)
        while pool._idle.qsize():  # until it has the only worker
            time.sleep(0.01)
        waiting = [threads.submit(pool.call, {"answer": "late"}, 20.0) for _ in range(3)]
        pool.close()
        errors = [one.exception(20.0) for one in waiting]
    assert first.result().status == "ok"
    assert [type(error) for error in errors] == [VerifierError] * 3
    assert pool._server is None
    assert not alive(parent)


def test_server_and_workers_die_with_the_parent(target: str, tmp_path: Path) -> None:
    source = f"""
        import os, threading
        from groupwise.verifiers.workers import WorkerPool
        pool = WorkerPool({target!r}, num_workers=2)
        idle = pool.call({{"answer": "a"}}, 20.0).value["evidence"].split()[0]
        threading.Thread(target=pool.call, args=({{"answer": "deaf"}}, 60.0), daemon=True).start()
        print(idle, pool._server._process.pid, flush=True)
        pool.call({{"answer": "sleep"}}, 60.0)
    """
    with script(tmp_path, source) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        children = [int(pid) for pid in children_of(pids[1])]
        parent.kill()
    assert_ended([*pids, *children])


def test_an_answer_that_a_dead_parent_never_read_keeps_nothing_alive(target: str, tmp_path: Path) -> None:
    source = f"""
        import os, socket, time
        from groupwise.sandbox.zygote import FORK, ORDER
        from groupwise.verifiers.workers import WorkerPool
        pool = WorkerPool({target!r})
        idle = pool.call({{"answer": "a"}}, 20.0).value["evidence"].split()[0]
        channel, output = os.pipe()
        socket.send_fds(pool._server._control, [ORDER.pack(FORK, 0)], [channel, output])
        time.sleep(0.5)
        print(idle, pool._server._process.pid, flush=True)
        os._exit(0)
    """
    with script(tmp_path, source) as ran:
        pids = [int(pid) for pid in ran.communicate(timeout=60)[0].split()]
    assert len(pids) == 2
    assert_ended(pids)


def assert_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def server(pool: WorkerPool) -> int:
    """The process id of a pool's server, which is started if need be."""
    ask(pool, "warm")
    assert pool._server is not None
    return pool._server._process.pid


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
