"""Mathematical answers: an exact fast path in this process, Math-Verify in killable workers for the rest.

Order of decision: no answer or unreadable -> equal normalised text -> answers in words -> plain numbers (exact) ->
cache -> worker. Only the last one can time out or crash.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.extraction import Extracted, extract
from groupwise.verifiers.normalise import (
    ambiguity,
    as_words,
    compact,
    is_words,
    normalise,
    read_reference,
    refusal,
    split_unit,
)
from groupwise.verifiers.numbers import equal, parse_number
from groupwise.verifiers.workers import Reply, WorkerPool

MAX_CACHED = 100_000
_Pair = tuple[str, str]


class MathVerifier(Verifier):
    """Compares a number, expression, set, interval, relation, matrix or word with the reference answer."""

    def __init__(self, config: VerifierConfig | None = None, pool: WorkerPool | None = None) -> None:
        super().__init__(config)
        self._pool = pool or WorkerPool("groupwise.verifiers.symbolic:judge", self.config.num_workers)
        self._cache: OrderedDict[_Pair, Finding] = OrderedDict()

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request; equal pairs of reference and answer are compared once."""
        read = [(one.problem.reference, extract(one.text, self.config.extraction)) for one in requests]
        findings = [_decide(reference, extracted) for reference, extracted in read]
        slow = self._compare(list({found for found in findings if not isinstance(found, Finding)}))
        return [
            verdict(found if isinstance(found, Finding) else slow[found], self.config, tags_right=extracted.tags_right)
            for found, (_, extracted) in zip(findings, read, strict=True)
        ]

    def _compare(self, pairs: Sequence[_Pair]) -> dict[_Pair, Finding]:
        known = {pair: self._cache[pair] for pair in pairs if pair in self._cache}
        unknown = sorted(set(pairs) - known.keys())
        requests = [{"reference": reference, "answer": answer} for reference, answer in unknown]
        replies = self._pool.map(requests, self.config.timeout_s)
        fresh = {pair: _finding(pair[1], reply) for pair, reply in zip(unknown, replies, strict=True)}
        self._remember(fresh)
        return known | fresh

    def _remember(self, fresh: dict[_Pair, Finding]) -> None:
        # a timeout may be the machine's fault, so failures are tried again
        self._cache.update({pair: finding for pair, finding in fresh.items() if finding.outcome.judged})
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)

    def close(self) -> None:
        """Kill the worker processes."""
        self._pool.close()


def _decide(reference: str, extracted: Extracted) -> Finding | _Pair:
    """A finding, or the pair of normalised texts that a worker must compare."""
    if extracted.answer is None:
        return Finding(Outcome.UNPARSABLE, extracted.reason)
    reason = refusal(extracted.answer)
    if reason:
        return Finding(Outcome.UNPARSABLE, reason)
    gold, answer = _reference(reference), normalise(extracted.answer)
    return _decide_plainly(gold, answer) if gold and answer else _empty(gold)


@lru_cache(maxsize=65536)
def _reference(reference: str) -> str:
    return read_reference(reference)


def _empty(gold: str) -> Finding:
    if gold:
        return Finding(Outcome.UNPARSABLE, "the answer is empty")
    return Finding(Outcome.CRASHED, "the reference answer is empty, so nothing can be judged")


def _decide_plainly(gold: str, answer: str) -> Finding | _Pair:
    if compact(gold) == compact(answer):
        return _judged(True, gold, answer)
    if is_words(gold) or _is_choice(gold, answer):
        return _judged(as_words(gold) == as_words(answer.strip("()")), gold, answer)
    (gold_value, gold_unit), (value, unit) = split_unit(gold), split_unit(answer)
    if gold_unit and unit and gold_unit != unit:
        return replace(_judged(False, gold, answer), evidence=f"unit {unit!r} differs from {gold_unit!r}")
    return _decide_numbers(gold_value, value) or _decide_readable(gold_value, value)


def _is_choice(gold: str, answer: str) -> bool:
    """True for a lettered choice: `C` against `(C)`."""
    letter = gold.strip("()")
    return len(letter) == 1 and letter in "ABCDEFGHIJ" and answer.strip("()") == letter


def _decide_numbers(gold: str, answer: str) -> Finding | None:
    left, right = parse_number(gold), parse_number(answer)
    if left is None or right is None:
        return None
    return _judged(equal(left, right), gold, right.canonical())


def _decide_readable(gold: str, answer: str) -> Finding | _Pair:
    reason = ambiguity(answer)
    if reason:
        return Finding(Outcome.UNPARSABLE, reason)
    if r"\dots" in gold + answer or r"\ldots" in gold + answer or "..." in gold + answer or "…" in gold + answer:
        return Finding(Outcome.WRONG, "an answer with an ellipsis must equal the reference literally", compact(answer))
    return gold, answer


def _judged(same: bool, gold: str, answer: str) -> Finding:
    number = parse_number(answer)
    canonical = number.canonical() if number else compact(answer)
    evidence = f"{answer[:200]!r} {'equals' if same else 'differs from'} {gold[:200]!r}"
    return Finding(Outcome.CORRECT if same else Outcome.WRONG, evidence, canonical)


def _finding(answer: str, reply: Reply) -> Finding:
    if reply.status != "ok":
        return Finding(Outcome(reply.status), f"{answer[:200]!r}: {reply.evidence}", compact(answer))
    outcome = Outcome(reply.value["outcome"])
    return Finding(outcome, reply.value["evidence"], None if outcome is Outcome.UNPARSABLE else compact(answer))
