"""Neither the order of requests, nor the number of workers, nor a busy machine changes a verdict."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import WorkerPool

PAIRS = [
    ("(x+1)^2", "x^2+2x+1", Outcome.CORRECT), ("(x+1)^2", "x^2+2x+2", Outcome.WRONG), ("7", "7.0", Outcome.CORRECT),
    (r"\sqrt{8}", r"2\sqrt{2}", Outcome.CORRECT), ("y=2x+1", "2x-y+1=0", Outcome.CORRECT),
    ("2", "9^{9^{9^9}}", Outcome.UNPARSABLE), (r"[0,1]\cup[1,2]", "[0,2]", Outcome.CORRECT),
    ("x<3", "x<4", Outcome.WRONG), (r"\frac{1}{", "5", Outcome.CRASHED), ("1,2", "x=2, x=1", Outcome.CORRECT),
    (r"\sin^2 x", r"1-\cos^2 x", Outcome.CORRECT), ("3+4i", "4i+3", Outcome.CORRECT),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\\frac{4}{2}\end{pmatrix}", Outcome.CORRECT),
    ("e", r"\frac{e^2", Outcome.UNPARSABLE),
]  # fmt: skip


@pytest.fixture
def full_load(pool: WorkerPool) -> Iterator[None]:
    """As many busy processes as the machine has cores, while the verdicts fall."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=[1, 3])
def num_workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def pool(num_workers: int) -> Iterator[WorkerPool]:
    pool = WorkerPool("groupwise.verifiers.math.symbolic:judge", num_workers)
    pool.start()
    yield pool
    pool.close()


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(PAIRS))
def test_verdicts_are_the_same_whatever_the_circumstances(
    full_load: None, pool: WorkerPool, order: list[tuple[str, str, Outcome]]
) -> None:
    verifier = MathVerifier(MathVerifier.Config(kind="math", timeout_s=60.0), pool)  # a new one remembers nothing
    requests = [Request(Problem("p", "q", gold), f"\\boxed{{{answer}}}") for gold, answer, _ in order]
    assert [v.outcome for v in verifier.verify_many(requests)] == [expected for *_, expected in order]
