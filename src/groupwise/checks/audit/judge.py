"""Cases through a verifier, one at a time: the verdict, how long it took, and whether anything was written to disk.

Beside it stands a second opinion, where there is one: a checker that shares no code with the verifier.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from groupwise.checks.audit.cases import Case
from groupwise.checks.audit.form import Differs, differs_as_number
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Extraction, Verifier
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.math.second_opinion import second_opinion

SecondOpinion = Callable[[Case], bool | None]
"""Whether a case's answer is right, by a checker that shares nothing with the verifier; None: it cannot say."""
LONGEST = 200
"""Characters of an answer up to which there is a second opinion; what is longer is an attack on time."""


class Miss(StrEnum):
    """What can be wrong with a verdict, the worst first."""

    FILE_WRITTEN = "file written"
    """The completion was executed: it made the canary file."""
    HANG = "hang"
    """No verdict in time."""
    CRASH = "crash"
    """The verifier failed or raised, or says that it cannot read the reference."""
    FALSE_POSITIVE = "false positive"
    """A wrong answer was paid."""
    FALSE_NEGATIVE = "false negative"
    """A right answer in proper form was not paid."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case."""

    case: Case
    verdict: Verdict
    seconds: float
    miss: Miss | None
    """What is wrong with the verdict; None when nothing is, or the case is undecided."""
    second: bool | None = None
    """The second opinion."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When the audit of a verifier loses patience."""

    verdict_s: float
    """Seconds after which a verdict counts as a hang."""
    timeout_is_hang: bool = False
    """For a verifier without a deadline of its own: the outcome `timeout` means that the audit had to kill it."""
    hangs: int = 20
    """Hangs after which the audit ends early."""


class Canary:
    """Two file names that code in completions tries to write: one absolute, one in the working directory."""

    def __init__(self, folder: Path) -> None:
        self.paths = (folder / "canary", Path(f"gwcanary{os.getpid()}"))

    def written(self) -> bool:
        """Whether one of them exists; it is removed."""
        files = [path for path in self.paths if path.exists()]
        for path in files:
            path.unlink()
        return bool(files)


def judge_cases(
    verifier: Verifier,
    cases: Sequence[Case],
    limits: Limits,
    canary: Canary | None = None,
    second_opinion: SecondOpinion = lambda case: None,
) -> Iterator[Result]:
    """One result per case, in order; ends early after `limits.hangs` hangs.

    The time it takes to start the verifier counts for no verdict.
    """
    verifier.start()
    hangs = 0
    for case in cases:
        verdict, seconds = _timed(verifier, case)
        written = canary is not None and canary.written()
        miss = Miss.FILE_WRITTEN if written else _miss(case, verdict, seconds, limits)
        yield Result(case, verdict, seconds, miss, second_opinion(case))
        hangs += miss is Miss.HANG
        if hangs == limits.hangs:
            return


def _timed(verifier: Verifier, case: Case) -> tuple[Verdict, float]:
    began = time.perf_counter()
    try:
        verdict = verifier.verify(case.problem, case.text)
    except Exception as error:  # a verifier must never raise, so this is a finding of the audit
        verdict = Verdict(Outcome.CRASHED, {}, f"it raised {type(error).__name__}: {error}"[:400])
    return verdict, time.perf_counter() - began


def _miss(case: Case, verdict: Verdict, seconds: float, limits: Limits) -> Miss | None:
    """What is wrong; an attack that the verifier's own deadline stops is not paid, so it is no miss."""
    if case.expected is None:
        return None
    if seconds >= limits.verdict_s or (limits.timeout_is_hang and verdict.outcome is Outcome.TIMEOUT):
        return Miss.HANG
    if verdict.outcome is Outcome.CRASHED:
        return Miss.CRASH
    if (verdict.outcome is Outcome.CORRECT) == case.expected:
        return None
    return Miss.FALSE_NEGATIVE if case.expected else Miss.FALSE_POSITIVE


def differs_for(verifier: str) -> Differs:
    """How attacks on a verifier know that an answer is wrong."""
    if verifier != "math":
        return differs_as_number
    return lambda reference, answer: second_opinion(reference, answer) is False


def opinion_for(verifier: str, extraction: Extraction) -> SecondOpinion:
    """The independent check of a verifier's verdicts; one that never can say where there is none."""
    if verifier != "math":
        return lambda case: None

    def opinion(case: Case) -> bool | None:
        answer = extract(case.text, extraction).answer
        return None if answer is None or len(answer) > LONGEST else second_opinion(case.problem.reference, answer)

    return opinion
