"""Two evaluations of the same problems: which were gained and lost, and how their answers changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import Estimate, mean_share, pass_at_k
from groupwise.evaluation.behaviour import COURSES, Behaviour, Patterns, is_measured, span_of
from groupwise.evaluation.metrics import BEHAVIOURS, MEASURES, METRICS, Pair, by_problem, common, compare
from groupwise.runs.row import Row, grouped
from groupwise.types import Outcome

MOST = 8
NUM_PASSAGES = 3
AROUND = 80
LONGEST = 240


@dataclass(frozen=True, slots=True)
class Answer:
    """The first completion of a problem, and how many of its completions were correct."""

    text: str
    outcome: str
    evidence: str
    num_tokens: int
    share: float | None
    num_samples: int


class Asked(NamedTuple):
    """A problem and the first completion of each model, or each time, that it was asked."""

    kind: str
    question: str
    reference: str
    answers: Mapping[str, Answer]

    def facts(self, most: int) -> dict[str, Any]:
        def cut(texts: Mapping[str, Any]) -> dict[str, Any]:
            return {name: str(value)[:most] if isinstance(value, str) else value for name, value in texts.items()}

        answers = [{"stage": name, **cut(asdict(answer))} for name, answer in self.answers.items()]
        return {**cut({"kind": self.kind, "question": self.question, "reference": self.reference}), "answers": answers}


def examples(pair: Pair, count: int) -> list[Asked]:
    """The problems whose share of correct completions rose most; of three, the last is the largest fall, if any."""
    sides = {"before": pair.before.rows, "after": pair.after.rows}
    before, after = common(*(by_problem(rows, MEASURES["pass_at_1"]) for rows in sides.values()))
    rise = {problem: after[problem] - before[problem] for problem in before}
    samples = {when: by_id(rows) for when, rows in sides.items()}
    correct = {when: {p: samples[when][p][0].outcome is Outcome.CORRECT for p in rise} for when in sides}
    gains = {problem: correct["after"][problem] - correct["before"][problem] for problem in rise}
    problems = sorted(rise, key=lambda problem: (-rise[problem], -gains[problem]))[:count]
    if count == 3 and rise and min(rise.values()) < 0:
        problems[-1] = min(rise, key=lambda problem: rise[problem])
    return [
        Asked(
            "largest rise" if rise[problem] > 0 else "largest fall" if rise[problem] < 0 else "no share rose",
            samples["before"][problem][0].question,
            samples["before"][problem][0].reference,
            {when: first_answer(samples[when][problem]) for when in sides},
        )
        for problem in problems
    ]


def by_id(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Completions by problem, in the order of the samples."""
    return grouped(sorted(rows, key=lambda row: row.sample), lambda row: row.problem)


def first_answer(rows: Sequence[Row]) -> Answer:
    """The first of a problem's completions, with the share of all of them that are correct."""
    first = rows[0]
    shares = {} if first.open_ended else by_problem(rows, MEASURES["pass_at_1"])
    outcome = "answered" if first.open_ended and first.outcome is Outcome.CORRECT else str(first.outcome)
    text = first.prefill + first.text
    return Answer(text, outcome, first.evidence, first.length, shares.get(first.problem), len(rows))


class Moved(NamedTuple):
    """A problem whose share of correct samples changed."""

    problem: str
    question: str
    before: float
    after: float


class Gained(NamedTuple):
    """All problems of a pair of evaluations."""

    gained: list[Moved]
    lost: list[Moved]
    num_gained: int
    num_lost: int
    num_same: int
    at_k: list[tuple[int, Estimate, Estimate, Estimate]]


def gained(pair: Pair) -> Gained:
    """Compare the problems that both evaluations judged; a completion without a verdict counts on neither side."""
    before, after = _counts(pair.before.rows), _counts(pair.after.rows)
    questions = {row.problem: row.question for row in pair.before.rows}
    shares = common(*({name: right / of for name, (of, right) in side.items()} for side in (before, after)))
    moved = [Moved(name, questions[name], share, shares[1][name]) for name, share in shares[0].items()]
    up = sorted((each for each in moved if each.after > each.before), key=lambda each: each.before - each.after)
    down = sorted((each for each in moved if each.after < each.before), key=lambda each: each.after - each.before)
    problems = list(shares[0])
    at_k, k = [], 1  # every k that every problem has samples for, on both sides
    while k <= min((side[name][0] for side in (before, after) for name in problems), default=0):
        sides = [{name: pass_at_k(*side[name], k) for name in problems} for side in (before, after)]
        at_k.append((k, mean_share(list(sides[0].values())), mean_share(list(sides[1].values())), compare(*sides)))
        k *= 2
    return Gained(up[:MOST], down[:MOST], len(up), len(down), len(moved) - len(up) - len(down), at_k)


def _counts(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.outcome.judged:
            judged, right = counts.get(row.problem, (0, 0))
            counts[row.problem] = (judged + 1, right + (row.outcome == "correct"))
    return counts


def definitions(rows: Sequence[Row], patterns: Patterns) -> list[dict[str, Any]]:
    """Every behaviour with its meaning, the phrases that reveal it, and the first completions that show it."""
    return [
        {
            "name": METRICS[key].name,
            "meaning": METRICS[key].meaning,
            "phrases": [phrase for phrases in patterns.get(behaviour, {}).values() for phrase in phrases],
            "passages": list(islice(_passages(behaviour, rows, patterns), NUM_PASSAGES)),
            "measured": any(is_measured(behaviour, row) for row in rows),
        }
        for key, behaviour in BEHAVIOURS.items()
    ]


def _passages(behaviour: Behaviour, rows: Sequence[Row], patterns: Patterns) -> Iterator[list[str]]:
    problems: set[str] = set()
    for row in rows:
        if row.problem in problems or not is_measured(behaviour, row):
            continue
        if (span := span_of(behaviour, row, patterns)) is None:
            continue
        problems.add(row.problem)
        text, start, end = row.text, span[0], min(span[1], span[0] + LONGEST)
        before = ("…" if start > AROUND else "") + text[max(0, start - AROUND) : start]
        after = text[end : end + AROUND] + ("…" if end + AROUND < len(text) else "")
        inside = text[start:end] + ("…" if end < span[1] and behaviour not in COURSES else "")
        yield [before + inside, "", after] if behaviour in COURSES else [before, inside, after]
