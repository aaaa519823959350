"""`groupwise audit`: labelled cases, made-up attacks or programs through a verifier or the sandbox."""

import json
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from groupwise.audit.cases import Case, load_cases
from groupwise.audit.generator import REFERENCES, adversarial_cases, reference_problems
from groupwise.audit.judge import Canary, Limits, differs_for, judge_cases, opinion_for
from groupwise.audit.summary import Summary, as_json
from groupwise.audit.terminal import print_audit
from groupwise.cli.audit_report import write_report
from groupwise.config import Section, dump_toml, parse
from groupwise.errors import ConfigError
from groupwise.pages.audit import audit_page
from groupwise.tasks import TASKS, TaskOptions, make_task
from groupwise.tasks.base import GeneratedTask, Task, Template
from groupwise.types import Problem
from groupwise.verifiers import VERIFIERS, VerifierConfig, extraction_of, make_verifier
from groupwise.verifiers.base import Extraction
from groupwise.verifiers.python import PythonVerifier

GRACE_S = 3.0
"""Seconds beyond a verifier's own deadline after which a verdict counts as a hang: its worker is killed in them."""
MAX_EXPLAINED = 200
"""Misses that are explained; the others come with the verdict's evidence."""

OWN_PROBLEMS = {"math": "word_problems"}
"""Verifier of whose own tasks none generates problems -> a task whose problems serve: none states an
expression that equals the answer."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What the command line asks for."""

    verifier: str
    """A verifier's name, or `path/to/file.py:function`."""
    cases: tuple[Path, ...]
    tiers: tuple[str, ...]
    task: str | None
    references: tuple[str, ...]
    num_problems: int
    overrides: tuple[str, ...]
    report: Path | None
    as_json: bool

    @property
    def judges_like(self) -> str:
        """The verifier whose tasks and second opinion fit: a reward function is attacked as the mathematical one is."""
        return "math" if ":" in self.verifier else self.verifier


class _Settings(Section):
    """What can be set."""

    task: TaskOptions | None = None
    """Where the attacked problems come from."""
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """How completions are judged."""


def run_audit(request: AuditRequest, console: Console) -> bool:
    """Audit a verifier and print what was found; True when every decided case has its expected verdict."""
    settings = _settings(request)
    task = make_task(settings.task) if settings.task else None
    extraction = extraction_of(settings.verifier)
    with tempfile.TemporaryDirectory(prefix="gwcanary") as folder, make_verifier(settings.verifier) as verifier:
        canary = Canary(Path(folder))
        cases = _cases(request, task, extraction, canary)
        verifier.check([case.problem for case in cases], task.template if task else Template())
        limits = Limits(verifier.verdict_s + GRACE_S, timeout_is_hang=isinstance(verifier, PythonVerifier))
        opinion = opinion_for(task.verifier if task and request.task else request.judges_like, extraction)
        with nullcontext() if request.as_json else console.status(f"judging {len(cases)} completions"):
            results = list(judge_cases(verifier, cases, limits, canary, opinion))
        summary = Summary(tuple(results), len(cases))
        explanations = [
            verifier.explain(one.case.problem, one.case.text, one.verdict) if number < MAX_EXPLAINED
            else [one.verdict.evidence]
            for number, one in enumerate(summary.misses)
        ]  # fmt: skip
    _show(request, summary, explanations, settings, console)
    return summary.passed


def _settings(request: AuditRequest) -> _Settings:
    """With the task to attack: the one named, else, where nothing else is, one for such a verifier."""
    if request.tiers and not request.cases:
        raise ConfigError("--tier chooses among the cases of a file: name one with --cases")
    like = request.judges_like
    tasks = {name: TASKS.find(name) for name in TASKS.table}
    made = [name for name, task in tasks.items() if task.verifier == like and issubclass(task, GeneratedTask)]
    fitting = made[0] if made else OWN_PROBLEMS.get(like)
    name = request.task or (None if request.cases or request.references else fitting)
    tables: dict[str, Any] = {"verifier": {"kind": request.verifier}}
    if name:
        tables["task"] = {"kind": name}
    return parse(_Settings, tables, request.overrides, source="the audit")


def _cases(request: AuditRequest, task: Task | None, extraction: Extraction, canary: Canary) -> list[Case]:
    if request.cases:
        return load_cases(request.cases, extraction, request.tiers)
    subject = task.verifier if task and request.task else request.judges_like
    return adversarial_cases(
        _problems(request, task), task.template if task else Template(), canary,
        verifier=subject, extraction=extraction, differs=differs_for(subject),
    )  # fmt: skip


def _problems(request: AuditRequest, task: Task | None) -> list[Problem]:
    """The task's problems, evenly spread, and the reference answers; for mathematics also the usual forms."""
    usual = REFERENCES if request.verifier == "math" and not (request.task or request.references) else ()
    problems = reference_problems([*request.references, *usual])
    if task is not None:
        every = task.problems("train")
        problems = [*every[:: max(1, len(every) // request.num_problems)][: request.num_problems], *problems]
    if not problems:
        raise ConfigError(
            f"no task is judged by {request.verifier!r}: name labelled cases with --cases, a task with --task "
            f"({', '.join(TASKS.table)}) or reference answers with --reference"
        )
    return problems


def _show(
    request: AuditRequest, summary: Summary, explanations: list[list[str]], settings: _Settings, console: Console
) -> None:
    found = {"verifier": request.verifier, **as_json(summary, explanations)}
    title = f"audit of {request.verifier}: {_source(request)}"
    if request.report:
        written = {"recipe": dump_toml(settings), "cases": _source(request)}
        write_report(request.report, audit_page(title, summary, explanations, written), found)
    if request.as_json:
        print(json.dumps(found, indent=1))
        return
    print_audit(title, summary, explanations, console, most_alike=len(summary.misses) if request.cases else 2)
    if request.report:
        console.print(f"Report: {request.report}", highlight=False)


def _source(request: AuditRequest) -> str:
    if not request.cases:
        return "attacks"
    tiers = f", tier {' and '.join(request.tiers)}" if request.tiers else ""
    return ", ".join(path.name for path in request.cases) + tiers
