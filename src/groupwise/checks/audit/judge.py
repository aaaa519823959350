"""Cases through a verifier, one at a time, with a second opinion of a checker that shares no code with it."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import DataError
from groupwise.runs.jsonl import read_jsonl
from groupwise.runs.progress import counted
from groupwise.tasks.base import Template
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Extraction, Verifier
from groupwise.verifiers.extraction import extract
from groupwise.verifiers.math.second_opinion import second_opinion

Differs = Callable[[str, str], bool]
"""Returns True if the second text is certainly no right answer where the first is the reference answer."""


class Form(NamedTuple):
    """One problem, and how answers to it are written."""

    problem: Problem
    template: Template
    differs: Differs

    def answer(self, content: str) -> str:
        """The ideal completion, with another answer."""
        return self.template.gold_answer(replace(self.problem, reference=content))

    def final(self, content: str) -> str:
        """The part of it that comes after the reasoning."""
        return self.answer(content).rpartition("</think>")[2]

    def thought(self, thinking: str, content: str) -> str:
        """The same after other reasoning."""
        return f"<think>{thinking}</think>{self.final(content)}"

    @property
    def thinks(self) -> bool:
        return "</think>" in self.answer(self.problem.reference)

    @property
    def is_short(self) -> bool:
        """True for an answer of one line, not a program or a proof, in which a changed word is a changed answer."""
        return "\n" not in self.problem.reference and len(self.problem.reference) <= 200

    @property
    def integer(self) -> int | None:
        plain = re.fullmatch(r"-?[0-9]{1,30}", self.problem.reference)
        return int(plain[0]) if plain else None

    @property
    def wrong(self) -> str:
        near = self.integer
        return str(near + 1) if near is not None else "7919"


def differs_as_number(reference: str, answer: str) -> bool:
    """Plain comparison for any verifier: False where both are the same number, or the same text."""
    try:
        return Fraction(reference) != Fraction(answer)
    except (ValueError, ZeroDivisionError):
        return reference.strip() != answer.strip()


_MARKS: Mapping[Extraction, str] = {"boxed": "\\boxed", "tag": "<answer>", "last_number": ""}
_BARE = re.compile(r"\$\$?[^$]*\$\$?|[-0-9.,]+|-?\\frac\{\d+\}\{\d+\}|[0-9]\*?x.*", re.DOTALL)
"""A prediction that is an answer and nothing else, although its row does not say so."""


class Case(NamedTuple):
    """A completion and the verdict it must get."""

    name: str
    group: str  # name for counting: the tier of a file's row, or the kind of an attack
    problem: Problem
    text: str
    expected: bool | None  # True if it must be judged correct; None when any verdict will do: shown apart, never a miss
    note: str = ""  # reason why it is undecided, or the note of its row


def load_cases(paths: Sequence[Path], extraction: Extraction = "boxed", tiers: Sequence[str] = ()) -> list[Case]:
    """Return the cases of all files, or of these tiers only. Raises DataError."""
    cases = [_case(record.fields, extraction, record.place) for path in paths for record in read_jsonl(path)]
    known = sorted({case.group for case in cases})
    unknown = set(tiers) - set(known)
    if not cases or unknown:
        lacking = f"no case of tier {', '.join(sorted(unknown))}; tiers there: {', '.join(known)}" if cases else "empty"
        raise DataError(f"{', '.join(map(str, paths))}: {lacking}")
    return [case for case in cases if not tiers or case.group in tiers]


def _case(row: dict[str, Any], extraction: Extraction, where: str) -> Case:
    field = "response" if "response" in row else "pred"
    if not all(isinstance(row.get(name), str) for name in ("gold", field)):
        raise DataError(
            f"{where}: a case has the text fields gold and response, or gold and pred; this has {', '.join(row)}"
        )
    if "expected" not in row or not (row["expected"] is None or isinstance(row["expected"], bool)):
        raise DataError(f"{where}: expected = {row.get('expected')!r}: allowed are true, false and null (undecided)")
    if not isinstance(row.get("data", {}), dict):
        raise DataError(f"{where}: data = {row['data']!r}: a JSON object was expected")
    name, language = str(row.get("id", where)), str(row.get("language", "en"))
    problem = Problem(name, str(row.get("question", "")), row["gold"], language=language, data=row.get("data", {}))
    text, expected, note = row[field], row["expected"], str(row.get("note", ""))
    if field == "pred":
        has_form = _MARKS[extraction] and _MARKS[extraction] in text
        is_bare = not has_form and ("wrap" not in row or _BARE.fullmatch(text.strip()))
        text = _FORMS[extraction] % text.strip() if is_bare or row.get("wrap") == "boxed" else text
        if expected and _MARKS[extraction] not in text:
            expected, note = None, f"the answer stands in prose, without {_MARKS[extraction]}, which is not read"
    return Case(name, str(row.get("tier", "attack")), problem, text, expected, note)


SecondOpinion = Callable[[Case], bool | None]
"""Returns True if a case's answer is right by a checker that shares no code with the verifier; None: unknown."""
LONGEST = 200  # characters of an answer up to which there is a second opinion; what is longer is an attack on time


class Miss(StrEnum):
    """Faults of a verdict, the worst first."""

    FILE_WRITTEN = "file written"  # the completion was executed: it made the canary file
    HANG = "hang"  # no verdict in time
    CRASH = "crash"  # the verifier failed or raised, or says that it cannot read the reference
    FALSE_POSITIVE = "false positive"  # a wrong answer was paid
    FALSE_NEGATIVE = "false negative"  # a right answer in proper form was not paid


class Result(NamedTuple):
    """A case with its verdict."""

    case: Case
    verdict: Verdict
    seconds: float
    miss: Miss | None  # fault of the verdict; None without one, or where the case is undecided
    second: bool | None = None


class Limits(NamedTuple):
    """When the audit of a verifier loses patience."""

    verdict_s: float  # seconds after which a verdict counts as a hang
    timeout_is_hang: bool = False
    """For a verifier without a deadline of its own: the outcome `timeout` means that the audit had to kill it."""
    hangs: int = 20  # hangs after which the audit ends early


class Canary:
    """Two file names that code in completions tries to write: one absolute, one in the working directory."""

    def __init__(self, folder: Path) -> None:
        self.paths = (folder / "canary", Path(f"gwcanary{os.getpid()}"))

    def written(self) -> bool:
        """Return True if one of them exists, and remove it."""
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
    """Yield one result per case, in order; ends early after `limits.hangs` hangs."""
    verifier.start()  # its time counts for no verdict
    hangs = 0
    for case in counted("cases judged", cases, len(cases)):
        began = time.perf_counter()
        try:
            verdict = verifier.verify(case.problem, case.text)
        except Exception as error:  # a verifier must never raise, so this is a finding of the audit
            verdict = Verdict(Outcome.CRASHED, {}, f"it raised {type(error).__name__}: {error}"[:400])
        seconds = time.perf_counter() - began
        # an attack that the verifier's deadline stops is not paid, so it is no miss
        is_hang = seconds >= limits.verdict_s or (limits.timeout_is_hang and verdict.outcome is Outcome.TIMEOUT)
        miss = None
        if canary is not None and canary.written():
            miss = Miss.FILE_WRITTEN
        elif case.expected is not None and (is_hang or verdict.outcome is Outcome.CRASHED):
            miss = Miss.HANG if is_hang else Miss.CRASH
        elif case.expected is not None and (verdict.outcome is Outcome.CORRECT) != case.expected:
            miss = Miss.FALSE_NEGATIVE if case.expected else Miss.FALSE_POSITIVE
        yield Result(case, verdict, seconds, miss, second_opinion(case))
        hangs += miss is Miss.HANG
        if hangs == limits.hangs:
            return


def differs_for(verifier: str) -> Differs:
    """Return the comparison by which attacks on a verifier know that an answer is wrong."""
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


_FORMS: Mapping[Extraction, str] = {"boxed": "\\boxed{%s}", "tag": "<answer>%s</answer>", "last_number": "%s"}
