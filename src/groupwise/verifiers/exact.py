"""Verifiers that judge an answer exactly, in this process; those of the shipped worlds stand beside their worlds."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import Field

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import ExtractingConfig, Finding, Request, Verifier, verdict
from groupwise.verifiers.extraction import Extracted, after_thinking, clipped, extract

MAX_LENGTH = 10_000  # most characters of an answer that are read


class UnreadableError(Exception):
    """The answer is not in the required form; the message says what it is instead."""


class ExactVerifier(Verifier):
    """Reads the answer and judges it at once. Subclasses implement `find`."""

    Config = ExtractingConfig
    one_right = True
    by_text_alone = True
    config: ExtractingConfig

    @abstractmethod
    def find(self, problem: Problem, answer: str) -> Finding:
        """Judge an answer; raise UnreadableError where it is not in the required form."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [self._judge(request.problem, request.readable(self.config.extraction)) for request in requests]

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        region, mode, lines = after_thinking(text), self.config.extraction, list[str]()
        if region is not None:
            lines.append(f"after the reasoning comes {clipped(region)}")
            answer = extract(text, mode).answer
            lines += [] if answer is None else [f"the answer ({mode}) is {clipped(answer)}"]
        return [*lines, verdict.evidence]

    def extract(self, text: str) -> Extracted:
        return extract(text, self.config.extraction)

    def _judge(self, problem: Problem, text: str) -> Verdict:
        answer, reason, tags_right = self.extract(text)
        try:
            if answer is None:
                raise UnreadableError(reason)
            if len(answer) > MAX_LENGTH:
                raise UnreadableError(f"{len(answer)} characters, at most {MAX_LENGTH} are read")
            finding = self.find(problem, answer)
        except UnreadableError as error:
            finding = Finding(Outcome.UNPARSABLE, str(error))
        except Exception as error:  # a fault of ours or of the problem's data is never a wrong answer
            finding = Finding(Outcome.CRASHED, f"problem {problem.id}: {type(error).__name__}: {error}"[:400])
        return verdict(finding, self.config, tags_right=tags_right)


class PartialConfig(ExtractingConfig):
    """Settings of verifiers that measure by how much an answer is right."""

    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward part `partial`: this times the mean of the measures. Of `json` these are `parses`, `valid` (it fits the
    schema; left out where there is none) and `values` (the share that is right), of `instructions` it is `constraints`,
    the share that is met. 0: no such part."""


class PartlyRight(ExactVerifier):
    """Pays for its measures, each 0 to 1."""

    Config = PartialConfig
    config: PartialConfig

    def measures(self, problem: Problem, reached: Mapping[str, float]) -> Mapping[str, float]:
        """Return all measures of an answer that reached some."""
        return reached

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        verdicts, credit = super().verify_many(requests), self.config.partial_credit
        for index, (request, result) in enumerate(zip(requests, verdicts, strict=True)):
            if result.outcome.judged:
                measures = self.measures(request.problem, result.measures)
                partial = {"partial": credit * fmean(measures.values() or [0.0])} if credit else {}
                verdicts[index] = replace(result, parts={**result.parts, **partial}, measures=measures)
        return verdicts


def shown(text: str) -> str:
    """A piece of an answer for evidence: quoted, ASCII and short."""
    return ascii(text if len(text) <= 40 else f"{text[:37]}...")
