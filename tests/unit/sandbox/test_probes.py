"""Collected attacks are contained, as the superuser and as an ordinary user; an escape would be seen."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.checks.audit import sandbox as audit
from groupwise.checks.audit.sandbox import read_probes, run_probes
from groupwise.errors import DataError
from groupwise.sandbox.base import Program, RunResult, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox

PROBES = Path(__file__).parents[4] / "shared/data/attack_probes/code.jsonl"
collected = pytest.mark.skipif(not PROBES.exists(), reason="the attack probes are not here")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_ATTACK_S", 0.5)


@collected
def test_collected_attacks(bubblewrap: None) -> None:
    with open_sandbox(SandboxConfig(cpu_s=1)) as sandbox:
        results = run_probes(sandbox, read_probes(PROBES))
    assert len(results) == 37
    assert [result for result in results if not result.contained] == []


@collected
def test_collected_attacks_as_an_ordinary_user(bubblewrap: None, as_ordinary_user: Callable[[str], str]) -> None:
    text = f"""
from groupwise.sandbox.base import SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.checks.audit import sandbox as audit
audit._ATTACK_S = 0.5
with open_sandbox(SandboxConfig(cpu_s=1)) as sandbox:
    results = audit.run_probes(sandbox, {read_probes(PROBES)!r})
print(len(results), [result for result in results if not result.contained])
"""
    assert as_ordinary_user(text) == "37 []\n"


@pytest.fixture
def contained(fake_sandbox: Any) -> Callable[..., bool]:
    """contained(output of an attack) -> true where it did not get through."""

    def judge(said: str, expected: str = "refused", after: str = "6\n", status: Status = Status.EXITED) -> bool:
        def end(program: Program) -> RunResult:
            return RunResult(status, 0, (after if program.source == "print(6)" else said).encode(), b"", 0.0)

        probe = {"id": "p", "code": "", "stdin": "", "expected": expected}
        return run_probes(fake_sandbox(end), [probe])[0].contained

    return judge


@pytest.mark.parametrize(
    "said", ["WROTE", "[Errno 1] x\nCONNECTED", "N 500", "N 17", "MB 600", "S 0", "M 0", "FDS [3]", "['a']", "{'A': 1}"]
)
def test_an_escape_is_seen(contained: Any, said: str) -> None:
    assert not contained(said)


@pytest.mark.parametrize("said", ["", "[]", "{}", "[Errno 1] x", "N 12", "MB 16", "S -1", "FDS []", "parent done"])
def test_a_refusal_is_seen(contained: Any, said: str) -> None:
    assert contained(said)


def test_what_only_the_host_knows_is_an_escape(contained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_TEST_SECRET", "canary-5678")
    assert not contained("something with canary-5678 in it")
    assert contained("something with canary-0000 in it")


def test_other_expectations(contained: Any) -> None:
    assert contained("6", "stdout 6")
    assert not contained("7", "stdout 6")
    assert not contained("", after="")
    assert not contained("", status=Status.FAILED)
    assert contained('{"value": 1}\n', "verdict: fail")
    assert not contained('{"value": {"tuple": ["a value that no probe computes", 7919]}}\n', "verdict: fail")


def test_a_line_that_is_no_probe_is_named(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"id": 1, "code": "", "stdin": "", "expected": ""}) + "\n\n{}\n")
    with pytest.raises(DataError, match="line 3 is no probe"):
        read_probes(file)
