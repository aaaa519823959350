"""`groupwise verify` and `groupwise audit VERIFIER`: one verdict and its derivation, a whole audit, a short one."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from groupwise.checks.audit.attacks import REFERENCES, adversarial_cases, reference_problems
from groupwise.checks.audit.judge import Canary, Case, Limits, Miss, differs_for, judge_cases, load_cases, opinion_for
from groupwise.checks.audit.summary import Summary, as_json
from groupwise.config import Changes, Section, dump_toml, parse, toml_literal
from groupwise.errors import ConfigError, VerifierError
from groupwise.tasks import TASKS, TaskOptions, make_task
from groupwise.tasks.base import GeneratedTask, Task, Template
from groupwise.tasks.jsonl import Jsonl, JsonlConfig
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import VERIFIERS, Request, Verifier, VerifierConfig, extraction_of, make_verifier
from groupwise.verifiers.composition import RoutedConfig
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.python import PythonVerifier


class _Judged(Section):
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """The verifier."""


class _DataSettings(_Judged):
    task: JsonlConfig
    """The fields of question and answer."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A verdict, and how it came about."""

    verdict: Verdict
    steps: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "outcome": self.verdict.outcome, "reward": self.verdict.reward, "parts": dict(self.verdict.parts),
            "answer": self.verdict.answer, "evidence": self.verdict.evidence, "explanation": list(self.steps),
            "measures": dict(self.verdict.measures),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class References:
    """The reference answers of a file of problems."""

    problems: tuple[Problem, ...]  # in the order of the file
    faults: Mapping[str, str]  # id of a problem whose reference answer cannot be read or does not pass -> why


def verify(verifier: str, completion: str, problem: Problem, changes: Changes = ()) -> Explained:
    r"""Judge one completion and explain the verdict step by step. It is `groupwise verify`.

    >>> verify("number", r"So it is \boxed{391}.", Problem("asked", "23 × 17", "391")).verdict.outcome
    <Outcome.CORRECT: 'correct'>

    Args:
        verifier: a verifier's name, or `path/to/file.py:function`.
        completion: what is judged, the prompt's prefill included.
        problem: what was asked, with its reference answer and whatever else the verifier reads.
        changes: of the section verifier, as for `load_recipe`.

    Raises:
        ConfigError: the problem lacks what the verifier needs, or a name or a value is unknown.
    """
    config = parse(_Judged, {"verifier": {"kind": verifier}}, changes, source="verify").verifier
    with make_verifier(config) as judge:
        judge.check([problem], Template())
        verdict = judge.verify(problem, completion)
        return Explained(verdict, tuple(judge.explain(problem, completion, verdict)))


def check_references(verifier: str, path: str | Path, changes: Changes = ()) -> References:
    """Judge the reference answers of a file of problems: which cannot be read, or do not pass?

    >>> check_references("math", "problems.jsonl", {"task.answer_field": "solution"}).faults  # doctest: +SKIP
    {}

    Args:
        verifier: a verifier's name, or `path/to/file.py:function`.
        path: the problems, in a file that the task jsonl reads.
        changes: of the sections task and verifier, as for `load_recipe`.

    Raises:
        ConfigError, DataError: the file cannot be used.
    """
    tables = {"verifier": {"kind": verifier}, "task": {"kind": "jsonl", "path": str(path), "dev_fraction": 0.0}}
    settings = parse(_DataSettings, tables, changes, source="verify")
    problems, template = Jsonl(settings.task).problems("train"), settings.task.template
    with make_verifier(settings.verifier) as judge:
        verdicts = judge.verify_many([Request(problem, template.gold_answer(problem)) for problem in problems])
        faults = {
            problem.id: verdict.evidence
            for problem, verdict in zip(problems, verdicts, strict=True)
            if verdict.outcome is not Outcome.CORRECT
        }
        if isinstance(judge, MathVerifier):
            faults |= {problem.id: reason for problem, reason in judge.unreadable(problems)}
    return References(tuple(problems), faults)


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


class _Settings(_Judged):
    task: TaskOptions | None = None
    """Source of the attacked problems."""


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
    if tiers and not cases:
        raise ConfigError("tiers choose among the cases of a file: name a file of cases")
    like = "math" if ":" in verifier else verifier  # a reward function is attacked as the mathematical verifier is
    tasks = {name: TASKS.find(name) for name in TASKS.table}
    made = [name for name, found in tasks.items() if found.verifier == like and issubclass(found, GeneratedTask)]
    fitting = made[0] if made else OWN_PROBLEMS.get(like)
    tables: dict[str, Any] = {"verifier": {"kind": verifier}}
    if name := task or (None if cases or references else fitting):
        tables["task"] = {"kind": name}
    settings = parse(_Settings, tables, changes, source="the audit")
    subject = make_task(settings.task) if settings.task else None
    template = subject.template if subject else Template()
    extraction, like = extraction_of(settings.verifier), subject.verifier if subject and task else like
    with tempfile.TemporaryDirectory(prefix="gwcanary") as folder, make_verifier(settings.verifier) as judge:
        canary, paths, source = Canary(Path(folder)), [Path(path) for path in cases], "attacks"
        if paths:
            tried = load_cases(paths, extraction, tiers)
            source = ", ".join(path.name for path in paths) + (f", tier {' and '.join(tiers)}" if tiers else "")
        else:
            usual = REFERENCES if verifier == "math" and not (task or references) else ()
            attacked = reference_problems([*references, *usual])
            if subject is not None:  # the task's problems, evenly spread
                every = subject.problems("train")
                attacked = [*every[:: max(1, len(every) // problems)][:problems], *attacked]
            if not attacked:
                raise ConfigError(
                    f"no task is judged by {verifier!r}: name labelled cases, a task ({', '.join(TASKS.table)}) or "
                    "reference answers"
                )
            tried = adversarial_cases(
                attacked, template, canary, verifier=like, extraction=extraction, differs=differs_for(like)
            )
        judge.check([case.problem for case in tried], template)
        limits = Limits(judge.verdict_s + GRACE_S, timeout_is_hang=isinstance(judge, PythonVerifier))
        judged = judge_cases(judge, tried, limits, canary, opinion_for(like, extraction))
        summary = Summary(tuple(judged), len(tried))
        explanations = tuple(
            tuple(judge.explain(miss.case.problem, miss.case.text, miss.verdict))
            if number < MAX_EXPLAINED
            else (miss.verdict.evidence,)
            for number, miss in enumerate(summary.misses)
        )
    return Audit(verifier, source, summary, explanations, dump_toml(settings))


NUM_PROBLEMS = 2


def quick_audit(task: Task, verifier: Verifier) -> None:
    """Stop before training on a verifier that pays for what is no answer, or does not pay for a right one.

    Those that ask a model or run programs are left to `groupwise audit`.

    Raises:
        VerifierError: names the attack, what was written and what the verifier said.
    """
    limits = Limits(verdict_s=verifier.verdict_s + 5, hangs=1)
    for name, cases in attacks(task, verifier.config):
        for result in judge_cases(verifier, cases, limits):
            if result.miss in (Miss.FALSE_POSITIVE, Miss.FALSE_NEGATIVE):
                what = "pays for" if result.miss is Miss.FALSE_POSITIVE else "does not pay for"
                source = f" --task {task.name}" if name == task.verifier else ""
                if source:
                    given = task.config.model_dump(mode="json", exclude_defaults=True, exclude={"kind", "template"})
                    source += "".join(f" --set {quote(f'task.{key}={toml_literal(given[key])}')}" for key in given)
                other = ", or judge by 'number', which reads no expressions" if name == "math" else ""
                raise VerifierError(
                    f"the verifier '{name}' {what} '{result.case.group}' on {result.case.problem.id}: "
                    f"{result.case.text[:200]!r} is {result.verdict.outcome} ({result.verdict.evidence}){other}; "
                    f"see all with `groupwise audit {name}{source}`"
                )


def attacks(task: Task, config: VerifierConfig, own: bool = False) -> Iterator[tuple[str, list[Case]]]:
    """Attacks on the first training problems of each verifier, of which a mixture has several.

    Of those that judge by the text alone; with `own` also of a user's, which is attacked as the task's would be.
    """
    problems = list(task.problems("train"))
    members = [(config, problems)]
    if isinstance(config, RoutedConfig):
        kinds = dict.fromkeys(problem.verifier for problem in problems)
        members = [(config.member(kind), [p for p in problems if p.verifier == kind]) for kind in kinds]
    for member, some in members:
        kind = VERIFIERS.find(member.kind)
        is_own = own and issubclass(kind, PythonVerifier)
        if kind.by_text_alone or is_own:
            name = task.verifier if is_own else member.kind
            yield member.kind, adversarial_cases(
                some[:NUM_PROBLEMS], task.template, verifier=name, extraction=extraction_of(member),
                differs=differs_for(name), with_floods=False,
            )  # fmt: skip
