"""`groupwise verify`: one completion, its verdict and derivation; and the reference answers of a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from groupwise.config import Changes, Section, parse
from groupwise.tasks.base import Template
from groupwise.tasks.jsonl import Jsonl, JsonlConfig
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import VERIFIERS, Request, VerifierConfig, make_verifier
from groupwise.verifiers.math import MathVerifier


class _Settings(Section):
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """The verifier."""


class _DataSettings(_Settings):
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
    config = parse(_Settings, {"verifier": {"kind": verifier}}, changes, source="verify").verifier
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
