"""Workers: the parent's deadline holds, the dead are reported, and the pool heals."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.types import Outcome, Problem
from groupwise.verifiers import MathVerifier, Request, VerifierConfig
from groupwise.verifiers.workers import WorkerPool

HOOK = """
import os, signal, sys, time

def run(request):
    what = request["answer"]
    if what == "sleep": time.sleep(60)
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
    assert time.monotonic() - start < 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ask(pool, "next")[0] == "ok"


def test_a_target_that_cannot_be_imported_is_a_crash_not_a_hang() -> None:
    reply = WorkerPool("groupwise.no_such_module:run").call({}, 1.0)
    assert reply.status == "crashed"
    assert "no_such_module" in reply.evidence


def test_many_threads_and_workers_keep_the_order(target: str) -> None:
    pool = WorkerPool(target, num_workers=2)
    replies = pool.map([{"answer": str(i)} for i in range(40)], 20.0)
    assert [reply.value["evidence"].split()[1] for reply in replies] == [str(i) for i in range(40)]
    pool.close()


def test_failures_become_verdicts_without_reward_and_are_not_cached(target: str) -> None:
    with MathVerifier(VerifierConfig(timeout_s=0.3), WorkerPool(target)) as verifier:
        problem = Problem("p", "q", "x^2")
        for answer, outcome in [("sleep", Outcome.TIMEOUT), ("die", Outcome.CRASHED)]:
            verdicts = verifier.verify_many([Request(problem, f"\\boxed{{{answer}}}"), Request(problem, r"\boxed{y}")])
            assert [v.outcome for v in verdicts] == [outcome, Outcome.CORRECT]
            assert verdicts[0].reward is None
            assert verdicts[1].reward == 1.0
            assert answer in verdicts[0].evidence


def test_works_from_a_thread_of_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(r"""
        import threading
        from groupwise.types import Problem
        from groupwise.verifiers import MathVerifier
        print("imported")
        def work():
            print(MathVerifier().verify(Problem("p", "q", "x+1"), r"\boxed{1+x}").outcome)
        thread = threading.Thread(target=work); thread.start(); thread.join()
    """)
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout.split() == ["imported", "correct"], ran.stderr


def test_importing_verifiers_imports_neither_torch_nor_sympy_and_starts_nothing() -> None:
    code = (
        "import sys; from groupwise.verifiers import MathVerifier; from groupwise.types import Problem\n"
        "print(MathVerifier().verify(Problem('p','q','7'), r'\\boxed{7.0}').outcome)\n"
        "print(sorted({'torch','sympy','math_verify','transformers'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout.split("\n")[:2] == ["correct", "[]"], ran.stderr
