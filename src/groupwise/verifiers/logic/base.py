"""What the verifiers of logic and structure share: they judge exactly, in this process, in time linear in the text."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import ExtractingConfig, Finding, Request, Verifier, verdict
from groupwise.verifiers.extraction import explained, extract

MAX_LENGTH = 10_000
"""Most characters of an answer that are read."""

ContentT = TypeVar("ContentT")


class UnreadableError(Exception):
    """The answer is not in the required form; the message says what it is instead."""


@dataclass(frozen=True, slots=True)
class Measured(Finding):
    """A finding with measures, which are for statistics and earn nothing."""

    measures: Mapping[str, float] = field(default_factory=dict)


class ExactVerifier(Verifier):
    """Reads the answer and judges it at once. Subclasses implement `find`."""

    Config = ExtractingConfig
    one_right = True
    by_text_alone = True
    config: ExtractingConfig

    @abstractmethod
    def find(self, problem: Problem, answer: str) -> Measured:
        """The finding about an answer; raises UnreadableError where it is not in the required form."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order."""
        return [self._judge(request.problem, request.readable(self.config.extraction)) for request in requests]

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        """What was read, and the finding."""
        return [*explained(text, self.config.extraction), verdict.evidence]

    def _judge(self, problem: Problem, text: str) -> Verdict:
        extraction = extract(text, self.config.extraction)
        if extraction.answer is None:
            return verdict(Finding(Outcome.UNPARSABLE, extraction.reason), self.config, tags_right=False)
        finding = self._attempt(problem, extraction.answer)
        return replace(verdict(finding, self.config, tags_right=extraction.tags_right), measures=finding.measures)

    def _attempt(self, problem: Problem, answer: str) -> Measured:
        if len(answer) > MAX_LENGTH:
            return Measured(Outcome.UNPARSABLE, f"{len(answer)} characters, at most {MAX_LENGTH} are read")
        try:
            return self.find(problem, answer)
        except UnreadableError as error:
            return Measured(Outcome.UNPARSABLE, str(error))
        except Exception as error:  # a fault of ours or of the problem's data is never a wrong answer
            return Measured(Outcome.CRASHED, f"problem {problem.id}: {type(error).__name__}: {error}"[:400])


class ReferenceVerifier(ExactVerifier, Generic[ContentT]):
    """Reads answer and reference answer in one form and compares what was read; needs no further data."""

    @abstractmethod
    def read(self, text: str) -> ContentT:
        """The content of an answer; raises UnreadableError."""

    @abstractmethod
    def difference(self, answer: ContentT, reference: ContentT) -> str:
        """Where the two differ, for a person; empty when they are equal."""

    @abstractmethod
    def canonical(self, content: ContentT) -> str:
        """One text for all spellings of the same content."""

    def find(self, problem: Problem, answer: str) -> Measured:
        """Correct when there is no difference from the reference answer."""
        try:
            reference = self.read(problem.reference)
        except UnreadableError as error:
            return Measured(Outcome.CRASHED, f"the reference answer of problem {problem.id} is unreadable: {error}")
        content = self.read(answer)
        fault = self.difference(content, reference)
        outcome = Outcome.WRONG if fault else Outcome.CORRECT
        return Measured(outcome, fault or "it equals the reference answer", self.canonical(content))


def plain(answer: str) -> str:
    r"""An answer without LaTeX's text commands, braces and dollars; `\\` breaks the line; runs of blanks are one."""
    for mark, replacement in (("\\\\", "\n"), ("\\text", ""), ("{", ""), ("}", ""), ("$", "")):
        answer = answer.replace(mark, replacement)
    return "\n".join(" ".join(line.split()) for line in answer.split("\n"))


def shown(text: str) -> str:
    """A piece of an answer for evidence: quoted, ASCII and short."""
    return ascii(text if len(text) <= 40 else f"{text[:37]}...")
