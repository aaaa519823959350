"""The audit before training: attacks that cost nothing, on a few problems of the task that is about to be trained."""

from collections.abc import Sequence

from groupwise.audit.generator import adversarial_cases
from groupwise.audit.judge import Limits, Miss, judge_cases
from groupwise.audit.opinion import differs_for
from groupwise.errors import VerifierError
from groupwise.tasks.base import Task
from groupwise.types import Problem
from groupwise.verifiers.base import Verifier
from groupwise.verifiers.logic import LOGIC_VERIFIERS

QUICK = ("math", "number", "countdown", *LOGIC_VERIFIERS)
"""Verifiers that decide by text alone; those that ask a model or run programs are left to `groupwise audit`."""
NUM_PROBLEMS = 2


def quick_audit(task: Task, verifier: Verifier) -> None:
    """Stop before training on a verifier that pays for what is no answer, or does not pay for a right one.

    Raises:
        VerifierError: names the attack, what was written and what the verifier said.
    """
    for name, problems in _by_verifier(task).items():
        if name in QUICK:
            _audit(task, name, problems[:NUM_PROBLEMS], verifier)


def _by_verifier(task: Task) -> dict[str, list[Problem]]:
    """The training problems by the verifier that judges them, of which a mixture has several."""
    found: dict[str, list[Problem]] = {}
    for problem in task.problems("train"):
        found.setdefault(str(problem.data.get("verifier", task.verifier)), []).append(problem)
    return found


def _audit(task: Task, name: str, problems: Sequence[Problem], verifier: Verifier) -> None:
    cases = adversarial_cases(
        problems, task.template, verifier=name,
        extraction=verifier.config.extraction, differs=differs_for(name), with_floods=False,
    )  # fmt: skip
    limits = Limits(verdict_s=verifier.config.timeout_s + 5, hangs=1)
    for result in judge_cases(verifier, cases, limits):
        if result.miss in (Miss.FALSE_POSITIVE, Miss.FALSE_NEGATIVE):
            what = "pays for" if result.miss is Miss.FALSE_POSITIVE else "does not pay for"
            source = f" --task {task.name}" if name == task.verifier else ""
            raise VerifierError(
                f"the verifier '{name}' {what} '{result.case.group}' on {result.case.problem.id}: "
                f"{result.case.text[:200]!r} is {result.verdict.outcome} ({result.verdict.evidence}); "
                f"see all with `groupwise audit {name}{source}`"
            )
