"""What an audit found in words, the same in the terminal and on its page."""

import math
from collections.abc import Mapping

from groupwise.algorithms.statistics import Estimate
from groupwise.checks.audit.summary import Summary, Tally


def verdict_line(summary: Summary) -> str:
    """What came out, in one sentence."""
    total, left = summary.total, summary.num_cases - len(summary.results)
    if left:
        return f"Not passed: ended early after too many hangs; {left} of {summary.num_cases} cases were not judged."
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
    """How often a second, independent checker agrees; empty where there is none."""
    agreed, told = summary.agreement
    return f"agrees with {agreed} of {told} verdicts that it can check" if told else ""


def others(one: Tally) -> str:
    """What else happened to a group's cases."""
    found = [f"{count} × {miss}" for miss, count in one.other.items()]
    return ", ".join([*found, *([f"{one.stopped} stopped by the deadline"] if one.stopped else [])])
