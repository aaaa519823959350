"""The audit before training: attacks that cost nothing, on a few problems of the task that is about to be trained."""

from collections.abc import Iterator, Sequence

from groupwise.checks.audit.generator import adversarial_cases
from groupwise.checks.audit.judge import Limits, Miss, differs_for, judge_cases
from groupwise.errors import VerifierError
from groupwise.tasks.base import Task
from groupwise.types import Problem
from groupwise.verifiers import VERIFIERS, Verifier, VerifierConfig, extraction_of
from groupwise.verifiers.routed import RoutedConfig

NUM_PROBLEMS = 2


def quick_audit(task: Task, verifier: Verifier) -> None:
    """Stop before training on a verifier that pays for what is no answer, or does not pay for a right one.

    Those that ask a model or run programs are left to `groupwise audit`.

    Raises:
        VerifierError: names the attack, what was written and what the verifier said.
    """
    for config, problems in by_verifier(task, verifier.config):
        if VERIFIERS.find(config.kind).by_text_alone:
            _audit(task, config, problems[:NUM_PROBLEMS], verifier)


def by_verifier(task: Task, config: VerifierConfig) -> Iterator[tuple[VerifierConfig, list[Problem]]]:
    """The training problems by the verifier that judges them, of which a mixture has several."""
    problems = list(task.problems("train"))
    if not isinstance(config, RoutedConfig):
        yield config, problems
        return
    for kind in dict.fromkeys(problem.verifier for problem in problems):
        yield config.member(kind), [problem for problem in problems if problem.verifier == kind]


def _audit(task: Task, config: VerifierConfig, problems: Sequence[Problem], verifier: Verifier) -> None:
    name = config.kind
    cases = adversarial_cases(
        problems, task.template, verifier=name,
        extraction=extraction_of(config), differs=differs_for(name), with_floods=False,
    )  # fmt: skip
    limits = Limits(verdict_s=verifier.verdict_s + 5, hangs=1)
    for result in judge_cases(verifier, cases, limits):
        if result.miss in (Miss.FALSE_POSITIVE, Miss.FALSE_NEGATIVE):
            what = "pays for" if result.miss is Miss.FALSE_POSITIVE else "does not pay for"
            source = f" --task {task.name}" if name == task.verifier else ""
            raise VerifierError(
                f"the verifier '{name}' {what} '{result.case.group}' on {result.case.problem.id}: "
                f"{result.case.text[:200]!r} is {result.verdict.outcome} ({result.verdict.evidence}); "
                f"see all with `groupwise audit {name}{source}`"
            )
