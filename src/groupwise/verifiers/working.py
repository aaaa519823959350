"""Exact truth of a working: what every step of a completion is, where the first mistake stands, and what it is.

A problem's numbers are known, and so are the parts by which they are written and rounded (86 = 80 + 6 = 90 - 4). An
equation whose left side has known numbers alone makes its results known if it is true; if it is false, whoever reads
its result inherits a wrong number. Where every equation is true and the answer is wrong all the same, the first step
that the answer comes from and that is not in the problem's plan is the mistake: two of its numbers were put together
in a way that does not answer the question. Nothing here asks a model.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.steps import NUMBER, boundaries, is_true, step_ends, value

_NUMBERS = re.compile(NUMBER)
PLANNED = ("steps",)  # keys that a problem's data must have: its plan


class StepKind(StrEnum):
    """Judgement of a step."""

    SOUND = "sound"  # true, of known numbers, and used by a later step or the answer
    IDLE = "idle"  # nothing follows from it: true but unused, a repeat, or without an equation
    WRONG = "wrong"  # a false equation, an operation that is not in the plan, or a wrong answer after sound steps
    INHERITS = "inherits"  # reads a number that a mistake before it made
    UNKNOWN_OPERAND = "unknown_operand"  # reads a number that comes from nowhere

    @property
    def correct(self) -> bool:
        """True when it is free of mistakes, inherited ones included."""
        return self in (StepKind.SOUND, StepKind.IDLE)


class StepJudgement(NamedTuple):
    """The truth about one step."""

    end: int
    kind: StepKind
    evidence: str


class _Equation(NamedTuple):
    end: int
    text: str
    reads: frozenset[Fraction]
    makes: frozenset[Fraction]
    kind: StepKind
    evidence: str


@dataclass(slots=True)
class _Knowledge:
    known: set[Fraction]
    in_parts: bool  # true when a number's parts may be read too; not where every number is to be used once
    spoilt: set[Fraction] = field(default_factory=set)  # results of mistakes

    def knows(self, numbers: frozenset[Fraction]) -> bool:
        return all(number in self.known or number in self.parts for number in numbers)

    @property
    def parts(self) -> set[Fraction]:
        return {part for number in self.known for part in parts(number)} if self.in_parts else set()


def judge_working(problem: Problem, text: str, verdict: Verdict, step: str = "equation") -> list[StepJudgement]:
    """Judge every step of a text (prefill and completion) that answers a problem with a plan, cut by `step`.

    Raises ValueError where there is no plan, or the completion was not judged.

    >>> problem = Problem("p", "What is 23 × 17?", "391", data={"steps": [("×", 23, 17, 391)]})
    >>> right = Verdict(Outcome.CORRECT, {}, "", "391")
    >>> [str(step.kind) for step in judge_working(problem, "23×10=230. 23×7=151. 230+151=391.", right)]
    ['sound', 'wrong', 'inherits', 'sound']
    """
    if any(key not in problem.data for key in PLANNED):
        raise ValueError(f"problem {problem.id} has no plan (data {sorted(problem.data)}): exact labels need one")
    if not verdict.outcome.judged:
        raise ValueError(f"the completion of problem {problem.id} was not judged ({verdict.outcome}): no truth")
    right = verdict.outcome is Outcome.CORRECT
    equations = list(_read(text, _Knowledge(_givens(problem), "target" not in problem.data)))
    targets = {Fraction(number) for number in _NUMBERS.findall(verdict.answer or "")}
    if right and "target" in problem.data:  # a right answer stands for what the problem asks for, too
        targets.add(Fraction(problem.data["target"]))
    used = _used(equations, targets)
    if not right and all(equation.kind.correct for equation in equations):
        equations = _without_plan(problem, equations, used, targets)
    ends = step_ends(text, step)
    judged = list[StepJudgement]()
    for start, end in zip([0, *ends], ends, strict=False):
        inside = [index for index, equation in enumerate(equations) if start < equation.end <= end]
        mistake = next((equations[index] for index in inside if not equations[index].kind.correct), None)
        if mistake:
            judged.append(StepJudgement(end, mistake.kind, mistake.evidence))
        elif used.intersection(inside):
            judged.append(StepJudgement(end, StepKind.SOUND, ""))
        else:
            judged.append(StepJudgement(end, StepKind.IDLE, "nothing follows from it" if inside else "no equation"))
    if judged and judged[-1].kind.correct:
        end = judged[-1].end
        if not right:
            kind = StepKind.WRONG if all(step.kind.correct for step in judged) else StepKind.INHERITS
            judged[-1] = StepJudgement(end, kind, "the answer is wrong or missing")
        elif not equations or equations[-1].end != len(text):
            judged[-1] = StepJudgement(end, StepKind.SOUND, "")
    return judged


def parts(number: Fraction) -> Iterator[Fraction]:
    """Numbers by which one is written and rounded: 86 to 80, 6, 90 and 4; 486 to 400, 86, 480, 80, 6, 500, 14 ..."""
    if number.denominator != 1 or number < 10:
        return
    whole = int(number)
    for place in (10**power for power in range(1, len(str(whole)))):
        low = whole % place
        yield from map(Fraction, (low, whole - low, whole // (place // 10) % 10 * (place // 10)))
        if low:
            yield from (Fraction(whole - low + place), Fraction(place - low))


def _givens(problem: Problem) -> set[Fraction]:
    return {*map(Fraction, _NUMBERS.findall(problem.question)), *map(Fraction, problem.data.get("numbers", ()))}


def _read(text: str, knowledge: _Knowledge) -> Iterator[_Equation]:
    for match in boundaries(text, "equation"):
        sides = [frozenset(map(Fraction, _NUMBERS.findall(side))) for side in match[0].split("=")]
        readable = knowledge.known | knowledge.parts | knowledge.spoilt
        known_sides, readable_sides = list(filter(knowledge.knows, sides)), [side for side in sides if side <= readable]
        start = (known_sides or readable_sides or sides)[0]
        kind = StepKind.SOUND if known_sides else StepKind.INHERITS if readable_sides else StepKind.UNKNOWN_OPERAND
        makes = frozenset().union(*sides) - start
        evidence = ""
        if kind is StepKind.SOUND and not is_true(match[0]):
            kind, evidence = StepKind.WRONG, f"{match[0]} is false: {value(match[0].split('=')[0])}"
        elif kind is not StepKind.SOUND:
            evidence = f"{match[0]} reads {', '.join(map(str, sorted(start - knowledge.known)))}"
        if kind is StepKind.SOUND:
            knowledge.known |= makes | start
            knowledge.spoilt -= makes
        else:
            knowledge.spoilt |= makes - knowledge.known
        yield _Equation(match.end(), match[0], start, makes, kind, evidence)


def _used(equations: Sequence[_Equation], targets: set[Fraction]) -> set[int]:
    """Indices of the equations that the answer comes from: the first that makes a number counts as its source."""
    sources: dict[Fraction, int] = {}
    for index, equation in enumerate(equations):
        for number in equation.makes:
            sources.setdefault(number, index)
    used: set[int] = set()
    waiting = [(number, len(equations)) for number in targets]
    while waiting:
        number, reader = waiting.pop()
        index = sources.get(number, reader)
        if index < reader and index not in used:
            used.add(index)
            reads = equations[index].reads
            waiting += [(part, index) for part in reads]
            waiting += [(whole, index) for whole in sources if any(part in reads for part in parts(whole))]
    return used


def _without_plan(
    problem: Problem, equations: list[_Equation], used: set[int], targets: set[Fraction]
) -> list[_Equation]:
    """Every equation is true and the answer wrong: the first used step beside the plan, else the last used one."""
    whole = _givens(problem) | {Fraction(result) for *_, result in problem.data["steps"]}
    plan = {frozenset(map(Fraction, numbers)) for _, *numbers in problem.data["steps"]}
    beside = [
        i for i in sorted(used) if equations[i].reads <= whole and equations[i].reads | equations[i].makes not in plan
    ]
    makers = [i for i in sorted(used) if equations[i].makes & targets]
    candidates = makers if "target" in problem.data else beside or makers
    if not candidates:
        return equations
    mistake = candidates[0]
    spoilt = set(equations[mistake].makes)
    result = list(equations)
    result[mistake] = equations[mistake]._replace(
        kind=StepKind.WRONG, evidence=f"{equations[mistake].text} does not lead to what is asked"
    )
    for index in range(mistake + 1, len(result)):
        if result[index].reads & spoilt:
            spoilt |= result[index].makes
            result[index] = result[index]._replace(kind=StepKind.INHERITS, evidence="reads a number from that step")
    return result
