"""Problems answered before and after, chosen by what changed: they show how the answers changed, not how often."""

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.evaluation.compare import Pair, common
from groupwise.evaluation.metrics import MEASURES, by_problem
from groupwise.runs.row import Row
from groupwise.types import Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """The first completion of a problem, and how many of its completions were correct."""

    text: str
    outcome: str
    evidence: str
    num_tokens: int
    share: float | None
    """Share of its samples that are correct; None where no answer is the right one."""
    num_samples: int

    @property
    def percent(self) -> str:
        """The share in per cent; empty where there is none."""
        return "" if self.share is None else f"{100 * self.share:.0f}"


@dataclass(frozen=True, slots=True)
class Example:
    """One problem answered before and after."""

    question: str
    reference: str
    why: str
    """Why this problem was chosen."""
    before: Answer
    after: Answer


def examples(pair: Pair, count: int) -> list[Example]:
    """The problems whose share of correct completions rose most; of three, the last is the largest fall, if any.

    Ties go to problems whose first completion became correct, then to the order of the split.
    """
    before, after = common(*(by_problem(side.rows, MEASURES["pass_at_1"]) for side in (pair.before, pair.after)))
    rise = {problem: after[problem] - before[problem] for problem in before}
    firsts = _firsts(pair.before.rows), _firsts(pair.after.rows)
    gains = {p: (firsts[1][p].outcome is Outcome.CORRECT) - (firsts[0][p].outcome is Outcome.CORRECT) for p in rise}
    order = sorted(rise, key=lambda problem: (-rise[problem], -gains[problem]))
    problems = order[:count]
    if count == 3 and rise and min(rise.values()) < 0:
        problems[-1] = min(rise, key=lambda problem: rise[problem])
    return [_example(pair, firsts, problem, rise[problem]) for problem in problems]


def _firsts(rows: Sequence[Row]) -> dict[str, Row]:
    """The first completion of each problem."""
    firsts: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.sample):
        firsts.setdefault(row.problem, row)
    return firsts


def _example(pair: Pair, firsts: tuple[dict[str, Row], dict[str, Row]], problem: str, rise: float) -> Example:
    row = firsts[0][problem]
    why = "chosen for the largest rise" if rise > 0 else "chosen for the largest fall" if rise < 0 else "no share rose"
    return Example(
        question=row.question,
        reference=row.reference,
        why=why,
        before=_answer(row, [sample for sample in pair.before.rows if sample.problem == problem]),
        after=_answer(firsts[1][problem], [sample for sample in pair.after.rows if sample.problem == problem]),
    )


def _answer(first: Row, rows: Sequence[Row]) -> Answer:
    return Answer(
        text=first.text,
        outcome=first.outcome,
        evidence=first.evidence,
        num_tokens=first.length,
        share=by_problem(rows, MEASURES["pass_at_1"])[first.problem],
        num_samples=len(rows),
    )
