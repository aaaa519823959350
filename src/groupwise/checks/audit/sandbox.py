"""`groupwise audit sandbox`: the sandbox proves itself, then programs that try to get out are run in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import mean_share
from groupwise.checks.audit.summary import share
from groupwise.config import Changes, Section, parse
from groupwise.sandbox.base import SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.sandbox.probes import ProbeResult, read_probes, run_probes


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
        counts = f"{sum(contained)} of {len(contained)} programs refused or contained, {share(mean_share(contained))}"
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
        probes: files of programs (JSON lines), as `groupwise.sandbox.probes` describes them.
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
