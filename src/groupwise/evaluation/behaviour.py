"""How a completion goes about its problem, read from its text alone.

Every completion has exactly one *course*: it answers at once, works it out, or stays unfinished. Everything else (it
checks itself, turns back, loops, ...) is a *move* on the way: a completion may make several or none, whatever its
course, so the three courses add up to 1 and the moves do not.

These are signs in the text, not thoughts: work shown in words without equations counts as answering at once, and a
"wait" that checks nothing counts as checking.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from groupwise.config import parse
from groupwise.evaluation.run_data import RunData
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome
from groupwise.verifiers.style.form import LOOP_TIMES, broken_tag, loop_period
from groupwise.verifiers.style.language import scripts_of, units, words, written_words
from groupwise.verifiers.style.phrases import BehaviourConfig, search


class Behaviour(StrEnum):
    """What is counted."""

    AT_ONCE = "answers at once"
    WORKS_OUT = "works it out"
    UNFINISHED = "unfinished"
    CHECKS = "checks itself"
    BACKTRACKS = "backtracks"
    ANOTHER_WAY = "tries another way"
    LOOPS = "loops"
    MIXES_LANGUAGES = "mixes languages"
    OPEN_TAGS = "leaves tags open"


COURSES = (Behaviour.AT_ONCE, Behaviour.WORKS_OUT, Behaviour.UNFINISHED)
"""Exactly one of these holds for a completion."""

Patterns = Mapping[Behaviour, Mapping[str, Sequence[str]]]
Span = tuple[int, int]
"""Where a behaviour shows: first character, and the one after the last."""

MIN_EQUATIONS = 2
"""With at least this many equations a completion works its problem out; a single one only states the answer."""

_EQUATION = re.compile(r"(?<![<>=!:])=(?![=>])")


def patterns_of(config: BehaviourConfig) -> Patterns:
    """The phrases of each move that phrases reveal."""
    return {Behaviour[name.upper()]: languages for name, languages in config.phrases().items()}


PATTERNS = patterns_of(BehaviourConfig())
"""The embedded phrases."""


def run_patterns(run: RunData) -> Patterns:
    """The phrases that a run's recipe looks for; the embedded ones where it says nothing."""
    return patterns_of(parse(BehaviourConfig, run.config.get("behaviour", {}), source=f"[behaviour] of {run.path}"))


def span_of(behaviour: Behaviour, row: Row, patterns: Patterns = PATTERNS) -> Span | None:
    """Where a completion shows a behaviour; None where it does not. A course is shown by the whole text."""
    if behaviour in COURSES:
        return (0, len(row.text)) if _course(row) is behaviour else None
    return _phrase(patterns[behaviour], row.text) if behaviour in patterns else _SIGNS[behaviour](row)


def is_measured(behaviour: Behaviour, row: Row) -> bool:
    """Whether the row says enough: mixed languages need the problem's language, and one whose script is known."""
    return behaviour is not Behaviour.MIXES_LANGUAGES or _scripts(row) is not None


def row_behaviours(row: Row, patterns: Patterns = PATTERNS) -> frozenset[Behaviour]:
    """Course and moves of one completion."""
    return frozenset(
        behaviour
        for behaviour in Behaviour
        if is_measured(behaviour, row) and span_of(behaviour, row, patterns) is not None
    )


def behaviour_shares(
    rows: Iterable[Row], patterns: Patterns = PATTERNS, of: Collection[Behaviour] = tuple(Behaviour)
) -> dict[Behaviour, float]:
    """Share of completions that show each behaviour; one that no row measures is left out."""
    completions = list(rows)
    signs = {
        behaviour: [span_of(behaviour, row, patterns) is not None for row in completions if is_measured(behaviour, row)]
        for behaviour in of
    }
    return {behaviour: sum(flags) / len(flags) for behaviour, flags in signs.items() if flags}


def foreign_words(row: Row) -> tuple[list[str], list[str]] | None:
    """A completion's words in the scripts of its problem's language and in others; None where that is not known."""
    scripts = _scripts(row)
    return None if scripts is None else _split_words(row.text, scripts)


def _scripts(row: Row) -> tuple[str, ...] | None:
    language = row.language
    return None if language is None else scripts_of(language)


@lru_cache(maxsize=4096)
def _split_words(text: str, scripts: tuple[str, ...]) -> tuple[list[str], list[str]]:
    return written_words(text, scripts)


def _course(row: Row) -> Behaviour:
    text = row.text
    reasoning, end_tag, _ = text.rpartition("</think>")
    is_open = not end_tag and "<think>" in row.prefill + text
    if is_open or row.outcome is Outcome.UNPARSABLE:
        return Behaviour.UNFINISHED
    # without tags there is no telling where the reasoning ends: all of the text counts
    count = len(_EQUATION.findall(reasoning.rpartition("<think>")[2] if end_tag else text))
    return Behaviour.WORKS_OUT if count >= MIN_EQUATIONS else Behaviour.AT_ONCE


def _phrase(languages: Mapping[str, Sequence[str]], text: str) -> Span | None:
    matches = (search(pattern, text) for phrases in languages.values() for pattern in phrases)
    return next((match.span() for match in matches if match), None)


def _loop(row: Row) -> Span | None:
    pieces = units(row.text)
    if row.finish_reason is FinishReason.LENGTH:  # the last word may have been cut
        pieces = pieces[:-1]
    period = loop_period(pieces)
    if period is None:
        return None
    block = r"\s*".join(map(re.escape, pieces[-LOOP_TIMES * period :]))
    return _span(re.search(block, row.text), row.text)


def _mixture(row: Row) -> Span | None:
    """The first word in another script than the problem's language has; words of the question do not count."""
    word_lists = foreign_words(row)
    question_words = set(words(row.question))
    word = next((word for word in word_lists[1] if word not in question_words), None) if word_lists else None
    return None if word is None else _span(re.search(re.escape(word), row.text), row.text)


def _span(match: re.Match[str] | None, text: str) -> Span:
    return match.span() if match else (0, len(text))


def _broken_tag(row: Row) -> Span | None:
    prefill = row.prefill
    span = broken_tag(prefill + row.text)
    # a tag that the prompt opened lies before the completion
    return None if span is None else (max(0, span[0] - len(prefill)), max(0, span[1] - len(prefill)))


_SIGNS: Mapping[Behaviour, Callable[[Row], Span | None]] = MappingProxyType(
    {Behaviour.LOOPS: _loop, Behaviour.MIXES_LANGUAGES: _mixture, Behaviour.OPEN_TAGS: _broken_tag}
)
"""Moves recognised by something other than phrases."""
