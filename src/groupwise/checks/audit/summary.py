"""Counts of an audit: rates of false positives and false negatives with intervals, latency, agreement, misses."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import mean_share
from groupwise.checks.audit.judge import Miss, Result
from groupwise.types import Outcome

QUANTILES = (0.5, 0.95, 0.99)

SELDOM = {"hangs": Miss.HANG, "crashes": Miss.CRASH, "files_written": Miss.FILE_WRITTEN}


class Summary(NamedTuple):
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
    def groups(self) -> dict[str, dict[str, Any]]:
        names = dict.fromkeys(result.case.group for result in self.decided)
        return {name: tally([result for result in self.decided if result.case.group == name]) for name in names}

    @property
    def latency_ms(self) -> dict[str, float]:
        return percentiles([1000 * result.seconds for result in self.results])

    @property
    def agreement(self) -> tuple[int, int]:
        """Verdicts that agree with the second opinion, of those for which there is one."""
        told = sum(result.second is not None and result.verdict.outcome.judged for result in self.results)
        return told - len(self.disagreements), told

    @property
    def disagreements(self) -> tuple[Result, ...]:
        told = (r for r in self.results if r.second is not None and r.verdict.outcome.judged)
        return tuple(r for r in told if r.second != (r.verdict.outcome is Outcome.CORRECT))


def tally(results: Sequence[Result]) -> dict[str, Any]:
    """Figures of decided cases of one group (or of all); of the wrong verdicts with their rates."""
    misses = Counter(result.miss for result in results)
    of = Counter(result.case.expected for result in results)
    return {
        "decided": len(results), "right": misses[None], "share_right": _interval(misses[None], len(results)),
        "false_positives": rate(misses[Miss.FALSE_POSITIVE], of[False]),
        "false_negatives": rate(misses[Miss.FALSE_NEGATIVE], of[True]),
        # cases that must not be paid and ran into the verifier's own deadline: not paid, but slow
        "stopped_by_deadline": sum(result.miss is None and result.verdict.outcome is Outcome.TIMEOUT
                                   for result in results),
        **{name: misses[miss] for name, miss in SELDOM.items()},
    }  # fmt: skip


def rate(count: int, of: int) -> dict[str, Any]:
    """A share with its 95 % Wilson interval."""
    return {"count": count, "of": of, **_interval(count, of)}


def _interval(count: int, of: int) -> dict[str, float | None]:
    estimate = mean_share([1.0] * count + [0.0] * (of - count))
    return {name: None if math.isnan(value) else value for name, value in estimate._asdict().items()}


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Nearest-rank percentiles (the smallest value that at least this share does not exceed) and the maximum."""
    if not values:
        return {}
    ordered = sorted(values)
    ranks = {f"p{100 * q:.0f}": ordered[math.ceil(q * len(ordered)) - 1] for q in QUANTILES}
    return {**ranks, "max": ordered[-1]}


def outcomes(results: Sequence[Result]) -> dict[str, int]:
    """Count results by outcome."""
    return {str(outcome): count for outcome, count in sorted(Counter(r.verdict.outcome for r in results).items())}


def as_json(summary: Summary, explanations: Sequence[Sequence[str]]) -> dict[str, Any]:
    """All figures as JSON values. One explanation per miss, in their order."""
    agreed, num_opinions = summary.agreement
    return {
        "passed": summary.passed, "cases": summary.num_cases, "judged": len(summary.results),
        "total": tally(summary.decided), "groups": summary.groups,
        "undecided": {"cases": len(summary.undecided), "outcomes": outcomes(summary.undecided)},
        "latency_ms": summary.latency_ms,
        "second_opinion": {
            "agree": agreed, "of": num_opinions, "against": [_as_json(r, ()) for r in summary.disagreements],
        },
        "misses": [_as_json(miss, lines) for miss, lines in zip(summary.misses, explanations, strict=True)],
    }  # fmt: skip


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
    decided, skipped = len(summary.decided), summary.num_cases - len(summary.results)
    if skipped:
        return f"Not passed: ended early after too many hangs; {skipped} of {summary.num_cases} cases were not judged."
    if summary.passed:
        return f"Passed: all {decided} decided cases have their expected verdict."
    return f"Not passed: {len(summary.misses)} of {decided} decided cases have not their expected verdict."


def share(rate: Mapping[str, Any]) -> str:
    """A rate with its interval, in per cent."""
    if rate["value"] is None:
        return "–"
    return f"{100 * rate['value']:.1f} % [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"


def milliseconds(latency: Mapping[str, float]) -> str:
    """Percentiles of the latency on one line."""
    return ", ".join(f"{name} {value:,.2f} ms" for name, value in latency.items()) or "nothing was judged"


def agreement_line(summary: Summary) -> str:
    """Return how often a second, independent checker agrees; empty where there is none."""
    agreed, told = summary.agreement
    return f"agrees with {agreed} of {told} verdicts that it can check" if told else ""


def others(counts: Mapping[str, Any]) -> str:
    """Return other events among a group's cases, in words."""
    events = [f"{counts[name]} × {miss}" for name, miss in SELDOM.items() if counts[name]]
    stopped = counts["stopped_by_deadline"]
    return ", ".join([*events, *([f"{stopped} stopped by the deadline"] if stopped else [])])
