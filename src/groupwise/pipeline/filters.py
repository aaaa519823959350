"""Chooses the completions that are good enough to learn from, and names the fault of every other."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.config import Section
from groupwise.evaluation.behaviour import Behaviour, row_behaviours
from groupwise.evaluation.metrics import has_format
from groupwise.randomness import key
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome


class Filters(Section):
    """Conditions for keeping a completion (DeepSeek-R1, arXiv:2501.12948, section 2.3: correct and readable)."""

    correct: bool = True
    """The verifier says that its answer is correct."""
    tags: bool = True
    """Its tags are closed and in order, and it ended by itself."""
    one_language: bool = True
    """No word is in another script than that of the problem's language."""
    loops: bool = False
    """Allow it to end in a loop."""
    min_tokens: int = Field(0, ge=0)
    """Fewest tokens, for data that shall show long reasoning."""
    max_tokens: int = Field(0, ge=0)
    """Most tokens; 0: no limit."""
    max_paragraph: int = Field(0, ge=0)
    """No paragraph has more characters; 0: no limit."""
    shows: tuple[Behaviour, ...] = ()
    """It shows at least one of these behaviours, for example `checks itself`."""


class Kept(NamedTuple):
    """Rows that passed, and how many did not, by reason."""

    rows: list[Row]
    dropped: dict[str, int]


def reason(row: Row, filters: Filters) -> str | None:
    """The first fault of a completion; None if it is good."""
    behaviours = row_behaviours(row)
    paragraphs = row.text.split("\n\n")
    faults = {
        "verifier failed": row.outcome.failed,
        "no verdict": row.outcome is Outcome.NONE,
        "not correct": filters.correct and row.outcome is not Outcome.CORRECT,
        "tags": filters.tags and not has_format(row),
        "cut off": filters.tags and row.finish_reason is FinishReason.LENGTH,
        "mixed language": filters.one_language and Behaviour.MIXES_LANGUAGES in behaviours,
        "loop": not filters.loops and Behaviour.LOOPS in behaviours,
        "too short": row.num_read < filters.min_tokens,
        "too long": bool(filters.max_tokens) and row.num_read > filters.max_tokens,
        "long paragraph": bool(filters.max_paragraph) and max(map(len, paragraphs)) > filters.max_paragraph,
        "no such behaviour": bool(filters.shows) and not behaviours.intersection(filters.shows),
    }
    return next((name for name, applies in faults.items() if applies), None)


def keep(rows: Iterable[Row], filters: Filters, per_problem: int, before: Iterable[Row] = ()) -> Kept:
    """Rows that pass, each text once for its problem, at most `per_problem` (0: any number) of a problem.

    `before`: rows of other sources that were kept; their texts are not taken again.
    """
    passed, dropped, of_problem = list[Row](), Counter[str](), Counter[str]()
    seen = {(row.problem, row.text) for row in before}
    for row in rows:
        problem, text = row.problem, row.text
        fault = reason(row, filters)
        fault = fault or ("duplicate" if (problem, text) in seen else None)
        fault = fault or ("enough of its problem" if per_problem and of_problem[problem] >= per_problem else None)
        if fault:
            dropped[fault] += 1
        else:
            seen.add((problem, text))
            of_problem[problem] += 1
            passed.append(row)
    return Kept(passed, dict(dropped))


def balanced(rows: Sequence[Row], size: int, seed: int) -> list[Row]:
    """At most `size` rows, as evenly over the difficulties as they allow: one of each in turn, in a drawn order."""
    queues: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: key(seed, "balance", row.problem, row.sample)):
        queues.setdefault(row.difficulty, []).append(row)
    chosen: list[Row] = []
    while len(chosen) < size and any(queues.values()):
        for label in sorted(queues):
            if queues[label] and len(chosen) < size:
                chosen.append(queues[label].pop())
    return chosen


def counts(rows: Iterable[Mapping[str, Any]], field: str) -> Mapping[str, int]:
    """The number of rows with each value of a field; rows of a user's file may lack the field."""
    return dict(sorted(Counter(str(row.get(field, "unknown")) for row in rows).items()))
