"""Proofs in propositional logic, line by line.

    1. P & Q by premise
    2. P by assume
    3. Q by &E 1
    4. P -> Q by ->I 2 3

Each line is a formula and its reason, which cites lines above it; the numbers rise. The last line must be the goal and
depend on premises only.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding, data_list
from groupwise.verifiers.proofs.base import ProofVerifier
from groupwise.verifiers.proofs.natural_deduction import (
    FORMULAS,
    Expression,
    RuleError,
    Theorem,
    UnreadableError,
    infer,
    parse_stated,
)

MAX_LINES = 200
_NUMBER = re.compile(r"([0-9]{1,4})[.):]\s+")
_CITED = re.compile(r"[0-9]{1,4}")


class Line(NamedTuple):
    """One line of a proof."""

    number: int
    formula: Expression
    rule: str
    cited: tuple[int, ...]

    def __str__(self) -> str:
        reason = " ".join([self.rule, *map(str, self.cited)])
        return f"{self.number}. {FORMULAS.write(self.formula)} by {reason}"


class PropositionalVerifier(ProofVerifier):
    """Needs `problem.data["premises"]` (a list of formulas) and `problem.data["goal"]` (a formula).

    Judges in this process: exactly, and in time that the proof's size bounds.
    """

    def find_many(self, proofs: Sequence[tuple[Problem, str]]) -> list[Finding]:
        return [self._attempt(problem, proof) for problem, proof in proofs]

    def _attempt(self, problem: Problem, proof: str) -> Finding:
        try:
            return self._find(problem, proof)
        except UnreadableError as error:
            return Finding(Outcome.UNPARSABLE, str(error))
        except RuleError as error:
            return Finding(Outcome.WRONG, str(error), " ".join(proof.split()))
        except Exception as error:  # a fault of ours or of the problem's data is never a wrong answer
            return Finding(Outcome.CRASHED, f"problem {problem.id}: {type(error).__name__}: {error}"[:300])

    def _find(self, problem: Problem, proof: str) -> Finding:
        try:
            premises = frozenset(parse_stated(FORMULAS, text) for text in data_list(problem, "premises", str))
            goal = parse_stated(FORMULAS, problem.data["goal"])
        except UnreadableError as error:
            raise ValueError(str(error)) from None
        lines = list(read(proof))
        if not lines:
            raise UnreadableError("the proof has no line")
        theorem, fault = prove(lines, premises), ""
        if theorem.conclusion != goal:
            fault = f"the last line is {FORMULAS.write(theorem.conclusion)}, not the goal {FORMULAS.write(goal)}"
        elif assumptions := sorted(map(FORMULAS.write, theorem.hypotheses - premises)):
            fault = f"the last line still depends on the assumption {assumptions[0]}"
        outcome, evidence = Outcome.WRONG if fault else Outcome.CORRECT, f"proved in {len(lines)} lines by the rules"
        return Finding(outcome, fault or evidence, "\n".join(map(str, lines)))


def read(proof: str) -> Iterator[Line]:
    """The lines of a proof, without blank ones (UnreadableError: names the line, blank ones counted)."""
    texts = FORMULAS.normalise(proof).split("\n")
    if len(texts) > MAX_LINES:
        raise UnreadableError(f"the proof has {len(texts)} lines, at most {MAX_LINES} are read")
    last_number = 0
    for position, row in enumerate(texts, start=1):
        text = " ".join(row.split())
        if not text:
            continue
        number = _NUMBER.match(text)
        formula, separator, reason = text[number.end() if number else 0 :].rpartition(" by ")
        if not (number and separator and reason.strip()):
            raise UnreadableError(f"line {position}: {text[:40]!r} is not of the form `1. formula by rule 2 3`")
        rule, *citations = reason.replace(",", " ").split()
        try:
            if not all(map(_CITED.fullmatch, citations)):
                raise UnreadableError(f"after the rule comes {' '.join(citations)[:40]!r}, not line numbers")
            line = Line(int(number[1]), FORMULAS.parse(formula), rule, tuple(map(int, citations)))
            if line.number <= last_number:
                raise UnreadableError(f"the number {line.number} must be above {last_number}")
        except UnreadableError as error:
            raise UnreadableError(f"line {position}: {error}") from None
        last_number = line.number
        yield line


def prove(lines: Sequence[Line], premises: frozenset[Expression]) -> Theorem:
    """The theorem of the last line (RuleError: names the line that does not follow)."""
    theorems: dict[int, Theorem] = {}
    for line in lines:
        rule = "assume" if line.rule == "premise" else line.rule
        try:
            missing_numbers = [number for number in line.cited if number not in theorems]
            if missing_numbers:
                raise RuleError(f"there is no line {missing_numbers[0]} above it")
            if line.rule == "premise" and line.formula not in premises:
                raise RuleError(f"{FORMULAS.write(line.formula)} is not a premise of this problem")
            theorems[line.number] = infer(rule, line.formula, [theorems[number] for number in line.cited])
        except RuleError as error:
            raise RuleError(f"line {line.number}: {error}") from None
    return theorems[lines[-1].number]
