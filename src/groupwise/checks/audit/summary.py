"""Counts of an audit: rates of false positives and false negatives with intervals, latency, agreement, misses."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.checks.audit.judge import Miss, Result
from groupwise.types import Outcome

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Tally:
    """Decided cases of one group (or of all)."""

    decided: int
    right: int
    false_positives: int
    to_refuse: int  # decided cases that must not be paid
    false_negatives: int
    to_accept: int  # decided cases that must be paid
    stopped: int  # cases that must not be paid and ran into the verifier's own deadline: not paid, but slow
    other: Mapping[Miss, int]  # hangs, crashes, files written

    @property
    def share_right(self) -> Estimate:
        return _share(self.right, self.decided)

    @property
    def false_positive_rate(self) -> Estimate:
        return _share(self.false_positives, self.to_refuse)

    @property
    def false_negative_rate(self) -> Estimate:
        return _share(self.false_negatives, self.to_accept)


@dataclass(frozen=True, slots=True)
class Summary:
    """An audit, counted."""

    results: tuple[Result, ...]
    num_cases: int  # cases there were; more than results when the audit ended early

    @property
    def passed(self) -> bool:
        return not self.misses and len(self.results) == self.num_cases

    @property
    def decided(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.case.expected is not None)

    @property
    def undecided(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.case.expected is None)

    @property
    def misses(self) -> tuple[Result, ...]:
        order = list(Miss)
        missed = [result for result in self.results if result.miss is not None]
        return tuple(sorted(missed, key=lambda result: order.index(result.miss or order[-1])))

    @property
    def total(self) -> Tally:
        return tally(self.decided)

    @property
    def groups(self) -> dict[str, Tally]:
        names = dict.fromkeys(result.case.group for result in self.decided)
        return {name: tally([result for result in self.decided if result.case.group == name]) for name in names}

    @property
    def latency_ms(self) -> dict[str, float]:
        return percentiles([1000 * result.seconds for result in self.results])

    @property
    def agreement(self) -> tuple[int, int]:
        """Verdicts that agree with the second opinion, of those for which there is one."""
        return len(self._with_opinion) - len(self.disagreements), len(self._with_opinion)

    @property
    def disagreements(self) -> tuple[Result, ...]:
        return tuple(r for r in self._with_opinion if r.second != (r.verdict.outcome is Outcome.CORRECT))

    @property
    def _with_opinion(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.second is not None and result.verdict.outcome.judged)


def tally(results: Sequence[Result]) -> Tally:
    """Count decided results."""
    misses = Counter(result.miss for result in results)
    return Tally(
        decided=len(results), right=misses[None], false_positives=misses[Miss.FALSE_POSITIVE],
        to_refuse=sum(result.case.expected is False for result in results), false_negatives=misses[Miss.FALSE_NEGATIVE],
        to_accept=sum(result.case.expected is True for result in results),
        stopped=sum(result.miss is None and result.verdict.outcome is Outcome.TIMEOUT for result in results),
        other={miss: misses[miss] for miss in (Miss.HANG, Miss.CRASH, Miss.FILE_WRITTEN) if misses[miss]},
    )  # fmt: skip


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Nearest-rank percentiles (the smallest value that at least this share does not exceed) and the maximum."""
    if not values:
        return {}
    ordered = sorted(values)
    ranks = {f"p{100 * q:.0f}": ordered[math.ceil(q * len(ordered)) - 1] for q in QUANTILES}
    return {**ranks, "max": ordered[-1]}


def _share(count: int, of: int) -> Estimate:
    return mean_share([1.0] * count + [0.0] * (of - count))


def outcomes(results: Sequence[Result]) -> dict[str, int]:
    """Count results by outcome."""
    return {str(outcome): count for outcome, count in sorted(Counter(r.verdict.outcome for r in results).items())}


def as_json(summary: Summary, explanations: Sequence[Sequence[str]]) -> dict[str, Any]:
    """All figures as JSON values; intervals are 95 % Wilson intervals. One explanation per miss, in their order."""
    agreed, num_opinions = summary.agreement
    return {
        "passed": summary.passed, "cases": summary.num_cases, "judged": len(summary.results),
        "total": _tally_as_json(summary.total),
        "groups": {name: _tally_as_json(group) for name, group in summary.groups.items()},
        "undecided": {"cases": len(summary.undecided), "outcomes": outcomes(summary.undecided)},
        "latency_ms": summary.latency_ms,
        "second_opinion": {
            "agree": agreed, "of": num_opinions, "against": [_as_json(r, ()) for r in summary.disagreements],
        },
        "misses": [_as_json(miss, lines) for miss, lines in zip(summary.misses, explanations, strict=True)],
    }  # fmt: skip


def _tally_as_json(counts: Tally) -> dict[str, Any]:
    return {
        "decided": counts.decided, "right": counts.right, "share_right": _estimate(counts.share_right),
        "false_positives": {
            "count": counts.false_positives, "of": counts.to_refuse, **_estimate(counts.false_positive_rate),
        },
        "false_negatives": {
            "count": counts.false_negatives, "of": counts.to_accept, **_estimate(counts.false_negative_rate),
        },
        "stopped_by_deadline": counts.stopped, "hangs": counts.other.get(Miss.HANG, 0),
        "crashes": counts.other.get(Miss.CRASH, 0), "files_written": counts.other.get(Miss.FILE_WRITTEN, 0),
    }  # fmt: skip


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in estimate._asdict().items()}


def _as_json(result: Result, explanation: Sequence[str]) -> dict[str, Any]:
    case = result.case
    return {
        "case": case.name, "group": case.group, "miss": result.miss, "reference": case.problem.reference,
        "text": case.text[:2000], "length": len(case.text), "expected": case.expected,
        "outcome": result.verdict.outcome, "evidence": result.verdict.evidence, "second_opinion": result.second,
        "seconds": result.seconds, "explanation": list(explanation), "note": case.note,
    }  # fmt: skip


def verdict_line(summary: Summary) -> str:
    """Return the verdict in one sentence."""
    total, skipped = summary.total, summary.num_cases - len(summary.results)
    if skipped:
        return f"Not passed: ended early after too many hangs; {skipped} of {summary.num_cases} cases were not judged."
    if summary.passed:
        return f"Passed: all {total.decided} decided cases have their expected verdict."
    return f"Not passed: {len(summary.misses)} of {total.decided} decided cases have not their expected verdict."


def share(estimate: Estimate) -> str:
    """A rate with its interval, in per cent."""
    if math.isnan(estimate.value):
        return "–"
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def milliseconds(latency: Mapping[str, float]) -> str:
    """Percentiles of the latency on one line."""
    return ", ".join(f"{name} {value:,.2f} ms" for name, value in latency.items()) or "nothing was judged"


def agreement_line(summary: Summary) -> str:
    """Return how often a second, independent checker agrees; empty where there is none."""
    agreed, told = summary.agreement
    return f"agrees with {agreed} of {told} verdicts that it can check" if told else ""


def others(counts: Tally) -> str:
    """Return other events among a group's cases, in words."""
    events = [f"{count} × {miss}" for miss, count in counts.other.items()]
    return ", ".join([*events, *([f"{counts.stopped} stopped by the deadline"] if counts.stopped else [])])
