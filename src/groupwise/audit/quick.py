"""The audit before training: attacks that cost nothing, on a few problems of the task that is about to be trained."""

from groupwise.audit.generator import adversarial_cases
from groupwise.audit.judge import Limits, Miss, judge_cases
from groupwise.audit.opinion import differs_for
from groupwise.errors import VerifierError
from groupwise.tasks.base import Task
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
    if task.verifier not in QUICK:
        return
    cases = adversarial_cases(
        task.problems("train")[:NUM_PROBLEMS], task.template, verifier=task.verifier,
        extraction=verifier.config.extraction, differs=differs_for(task.verifier), with_floods=False,
    )  # fmt: skip
    limits = Limits(verdict_s=verifier.config.timeout_s + 5, hangs=1)
    for result in judge_cases(verifier, cases, limits):
        if result.miss in (Miss.FALSE_POSITIVE, Miss.FALSE_NEGATIVE):
            what = "pays for" if result.miss is Miss.FALSE_POSITIVE else "does not pay for"
            raise VerifierError(
                f"the verifier '{task.verifier}' {what} '{result.case.group}' on {result.case.problem.id}: "
                f"{result.case.text[:200]!r} is {result.verdict.outcome} ({result.verdict.evidence}); "
                f"see all with `groupwise audit {task.verifier} --task {task.name}`"
            )
