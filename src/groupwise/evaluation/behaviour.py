r"""Behaviours of a completion, read from its text alone; and overthinking.

Every completion has exactly one *course*: it answers at once, works it out, or stays unfinished. Everything else (it
checks itself, turns back, loops, ...) is a *move*: a completion may make several or none, whatever its course, so the
three courses add up to 1 and the moves do not. These are signs in the text, not thoughts: work shown in words without
equations counts as answering at once, and a "wait" that checks nothing counts as checking.

Overthinking is the text that a correct completion still writes after it first reached the correct value (Chen et al.
2024, arXiv:2412.21187, whose outcome efficiency is 1 - after / all). There a model splits the text into solutions; here
the value is looked for: a result is right after an equals sign, `\boxed{`, `<answer>` or a word that announces it
("is", "得"), and no calculation follows it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from groupwise.config import parse
from groupwise.runs.records import Records
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome
from groupwise.verifiers.extraction import after_thinking
from groupwise.verifiers.math.numbers import equal, parse_number
from groupwise.verifiers.style import LOOP_TIMES, BehaviourConfig, broken_tag, loop_period, search
from groupwise.verifiers.style.language import scripts_of, units, words, written_words


class Behaviour(StrEnum):
    """A course or a move."""

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
"""Courses: exactly one of these holds for a completion."""

Patterns = Mapping[Behaviour, Mapping[str, Sequence[str]]]
Span = tuple[int, int]

MIN_EQUATIONS = 2

_EQUATION = re.compile(r"(?<![<>=!:])=(?![=>])")


def patterns_of(config: BehaviourConfig) -> Patterns:
    """Return the phrases of each move that phrases reveal."""
    return {Behaviour[name.upper()]: languages for name, languages in config.phrases().items()}


PATTERNS = patterns_of(BehaviourConfig())


def run_patterns(run: Records) -> Patterns:
    """Return the phrases that a run's recipe looks for; by default the embedded ones."""
    return patterns_of(parse(BehaviourConfig, run.config.get("behaviour", {}), source=f"[behaviour] of {run.path}"))


def span_of(behaviour: Behaviour, row: Row, patterns: Patterns = PATTERNS) -> Span | None:
    """Return the characters that show a behaviour; None if it is absent. A course is shown by the whole text."""
    if behaviour in COURSES:
        reasoning, end_tag, _ = row.text.rpartition("</think>")
        course = Behaviour.UNFINISHED
        if after_thinking(row.prefill + row.text) is not None and row.outcome is not Outcome.UNPARSABLE:
            # without tags the end of the reasoning is unknown: all of the text counts
            count = len(_EQUATION.findall(reasoning.rpartition("<think>")[2] if end_tag else row.text))
            course = Behaviour.WORKS_OUT if count >= MIN_EQUATIONS else Behaviour.AT_ONCE
        return (0, len(row.text)) if course is behaviour else None
    if behaviour not in patterns:
        return _SIGNS[behaviour](row)
    matches = (search(pattern, row.text) for phrases in patterns[behaviour].values() for pattern in phrases)
    return next((match.span() for match in matches if match), None)


def is_measured(behaviour: Behaviour, row: Row) -> bool:
    """Return False where it cannot be told: mixed languages need a problem's language whose script is known."""
    return behaviour is not Behaviour.MIXES_LANGUAGES or _scripts(row) is not None


def row_behaviours(row: Row, patterns: Patterns = PATTERNS) -> frozenset[Behaviour]:
    """Return the course and the moves of one completion."""
    return frozenset(
        behaviour
        for behaviour in Behaviour
        if is_measured(behaviour, row) and span_of(behaviour, row, patterns) is not None
    )


def behaviour_shares(
    rows: Iterable[Row], patterns: Patterns = PATTERNS, of: Collection[Behaviour] = tuple(Behaviour)
) -> dict[Behaviour, float]:
    """Return the share of completions that show each behaviour; one that no row measures is left out."""
    completions = list(rows)
    signs = {
        behaviour: [span_of(behaviour, row, patterns) is not None for row in completions if is_measured(behaviour, row)]
        for behaviour in of
    }
    return {behaviour: sum(flags) / len(flags) for behaviour, flags in signs.items() if flags}


_split_words = lru_cache(maxsize=4096)(written_words)


def foreign_words(row: Row) -> tuple[list[str], list[str]] | None:
    """Return a completion's words in the scripts of its problem's language and in others; None if these are unknown."""
    scripts = _scripts(row)
    return None if scripts is None else _split_words(row.text, scripts)


def _scripts(row: Row) -> tuple[str, ...] | None:
    return None if row.language is None else scripts_of(row.language)


def _loop(row: Row) -> Span | None:
    pieces = units(row.text)
    if row.finish_reason is FinishReason.LENGTH:  # the last word may have been cut
        pieces = pieces[:-1]
    if (period := loop_period(pieces)) is None:
        return None
    block = r"\s*".join(map(re.escape, pieces[-LOOP_TIMES * period :]))
    return _span(re.search(block, row.text), row.text)


def _mixture(row: Row) -> Span | None:
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

_ANNOUNCED = re.compile(
    r"(?:[=≈＝:：→]|\\(?:boxed|fbox|approx|text)\s*\{|<answer>|\b(?:is|are|be|gives?|get|equals?|makes?|answer|total)"
    r"|是|为|得|到|等于|共|有|剩)[\s$({*]*\Z",
    re.IGNORECASE,
)
# a dash before a word, or on a new line, is not an arithmetic sign
_GOES_ON = re.compile(r"[ \t]*(?:[-−+*/×÷^·]|\\(?:times|cdot|div))[ \t]*(?:[0-9(\\]|[a-zA-Z](?![a-zA-Z]))")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[-−]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:/[0-9]+)?%?(?![0-9])")
_WINDOW = 40


def first_value(text: str, reference: str) -> int | None:
    """Return the end of the first correct value that is a result, in characters; None if there is none.

    A plain number is compared by value (`4,042` is 4042), anything else letter by letter.

    >>> first_value("4042? 3760+282=4042. Wait,", "4042")
    19
    """
    if number := parse_number(reference):
        spans = [
            match.span()
            for match in _NUMBER.finditer(text)
            if (value := parse_number(match[0].replace("−", "-"))) is not None and equal(number, value)
        ]
    else:  # no letter or digit next to it
        pattern = rf"(?<![A-Za-z0-9]){re.escape(reference)}(?![A-Za-z0-9])"
        spans = [match.span() for match in re.finditer(pattern, text)]
    for start, end in spans:
        if _ANNOUNCED.search(text[max(0, start - _WINDOW) : start]) and not _GOES_ON.match(text, end):
            return end
    return None


def tokens_after_first(row: Row) -> float | None:
    """Return the tokens of a correct completion after its first correct value, by the share of characters, or None."""
    end = first_value(row.text, row.reference) if row.outcome is Outcome.CORRECT else None
    return None if end is None else float(row.length * (len(row.text) - end) / len(row.text))
