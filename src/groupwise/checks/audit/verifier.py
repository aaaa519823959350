"""`groupwise audit VERIFIER`: a whole audit of a verifier, and the short one before training."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from groupwise.checks.audit.attacks import REFERENCES, adversarial_cases, reference_problems
from groupwise.checks.audit.judge import Canary, Case, Limits, Miss, differs_for, judge_cases, load_cases, opinion_for
from groupwise.checks.audit.summary import Summary, as_json
from groupwise.config import Changes, Section, dump_toml, parse
from groupwise.errors import ConfigError, VerifierError
from groupwise.tasks import TASKS, TaskOptions, make_task
from groupwise.tasks.base import GeneratedTask, Task, Template
from groupwise.types import Problem
from groupwise.verifiers import VERIFIERS, Verifier, VerifierConfig, extraction_of, make_verifier
from groupwise.verifiers.base import Extraction
from groupwise.verifiers.python import PythonVerifier
from groupwise.verifiers.routed import RoutedConfig

GRACE_S = 3.0
"""Seconds beyond a verifier's own deadline after which a verdict counts as a hang: its worker is killed in them."""
MAX_EXPLAINED = 200  # misses that are explained; the others come with the verdict's evidence

OWN_PROBLEMS = {"math": "word_problems"}
"""Verifier of whose own tasks none generates problems -> a task whose problems serve: none states an
expression that equals the answer."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    verifier: str
    cases: str  # source of the cases: the names of their files, or `attacks`
    summary: Summary
    explanations: tuple[tuple[str, ...], ...]
    """Derivation of the verdict of each miss, in the order of `summary.misses`."""
    recipe: str  # the settings of verifier and task, as TOML

    @property
    def passed(self) -> bool:
        return self.summary.passed

    @property
    def title(self) -> str:
        return f"audit of {self.verifier}: {self.cases}"

    def as_dict(self) -> dict[str, Any]:
        return {"verifier": self.verifier, **as_json(self.summary, self.explanations)}


@dataclass(frozen=True, slots=True)
class _Request:
    verifier: str
    cases: tuple[Path, ...]
    tiers: tuple[str, ...]
    task: str | None
    references: tuple[str, ...]
    num_problems: int
    changes: Changes

    @property
    def judges_like(self) -> str:
        """The verifier whose tasks and second opinion fit: a reward function is attacked as the mathematical one is."""
        return "math" if ":" in self.verifier else self.verifier

    @property
    def source(self) -> str:
        if not self.cases:
            return "attacks"
        tiers = f", tier {' and '.join(self.tiers)}" if self.tiers else ""
        return ", ".join(path.name for path in self.cases) + tiers


class _Settings(Section):
    task: TaskOptions | None = None
    """Source of the attacked problems."""
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """The verifier."""


def audit_verifier(
    verifier: str,
    *,
    cases: Sequence[str | Path] = (),
    tiers: Sequence[str] = (),
    task: str | None = None,
    references: Sequence[str] = (),
    problems: int = 4,
    changes: Changes = (),
) -> Audit:
    """Attack a verifier, or a reward function of your own, or score labelled cases. It is `groupwise audit VERIFIER`.

    >>> audit_verifier("number", task="arithmetic", problems=1).passed  # doctest: +SKIP
    True

    Args:
        verifier: a verifier's name, or `path/to/file.py:function`.
        cases: files of labelled cases (JSON lines); none: attacks are made up.
        tiers: judge only cases of these tiers.
        task: a task whose problems are attacked; None: one that fits the verifier.
        references: reference answers to attack, beside those of the task.
        problems: problems of the task to attack.
        changes: of the sections task and verifier, as for `load_recipe`.

    Raises:
        ConfigError: nothing is named that could be attacked, or a name or a value is unknown.
        DataError: a file of cases cannot be read.
    """
    paths = tuple(Path(path) for path in cases)
    request = _Request(verifier, paths, tuple(tiers), task, tuple(references), problems, changes)
    settings = _settings(request)
    subject = make_task(settings.task) if settings.task else None
    extraction = extraction_of(settings.verifier)
    with tempfile.TemporaryDirectory(prefix="gwcanary") as folder, make_verifier(settings.verifier) as judge:
        canary = Canary(Path(folder))
        tried = _cases(request, subject, extraction, canary)
        judge.check([case.problem for case in tried], subject.template if subject else Template())
        limits = Limits(judge.verdict_s + GRACE_S, timeout_is_hang=isinstance(judge, PythonVerifier))
        opinion = opinion_for(subject.verifier if subject and task else request.judges_like, extraction)
        summary = Summary(tuple(judge_cases(judge, tried, limits, canary, opinion)), len(tried))
        explanations = tuple(
            tuple(judge.explain(miss.case.problem, miss.case.text, miss.verdict))
            if number < MAX_EXPLAINED
            else (miss.verdict.evidence,)
            for number, miss in enumerate(summary.misses)
        )
    return Audit(verifier, request.source, summary, explanations, dump_toml(settings))


def _settings(request: _Request) -> _Settings:
    if request.tiers and not request.cases:
        raise ConfigError("tiers choose among the cases of a file: name a file of cases")
    like = request.judges_like
    tasks = {name: TASKS.find(name) for name in TASKS.table}
    made = [name for name, task in tasks.items() if task.verifier == like and issubclass(task, GeneratedTask)]
    fitting = made[0] if made else OWN_PROBLEMS.get(like)
    name = request.task or (None if request.cases or request.references else fitting)
    tables: dict[str, Any] = {"verifier": {"kind": request.verifier}}
    if name:
        tables["task"] = {"kind": name}
    return parse(_Settings, tables, request.changes, source="the audit")


def _cases(request: _Request, task: Task | None, extraction: Extraction, canary: Canary) -> list[Case]:
    if request.cases:
        return load_cases(request.cases, extraction, request.tiers)
    usual = REFERENCES if request.verifier == "math" and not (request.task or request.references) else ()
    problems = reference_problems([*request.references, *usual])
    if task is not None:  # the task's problems, evenly spread
        every = task.problems("train")
        problems = [*every[:: max(1, len(every) // request.num_problems)][: request.num_problems], *problems]
    if not problems:
        raise ConfigError(
            f"no task is judged by {request.verifier!r}: name labelled cases, a task ({', '.join(TASKS.table)}) or "
            "reference answers"
        )
    subject = task.verifier if task and request.task else request.judges_like
    return adversarial_cases(
        problems, task.template if task else Template(), canary,
        verifier=subject, extraction=extraction, differs=differs_for(subject),
    )  # fmt: skip


NUM_PROBLEMS = 2


def quick_audit(task: Task, verifier: Verifier) -> None:
    """Stop before training on a verifier that pays for what is no answer, or does not pay for a right one.

    Those that ask a model or run programs are left to `groupwise audit`.

    Raises:
        VerifierError: names the attack, what was written and what the verifier said.
    """
    limits = Limits(verdict_s=verifier.verdict_s + 5, hangs=1)
    for config, problems in by_verifier(task, verifier.config):
        name = config.kind
        if not VERIFIERS.find(name).by_text_alone:
            continue
        cases = adversarial_cases(
            problems[:NUM_PROBLEMS], task.template, verifier=name,
            extraction=extraction_of(config), differs=differs_for(name), with_floods=False,
        )  # fmt: skip
        for result in judge_cases(verifier, cases, limits):
            if result.miss in (Miss.FALSE_POSITIVE, Miss.FALSE_NEGATIVE):
                what = "pays for" if result.miss is Miss.FALSE_POSITIVE else "does not pay for"
                source = f" --task {task.name}" if name == task.verifier else ""
                raise VerifierError(
                    f"the verifier '{name}' {what} '{result.case.group}' on {result.case.problem.id}: "
                    f"{result.case.text[:200]!r} is {result.verdict.outcome} ({result.verdict.evidence}); "
                    f"see all with `groupwise audit {name}{source}`"
                )


def by_verifier(task: Task, config: VerifierConfig) -> Iterator[tuple[VerifierConfig, list[Problem]]]:
    """The training problems by the verifier that judges them, of which a mixture has several."""
    problems = list(task.problems("train"))
    if not isinstance(config, RoutedConfig):
        yield config, problems
        return
    for kind in dict.fromkeys(problem.verifier for problem in problems):
        yield config.member(kind), [problem for problem in problems if problem.verifier == kind]
