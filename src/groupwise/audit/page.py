"""The page of an audit: one HTML file that needs nothing else; what comes from a completion is escaped by `text`."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from groupwise import __version__
from groupwise.algorithms.statistics import Estimate
from groupwise.audit.judge import Result
from groupwise.audit.summary import Summary, Tally, outcomes
from groupwise.verifiers.extraction import clipped

MAX_MISSES = 50
"""Misses that the page shows; the JSON file beside it has all."""


def page(
    title: str, summary: Summary, explanations: Sequence[Sequence[str]], settings: Mapping[str, str], css: str
) -> str:
    """The whole page; one explanation per miss, in their order."""
    body = "\n".join(
        [
            f"<header><h1>{text(title)}</h1><p>{text(verdict_line(summary))}</p></header>",
            _tiles(summary),
            _table(summary),
            _misses(summary, explanations),
            _facts(summary),
            _settings(settings),
            f"<footer>Written by groupwise {text(__version__)}. Intervals are 95 % Wilson intervals.</footer>",
        ]
    )
    return document(title, body, css)


def document(title: str, body: str, css: str) -> str:
    """A page around its body."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)} – groupwise</title>\n<style>\n{css}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as harmless text of the page."""
    return escape(str(value))


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


def _tiles(summary: Summary) -> str:
    total, latency = summary.total, summary.latency_ms
    tiles = [
        ("decided cases right", f"{total.right} of {total.decided}", share(total.share_right)),
        ("false positives", f"{total.false_positives} of {total.to_refuse}", share(total.false_positive_rate)),
        ("false negatives", f"{total.false_negatives} of {total.to_accept}", share(total.false_negative_rate)),
        ("latency, p99", f"{latency.get('p99', math.nan):,.1f} ms", milliseconds(latency)),
    ]
    shown = "".join(
        f'<div class="tile"><h2>{text(name)}</h2><strong>{text(value)}</strong><small>{text(detail)}</small></div>'
        for name, value, detail in tiles
    )
    return f'<section class="tiles">{shown}</section>'


def _table(summary: Summary) -> str:
    head = "<tr><th></th><th>right</th><th>false positives</th><th>false negatives</th></tr>"
    rows = "".join(_row(name, one) for name, one in summary.groups.items())
    return f"<section><h2>By kind</h2><table><thead>{head}</thead><tbody>{rows}</tbody></table></section>"


def _row(name: str, one: Tally) -> str:
    cells = [
        ("right", one.right, one.decided, one.share_right),
        ("false positives", one.false_positives, one.to_refuse, one.false_positive_rate),
        ("false negatives", one.false_negatives, one.to_accept, one.false_negative_rate),
    ]
    shown = "".join(
        f'<td data-name="{title}">{f"{count} of {of}" if of else "–"}<small>{share(rate) if of else ""}</small></td>'
        for title, count, of, rate in cells
    )
    return f"<tr><th>{text(name)}<small>{text(others(one))}</small></th>{shown}</tr>"


def _misses(summary: Summary, explanations: Sequence[Sequence[str]]) -> str:
    if not summary.misses:
        return ""
    pairs = list(zip(summary.misses, explanations, strict=True))[:MAX_MISSES]
    more = (
        f'<p class="note">The first {MAX_MISSES} of {len(summary.misses)}.</p>'
        if len(pairs) < len(summary.misses)
        else ""
    )
    shown = "".join(_miss(result, steps) for result, steps in pairs)
    return f"<section><h2>Misses</h2>{more}{shown}</section>"


def _miss(result: Result, steps: Sequence[str]) -> str:
    case, verdict = result.case, result.verdict
    expected = "correct" if case.expected else "not correct"
    listed = "".join(f"<li>{text(step)}</li>" for step in steps)
    return (
        f"<article><h3>{text(result.miss)}: {text(case.group)}</h3>"
        f'<p class="note">{text(case.name)}; reference answer {text(case.problem.reference)}; must be {expected}.</p>'
        f'<div class="answer"><pre>{text(clipped(case.text, 1000))}</pre>'
        f'<p class="wrong"><b>{text(verdict.outcome)}</b> {text(verdict.evidence)} '
        f"<small>{1000 * result.seconds:,.1f} ms</small></p><ol>{listed}</ol></div></article>"
    )


def _facts(summary: Summary) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes(summary.undecided).items())
    facts = {
        "undecided": (f"{len(summary.undecided)} cases: {counts}" if counts else "none",
                      "Any verdict will do: projects differ on these, and they never decide."),
        "latency": (milliseconds(summary.latency_ms), "Wall-clock time of one verdict, one at a time."),
        "second opinion": (agreement_line(summary) or "none", "A checker that shares no code with the verifier."),
    }  # fmt: skip
    lines = "".join(
        f"<dt>{text(name)}</dt><dd>{text(value)}<small>{text(meaning)}</small></dd>"
        for name, (value, meaning) in facts.items()
    )
    return f"<section><h2>The audit</h2><dl>{lines}</dl></section>"


def _settings(settings: Mapping[str, str]) -> str:
    lines = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in settings.items())
    return f'<details class="settings"><summary>Settings</summary><dl>{lines}</dl></details>'
