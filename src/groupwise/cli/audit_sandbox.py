"""`groupwise audit sandbox`: programs that try to get out, and whether each was refused or contained."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.algorithms.statistics import mean_share
from groupwise.audit.cases import read_rows
from groupwise.audit.wording import share
from groupwise.cli.audit_report import write_report
from groupwise.config import Section, parse
from groupwise.pages.audit import sandbox_page
from groupwise.sandbox.base import SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.sandbox.probes import ProbeResult, read_probes, run_probes
from groupwise.verifiers.extraction import clipped


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """What the command line asks for."""

    probes: tuple[Path, ...]
    overrides: tuple[str, ...]
    report: Path | None
    as_json: bool


class _Settings(Section):
    """What can be set."""

    sandbox: SandboxConfig = SandboxConfig()
    """How programs are confined."""


class _Found(NamedTuple):
    name: str
    result: ProbeResult


def run_sandbox_audit(request: SandboxRequest, console: Console) -> bool:
    """Open the sandbox, which proves itself first, and run every probe; True when all were refused or contained."""
    config = parse(_Settings, {}, request.overrides, source="the audit").sandbox
    names = [str(row.get("name", "")) for path in request.probes for _, row in read_rows(path)]
    probes = [probe for path in request.probes for probe in read_probes(path)]
    waiting = nullcontext() if request.as_json else console.status(f"running {len(probes)} programs")
    with waiting, open_sandbox(config) as sandbox:
        results = run_probes(sandbox, probes)
    found = [_Found(name, result) for name, result in zip(names, results, strict=True)]
    told = _as_json(config, found)
    if request.report:
        write_report(request.report, sandbox_page(_line(config, found), found), told)
    if request.as_json:
        print(json.dumps(told, indent=1))
    else:
        _print(config, found, console)
    return bool(told["passed"])


def _line(config: SandboxConfig, found: Sequence[_Found]) -> str:
    held = sum(one.result.contained for one in found)
    start = f"The self-test of the sandbox ({config.tier}) holds"
    if not found:
        return f"{start}; name programs with --probes to try more."
    verdict = "Passed" if held == len(found) else "Not passed"
    rate = share(mean_share([float(one.result.contained) for one in found]))
    return f"{start}. {verdict}: {held} of {len(found)} programs refused or contained, {rate}."


def _as_json(config: SandboxConfig, found: Sequence[_Found]) -> dict[str, Any]:
    rows = [{"id": one.result.id, "name": one.name, "contained": one.result.contained, "evidence": one.result.evidence}
            for one in found]  # fmt: skip
    passed = all(one.result.contained for one in found)
    return {"passed": passed, "sandbox": config.model_dump(mode="json"), "probes": rows}


def _print(config: SandboxConfig, found: Sequence[_Found], console: Console) -> None:
    table = Table(box=SIMPLE_HEAD)
    for column in ("probe", "", "what became of it"):
        table.add_column(column, overflow="fold")
    for name, result in found:
        style = "green" if result.contained else "bold red"
        table.add_row(
            Text(f"{result.id} {name}"),
            Text("held" if result.contained else "GOT THROUGH", style=style),
            Text(clipped(result.evidence)),
        )
    if found:
        console.print(table)
    passed = all(one.result.contained for one in found)
    console.print(Text(_line(config, found), style="bold green" if passed else "bold red"), soft_wrap=True)
