"""Mathematical answers: an exact fast path in this process, SymPy and Math-Verify in killable workers for the rest.

Order of decision: no answer or unreadable -> structure and plain expressions, here -> guards -> cache -> worker. Only
the last one can time out or crash.
"""

import warnings
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from pydantic import Field

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Asks, ExtractingConfig, Finding, Request, Verifier, WorkersConfig, verdict
from groupwise.verifiers.extraction import Extracted, extract
from groupwise.verifiers.math.compare import equivalent, is_plain, same_plainly
from groupwise.verifiers.math.guards import MAX_SIZE, refusal, restates, size, too_long, unreadable
from groupwise.verifiers.math.normalise import compact, normalise, read_reference
from groupwise.verifiers.math.numbers import DECIMALS, parse_number, split_unit
from groupwise.verifiers.workers import WorkerPool

MAX_CACHED = 100_000


class Pair(NamedTuple):
    """Two normalised texts."""

    reference: str
    answer: str


class Step(NamedTuple):
    """Judgement of an answer in this process."""

    path: str  # the part that decided, in words; without a finding, the part that still has to
    pair: Pair
    finding: Finding | None


class ComparingConfig(ExtractingConfig):
    """Settings of verifiers that compare an answer with the reference answer."""

    decimals: int = Field(default=DECIMALS, ge=1)
    r"""Places from which on a decimal equals a number that has no finite decimal form, if it is that number correctly
    rounded or cut: with 6, `0.333333` equals 1/3 and `3.14` does not answer `\pi`. Other numbers must be exact at any
    setting: `0.1250001` never equals 1/8. A large value demands exact answers throughout. A reference that is a rounded
    decimal itself (`30.52`) is answered by the exact number that it rounds, at any setting."""


class ComparingVerifier(Verifier):
    """Compares answers with reference answers, plainly where that is enough. Subclasses compare the rest."""

    Config = ComparingConfig
    mathematical = True
    one_right = True
    by_text_alone = True
    config: ComparingConfig

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        answers = [extract(request.readable(self.config.extraction), self.config.extraction) for request in requests]
        decimals = self.config.decimals
        steps = [
            decide(request.problem, extraction, decimals) for request, extraction in zip(requests, answers, strict=True)
        ]
        slow_findings = self.compare(list({step.pair for step in steps if step.finding is None}))
        return [
            verdict(step.finding or slow_findings[step.pair], self.config, tags_right=extraction.tags_right)
            for step, extraction in zip(steps, answers, strict=True)
        ]

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        extraction = extract(text, self.config.extraction)
        step = decide(problem, extraction, self.config.decimals)
        finding = step.finding or self.compare([step.pair])[step.pair]
        reading = f"read ({self.config.extraction}): {extraction.answer!r}"
        pair_line = f"normalised: reference {step.pair.reference!r}, answer {step.pair.answer!r}"
        lines = [reading, pair_line, f"decided by: {step.path}", f"{finding.outcome}: {finding.evidence}"]
        return lines if extraction.answer is not None else lines[2:]

    @abstractmethod
    def compare(self, pairs: Sequence[Pair]) -> dict[Pair, Finding]:
        """Return findings about the pairs that plain comparison could not decide."""


class MathConfig(ComparingConfig, WorkersConfig):
    """Settings of the mathematical verifier; its workers decide what the exact fast path cannot."""


class MathVerifier(ComparingVerifier):
    """Compares a number, expression, set, interval, relation, matrix or word with the reference answer."""

    Config = MathConfig
    config: MathConfig

    def __init__(self, config: MathConfig | None = None, pool: WorkerPool | None = None) -> None:
        super().__init__(config)
        self._pool = pool or WorkerPool("groupwise.verifiers.math.symbolic:judge", self.config.num_workers)
        self._cache: OrderedDict[Pair, Finding] = OrderedDict()

    def compare(self, pairs: Sequence[Pair]) -> dict[Pair, Finding]:
        findings = {pair: self._cache[pair] for pair in pairs if pair in self._cache}
        open_pairs = sorted(set(pairs) - findings.keys())
        requests = [{**pair._asdict(), "decimals": self.config.decimals} for pair in open_pairs]
        replies = self._pool.map(requests, self.config.timeout_s)
        for pair, reply in zip(open_pairs, replies, strict=True):
            outcome = Outcome(reply.status if reply.status != "ok" else reply.value["outcome"])
            evidence = f"{pair.answer[:200]!r}: {reply.evidence}" if reply.status != "ok" else reply.value["evidence"]
            answer = None if outcome is Outcome.UNPARSABLE else compact(pair.answer)
            findings[pair] = Finding(outcome, evidence, answer)
            if outcome.judged:  # a timeout may be the machine's fault, so failures are tried again
                self._cache[pair] = findings[pair]
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return findings

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        if faults := self.unreadable(problems):
            cases = "; ".join(f"{problem.id}: {problem.reference[:80]!r} ({reason})" for problem, reason in faults[:3])
            warnings.warn(
                f"{len(faults)} of {len(problems)} reference answers cannot be read, so that answers to them fail or "
                f"must repeat them literally; `groupwise verify math --data FILE` lists them all: {cases}",
                stacklevel=2,
            )

    def unreadable(self, problems: Sequence[Problem]) -> list[tuple[Problem, str]]:
        """Return the problems whose reference answers cannot be read, with the reason; empty ones are left out."""
        references = [(problem, read_reference(problem.reference, problem.language)) for problem in problems]
        texts = sorted({text for _, text in references if text and not is_plain(text)})
        replies = self._pool.map([{"reference": text} for text in texts], self.config.timeout_s)
        reasons = {
            text: reply.evidence if reply.status != "ok" else reply.value["evidence"]
            for text, reply in zip(texts, replies, strict=True)
            if reply.status != "ok" or reply.value["outcome"] != Outcome.CORRECT
        }
        return [(problem, reasons[text]) for problem, text in references if text in reasons]

    def start(self) -> None:
        self._pool.start()

    def close(self) -> None:
        self._pool.close()


class NumberVerifier(ComparingVerifier):
    """Compares plain numbers (integers, decimals, fractions, with units) exactly; everything else is wrong.

    For tasks whose question is a calculation: there `62 × 82` equals the reference answer but is not an answer.
    """

    def compare(self, pairs: Sequence[Pair]) -> dict[Pair, Finding]:
        return {
            pair: Finding(Outcome.WRONG, f"{pair.answer[:200]!r} is not a plain number", compact(pair.answer))
            for pair in pairs
        }


def decide(problem: Problem, extraction: Extracted, decimals: int = DECIMALS) -> Step:
    """The finding, or the pair of normalised texts that a worker must compare."""
    reference = read_reference(problem.reference, problem.language)
    if extraction.answer is None:
        return Step("extraction", Pair(reference, ""), Finding(Outcome.UNPARSABLE, extraction.reason))
    if reason := refusal(extraction.answer):
        return Step("guards on the text", Pair(reference, ""), Finding(Outcome.UNPARSABLE, reason))
    pair = Pair(reference, normalise(extraction.answer, problem.language))
    if not pair.reference:
        crash = Finding(Outcome.CRASHED, "the reference answer is empty or no number, so nothing can be judged")
        return Step("the reference", pair, crash)
    if not pair.answer:
        return Step("extraction", pair, Finding(Outcome.UNPARSABLE, "the answer is empty or no number"))
    is_same = equivalent(pair.reference, pair.answer, partial(same_plainly, decimals=decimals), decimals=decimals)
    if is_same is not None:
        number = parse_number(split_unit(pair.answer)[0])
        canonical = number.canonical() if number else compact(pair.answer)
        evidence = f"{pair.answer[:200]!r} {'equals' if is_same else 'differs from'} {pair.reference[:200]!r}"
        finding = Finding(Outcome.CORRECT if is_same else Outcome.WRONG, evidence, canonical)
        return Step("plain comparison", pair, finding)
    # keep from the parser what must not reach it or would be read wrongly by it
    if reason := too_long(*pair) or unreadable(pair.answer):
        return Step("guards before parsing", pair, Finding(Outcome.UNPARSABLE, reason))
    if size(pair.reference) > MAX_SIZE:
        crash = Finding(Outcome.CRASHED, f"the reference answer has more than {MAX_SIZE:g} digits when computed")
        return Step("the reference", pair, crash)
    if restates(*pair):
        return _wrong(pair, "it leaves an integral, sum, limit, determinant or the like to compute")
    if r"\ldots" in pair.reference + pair.answer:
        return _wrong(pair, "an answer with an ellipsis must equal the reference literally")
    return Step("symbolic comparison", pair, None)


def _wrong(pair: Pair, reason: str) -> Step:
    finding = Finding(Outcome.WRONG, f"{pair.answer[:200]!r}: {reason}", compact(pair.answer))
    return Step("guards before parsing", pair, finding)
