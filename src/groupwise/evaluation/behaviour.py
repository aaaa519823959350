"""How a completion goes about its problem, read from its text alone.

Every completion has exactly one *course*: it answers at once, works it out, or stays unfinished. Checking itself and
trying another way are *moves* on the way: a completion may make both, one or none of them, whatever its course, so
the three courses add up to 1 and the moves do not.

These are signs in the text, not thoughts: a working in words without equations counts as answering at once, and a
"wait" that checks nothing counts as checking.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from groupwise.types import Outcome


class Behaviour(StrEnum):
    """What is counted."""

    AT_ONCE = "answers at once"
    WORKS_OUT = "works it out"
    UNFINISHED = "unfinished"
    CHECKS = "checks itself"
    ANOTHER_WAY = "tries another way"


COURSES = (Behaviour.AT_ONCE, Behaviour.WORKS_OUT, Behaviour.UNFINISHED)
"""Exactly one of these holds for a completion."""

Patterns = Mapping[Behaviour, Mapping[str, Sequence[str]]]

PATTERNS: Patterns = {
    Behaviour.CHECKS: {
        "en": (
            r"\bwait\b",
            r"\b(?:double|re)[- ]?check",
            r"\b(?:let me|let's|to) (?:check|verify)\b",
            r"\bcheck(?:ing)?:",
        ),
        "zh": ("等一下", "等等", "检查", "验证", "验算"),
    },
    Behaviour.ANOTHER_WAY: {
        "en": (
            r"\banother (?:way|approach|method)\b",
            r"\balternatively\b",
            r"\b(?:a )?different(?:ly| way| approach)\b",
        ),
        "zh": ("另一种", "换一种", "换个方法"),
    },
}
"""Phrases of each move by language, as regular expressions without regard to case. All languages are looked for in
every completion, because a model trained by reward mixes them."""

MIN_EQUATIONS = 2
"""From so many equations on a completion works its problem out; a single one only states the answer."""

_EQUATION = re.compile(r"(?<![<>=!:])=(?![=>])")


def behaviours(text: str, outcome: str, prompt: str = "", patterns: Patterns = PATTERNS) -> frozenset[Behaviour]:
    """Course and moves of one completion; the prompt may already have opened `<think>`.

    >>> sorted(behaviours("<think>7*8=56. 56+1=57. Wait, 8*7=56.</think>57", "correct"))
    [<Behaviour.CHECKS: 'checks itself'>, <Behaviour.WORKS_OUT: 'works it out'>]
    """
    thought, closed, _ = text.rpartition("</think>")
    moves = {move for move, languages in patterns.items() if _any(languages, text)}
    is_open = not closed and "<think>" in prompt.rpartition("</think>")[2] + text
    if is_open or outcome == Outcome.UNPARSABLE:
        return frozenset({Behaviour.UNFINISHED, *moves})
    # without tags there is no telling where the reasoning ends: all of the text counts
    count = len(_EQUATION.findall(thought.rpartition("<think>")[2] if closed else text))
    return frozenset({Behaviour.WORKS_OUT if count >= MIN_EQUATIONS else Behaviour.AT_ONCE, *moves})


def row_behaviours(row: Mapping[str, Any], patterns: Patterns = PATTERNS) -> frozenset[Behaviour]:
    """`behaviours` of a row of the rollouts."""
    return behaviours(row["text"], row["outcome"], row["prompt"], patterns)


def behaviour_shares(rows: Iterable[Mapping[str, Any]], patterns: Patterns = PATTERNS) -> dict[Behaviour, float]:
    """Share of completions that show each behaviour; empty without completions."""
    found = [row_behaviours(row, patterns) for row in rows]
    return {one: sum(one in each for each in found) / len(found) for one in Behaviour} if found else {}


def _any(languages: Mapping[str, Sequence[str]], text: str) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for phrases in languages.values() for pattern in phrases)
