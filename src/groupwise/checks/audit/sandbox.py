"""`groupwise audit sandbox`: the sandbox proves itself, then programs that try to get out are run in it.

A probe has `id`, `code`, `stdin` and `expected`. `expected` beginning with "stdout " means an honest program with that
output; with "verdict: fail" that `code` defines F, whose answer must equal no value the code does not compute; anything
else means that what the code tries must be refused or contained. Such code reports in lines: a word in capitals is a
claim of success (`WROTE`), a word and a number is a result (`N 12`), a list is what it saw.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.checks.audit.summary import rate, share
from groupwise.config import Changes, Section, parse
from groupwise.errors import DataError
from groupwise.runs.jsonl import read_jsonl
from groupwise.sandbox.base import FILES_MB, MAX_PROCESSES, Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.functions import read_answers, solver_program
from groupwise.sandbox.opening import open_sandbox

_UNKNOWN_VALUE = ("a value that no probe computes", 7919)
_HONEST = "stdout "
_ATTACK_S = 2.0  # seconds an attack has, where the sandbox gives no fewer
_CLAIM = re.compile(r"([A-Z]{1,20})(?:\s+(.*))?")
_MIN_SECRET = 6  # shorter texts of the host could occur in any output


class ProbeResult(NamedTuple):
    """Result of a probe."""

    id: str
    name: str  # the one that its file gives it; empty without
    contained: bool
    evidence: str


def read_probes(path: Path) -> list[dict[str, str]]:
    """The probes of a file, one JSON object a line (DataError: a line is no probe; names it)."""
    probes = []
    for record in read_jsonl(path):
        try:
            probe = {name: str(record.fields[name]) for name in ("id", "code", "stdin", "expected")}
            probes.append({**probe, "name": str(record.fields.get("name", ""))})
        except KeyError as error:
            raise DataError(f"{record.place} is no probe: {error!r}") from None
    return probes


def run_probes(sandbox: Sandbox, probes: Iterable[Mapping[str, str]]) -> list[ProbeResult]:
    """One result per probe; after each, an honest program must still get its answer."""
    passwords = Path("/etc/passwd")
    # texts of this host that no confined program can know
    secrets = [value for value in os.environ.values() if len(value) >= _MIN_SECRET]
    secrets += passwords.read_text(errors="replace").splitlines() if passwords.exists() else []
    results = []
    for probe in probes:
        asks_for_function = probe["expected"].startswith("verdict: fail")
        program = Program(probe["code"], stdin=probe["stdin"].encode())
        program = solver_program(probe["code"], [("F", [[3, 1, 2]])]) if asks_for_function else program
        is_honest = probe["expected"].startswith(_HONEST)
        result = sandbox.run(program if is_honest else replace(program, wall_s=min(_ATTACK_S, sandbox.config.wall_s)))
        if asks_for_function:
            answer = read_answers(result, 1)[0]
            is_fooled = not answer.fault and answer.value == _UNKNOWN_VALUE
            fault = "its answer equals a value that it does not compute" if is_fooled else ""
        else:
            fault = _output_fault(result, probe, secrets)
        if not fault and sandbox.run(Program("print(6)")).stdout != b"6\n":
            fault = "the sandbox did not survive it"
        words = (result.stdout or b"".join(result.stderr.splitlines()[-1:])).decode("utf-8", errors="replace").strip()
        end = f"{result.status}, {result.evidence}" if result.evidence else str(result.status)
        end += f": {words[:100]}" if words else ""
        results.append(ProbeResult(probe["id"], probe.get("name", ""), not fault, fault or end))
    return results


def _output_fault(result: RunResult, probe: Mapping[str, str], secrets: Sequence[str]) -> str:
    text, expected = result.stdout.decode("utf-8", errors="replace"), probe["expected"]
    if expected.startswith(_HONEST):
        return "" if text.strip() == expected.removeprefix(_HONEST) else f"an honest program printed {text[:80]!r}"
    if result.status is Status.FAILED:
        return result.evidence or "the sandbox failed"
    leaked = next((secret for secret in secrets if secret in text and secret not in probe["code"]), None)
    if leaked:
        return f"it saw {leaked[:40]!r} of the host"
    for line in map(str.strip, text.splitlines()):
        claim = _CLAIM.fullmatch(line)
        word, value = (claim[1], claim[2] or "") if claim else ("", line)
        if word and not value:
            return f"it says {word}"
        if value.startswith(("[", "{")) and value not in ("[]", "{}") and not value.startswith("[Errno"):
            return f"it saw {value[:80]}"
        most = {"N": MAX_PROCESSES, "MB": FILES_MB * 5 // 4}.get(word, -1)  # blocks may be below a MiB
        if word and re.fullmatch(r"-?[0-9]+", value) and int(value) > most:
            return f"it says {line[:80]}"
    return ""


@dataclass(frozen=True, slots=True)
class SandboxAudit:
    """Result of an audit of the sandbox; its self-test held, for without that nothing runs."""

    sandbox: SandboxConfig
    probes: tuple[ProbeResult, ...]

    @property
    def passed(self) -> bool:
        return all(probe.contained for probe in self.probes)

    @property
    def verdict(self) -> str:
        start = f"The self-test of the sandbox ({self.sandbox.tier}) holds"
        if not self.probes:
            return f"{start}; name files of probes to try more programs."
        contained = [probe.contained for probe in self.probes]
        held = rate(sum(contained), len(contained))
        counts = f"{held['count']} of {held['of']} programs refused or contained, {share(held)}"
        return f"{start}. {'Passed' if self.passed else 'Not passed'}: {counts}."

    def as_dict(self) -> dict[str, Any]:
        probes = [probe._asdict() for probe in self.probes]
        return {"passed": self.passed, "sandbox": self.sandbox.model_dump(mode="json"), "probes": probes}


class _Settings(Section):
    sandbox: SandboxConfig = SandboxConfig()
    """The sandbox."""


def audit_sandbox(probes: Sequence[str | Path] = (), changes: Changes = ()) -> SandboxAudit:
    """Open the sandbox, which proves itself first, and run programs in it that try to get out.

    >>> audit_sandbox(["probes.jsonl"]).passed  # doctest: +SKIP
    True

    Args:
        probes: files of programs (JSON lines), as `groupwise.checks.audit.sandbox` describes them.
        changes: of the section sandbox, as for `load_recipe`.

    Raises:
        ConfigError: a value is unknown.
        DataError: a file of programs cannot be read.
        SandboxError: there is no sandbox here that passes its self-test.
    """
    config = parse(_Settings, {}, changes, source="the audit").sandbox
    programs = [program for path in probes for program in read_probes(Path(path))]
    with open_sandbox(config) as sandbox:
        return SandboxAudit(config, tuple(run_probes(sandbox, programs)))
