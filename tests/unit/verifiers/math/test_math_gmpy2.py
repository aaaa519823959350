"""With gmpy2, SymPy computes in C and hears no signal: bombs must be refused or their worker killed all the same.

Skips itself where gmpy2 is not installed; `pip install gmpy2` anywhere on the path is enough.
"""

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.checks.audit.attacks import adversarial_cases, reference_problems
from groupwise.checks.audit.judge import Canary
from groupwise.tasks.base import Template
from groupwise.types import Outcome, Problem
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import MEMORY_BYTES, WorkerPool

pytest.importorskip("gmpy2")
PROBES = Path(__file__).parents[4] / "shared/data/attack_probes/math.jsonl"
TIMEOUT_S = 2.0
LATE_S = 10.0  # that a busy machine may add; a bomb that went off would burn for minutes
HOOK = """
from sympy import binomial, factorial
from sympy.external.gmpy import GROUND_TYPES

BOMBS = {"factorial": lambda: factorial(10**9), "binomial": lambda: binomial(10**9, 5 * 10**8),
         "power": lambda: pow(factorial(20), 3**40), "none": lambda: 0}

def run(name):
    return [GROUND_TYPES, BOMBS[name]() is None]
"""


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    with MathVerifier(MathVerifier.Config(kind="math", timeout_s=TIMEOUT_S)) as verifier:
        verifier.start()
        yield verifier


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    (tmp_path / "gmpy_hook.py").write_text(HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    pool = WorkerPool("gmpy_hook:run")
    assert pool.call("none", 20.0).value == ["gmpy", False]
    yield pool
    pool.close()
    # of the dead, the largest; those of other tests stay below it too
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 <= MEMORY_BYTES


def in_time(verifier: MathVerifier, reference: str, text: str) -> Outcome:
    """The outcome, which came by the deadline; the next request is answered after it."""
    start = time.monotonic()
    outcome = verifier.verify(Problem("p", "q", reference), text).outcome
    assert time.monotonic() - start < TIMEOUT_S + LATE_S, text[:100]
    nonce = len(text) + start  # no other test has asked it
    assert verifier.verify(Problem("p", "q", f"x+{nonce}"), rf"\boxed{{{nonce}+x}}").outcome is Outcome.CORRECT
    return outcome


@pytest.mark.skipif(not PROBES.exists(), reason="the attack probes are not here")
def test_collected_attacks(verifier: MathVerifier) -> None:
    for row in map(json.loads, PROBES.read_text().splitlines()):
        outcome = in_time(verifier, row["gold"], row["response"])
        assert row["expected"] is None or (outcome is Outcome.CORRECT) == row["expected"], row


def test_made_up_bombs_and_floods(verifier: MathVerifier, tmp_path: Path) -> None:
    cases = adversarial_cases(reference_problems(["5"]), Template(), Canary(tmp_path))
    hostile = [case for case in cases if case.group in ("bombs", "huge texts", "code")]
    assert len(hostile) > 40
    for case in hostile:
        assert in_time(verifier, case.problem.reference, case.text) is not Outcome.CORRECT, case.text[:100]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bomb", ["factorial", "binomial", "power"])
def test_a_bomb_that_goes_off_kills_one_worker_in_time(pool: WorkerPool, bomb: str) -> None:
    start = time.monotonic()
    assert pool.call(bomb, TIMEOUT_S).status in ("timeout", "crashed")
    assert time.monotonic() - start < TIMEOUT_S + LATE_S
    assert pool.call("none", 20.0).value == ["gmpy", False]
