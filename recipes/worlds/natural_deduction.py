"""Proofs in propositional logic, line by line, and the kernel that judges each line.

    1. P & Q by premise
    2. P by assume
    3. Q by &E 1
    4. P -> Q by ->I 2 3

Each line is a formula and its reason, which cites lines above it; the numbers rise. The last line must be the goal and
depend on premises only. Formulas are read by an operator precedence parser (Pratt 1973): P, Q1, False, ~P, P & Q,
P | Q, P -> Q, P <-> Q; -> associates to the right, the others to the left.

The rules are those of natural deduction, with the hypotheses kept at every line. As in LCF (Milner 1972) a theorem can
only be made by a rule of this file (Gentzen 1935), so whatever else is wrong elsewhere, a `Theorem` holds: its
conclusion follows from its hypotheses. A discharged assumption needs no bookkeeping: a line that is used again carries
its hypotheses with it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding, data_list
from groupwise.verifiers.proofs.base import ProofVerifier, RuleError

MAX_SYMBOLS = 120  # symbols of one formula, which bounds its depth too
MAX_LINES = 200
_NUMBER = re.compile(r"([0-9]{1,4})[.):]\s+")
_CITED = re.compile(r"[0-9]{1,4}")
_TOKEN = re.compile(r"<->|->|[A-Za-z0-9_]+|\S")
_ATOM = re.compile(r"[A-Z][0-9]{0,3}|False")
_INFIX = {"<->": (0, 1), "->": (10, 10), "|": (20, 21), "&": (30, 31)}
"""Binding powers to the left and to the right; a higher one binds tighter."""
_NOT = 40
_SPELLINGS = {
    "\\leftrightarrow": "<->", "\\rightarrow": "->", "\\wedge": "&", "\\land": "&", "\\vee": "|", "\\lor": "|",
    "\\neg": "~", "\\lnot": "~", "\\bot": "False", "\\to": "->", "<=>": "<->", "=>": "->", "/\\": "&", "\\/": "|",
    "↔": "<->", "→": "->", "∧": "&", "∨": "|", "¬": "~", "⊥": "False",
}  # fmt: skip


class Expression(NamedTuple):
    """An operator and its operands, or a leaf."""

    head: str
    parts: tuple["Expression", ...] = ()


class UnreadableError(Exception):
    """The text is no formula, or no proof."""


def normalised(text: str) -> str:
    """Return a text in the symbols of this file."""
    for spelling, symbol in _SPELLINGS.items():
        text = text.replace(spelling, symbol)
    return text


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read a formula (UnreadableError: names the symbol that is where something else was expected)."""
    parser = _Parser(_TOKEN.findall(normalised(text)))
    formula = parser.formula(0)
    if parser.peek():
        raise UnreadableError(f"{parser.peek()!r} where an operator or the end was expected")
    return formula


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        if len(tokens) > MAX_SYMBOLS:
            raise UnreadableError(f"an expression has {len(tokens)} symbols, at most {MAX_SYMBOLS} are read")
        self._tokens, self._position = tokens, 0

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self, symbol: str = "") -> str:
        token = self.peek()
        if symbol and token != symbol:
            raise UnreadableError(f"{token or 'the end'!r} where {symbol!r} was expected")
        self._position += 1
        return token

    def formula(self, power: int) -> Expression:
        left = self._operand()
        while (binding := _INFIX.get(self.peek(), (-1, 0)))[0] >= power:
            left = Expression(self._take(), (left, self.formula(binding[1])))
        return left

    def _operand(self) -> Expression:
        token = self._take()
        if token == "~":
            return Expression(token, (self.formula(_NOT),))
        if token == "(":
            group = self.formula(0)
            self._take(")")
            return group
        if not _ATOM.fullmatch(token):
            raise UnreadableError(f"{token or 'the end'!r} where an operand was expected")
        return Expression(token)


def write(formula: Expression) -> str:
    """Return a formula as text; what has two operands is put in parentheses within others."""
    operands = [f"({write(part)})" if part.head in _INFIX else write(part) for part in formula.parts]
    return f" {formula.head} ".join(operands) if formula.head in _INFIX else formula.head + "".join(operands)


_SEAL = object()
FALSE = Expression("False")
Hypotheses = frozenset[Expression]


@dataclass(frozen=True, slots=True)
class Theorem:
    """`hypotheses` entail `conclusion`."""

    hypotheses: Hypotheses
    conclusion: Expression
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only the rules of the kernel make theorems")


class Rule(NamedTuple):
    """A way to make a theorem: `apply` returns the hypotheses, or None where the rule does not give the formula."""

    schema: str
    num_cited: int
    apply: Callable[..., Hypotheses | None]


def infer(name: str, formula: Expression, theorems: Sequence[Theorem]) -> Theorem:
    """The theorem that a rule makes (RuleError: there is no such rule, or it does not give the stated formula)."""
    if name not in RULES:
        raise RuleError(f"there is no rule {name[:20]!r}; the rules are {', '.join(RULES)}")
    rule = RULES[name]
    if len(theorems) != rule.num_cited:
        raise RuleError(f"{name} cites {rule.num_cited} lines, not {len(theorems)} ({rule.schema})")
    hypotheses = rule.apply(formula, *theorems)
    if hypotheses is None:
        raise RuleError(f"{name} does not give this ({rule.schema})")
    return Theorem(hypotheses, formula, _SEAL)


def _is(formula: Expression, head: str, *parts: Expression) -> bool:
    return formula == Expression(head, parts)


def _is_assumption(theorem: Theorem) -> bool:
    return theorem.hypotheses == {theorem.conclusion}


def _or_elim(
    formula: Expression, disjunction: Theorem, left: Theorem, by_left: Theorem, right: Theorem, by_right: Theorem
) -> Hypotheses | None:
    covers_cases = _is(disjunction.conclusion, "|", left.conclusion, right.conclusion)
    reaches_goal = formula == by_left.conclusion == by_right.conclusion
    if not (covers_cases and reaches_goal and _is_assumption(left) and _is_assumption(right)):
        return None
    in_left, in_right = by_left.hypotheses - left.hypotheses, by_right.hypotheses - right.hypotheses
    return disjunction.hypotheses | in_left | in_right


RULES: Mapping[str, Rule] = MappingProxyType({
    "assume": Rule(
        "anything; what follows depends on it until it is discharged", 0, lambda formula: frozenset({formula})),
    "copy": Rule("A; gives A", 1, lambda formula, a: a.hypotheses if formula == a.conclusion else None),
    "&I": Rule(
        "A, B; gives A & B", 2, lambda formula, a, b:
        a.hypotheses | b.hypotheses if _is(formula, "&", a.conclusion, b.conclusion) else None),
    "&E": Rule(
        "A & B; gives A or B", 1, lambda formula, ab:
        ab.hypotheses if ab.conclusion.head == "&" and formula in ab.conclusion.parts else None),
    "|I": Rule(
        "A; gives A | B or B | A", 1, lambda formula, a:
        a.hypotheses if formula.head == "|" and a.conclusion in formula.parts else None),
    "|E": Rule("A | B, assumption A, C, assumption B, C; gives C", 5, _or_elim),
    "->I": Rule(
        "assumption A, B; gives A -> B", 2, lambda formula, a, b:
        b.hypotheses - a.hypotheses if _is_assumption(a) and _is(formula, "->", a.conclusion, b.conclusion) else None),
    "->E": Rule(
        "A -> B, A; gives B", 2, lambda formula, ab, a:
        ab.hypotheses | a.hypotheses if _is(ab.conclusion, "->", a.conclusion, formula) else None),
    "~I": Rule(
        "assumption A, False; gives ~A", 2, lambda formula, a, false:
        false.hypotheses - a.hypotheses
        if _is_assumption(a) and false.conclusion == FALSE and _is(formula, "~", a.conclusion) else None),
    "~E": Rule(
        "A, ~A; gives False", 2, lambda formula, a, not_a:
        a.hypotheses | not_a.hypotheses if formula == FALSE and _is(not_a.conclusion, "~", a.conclusion) else None),
    "~~E": Rule(
        "~~A; gives A", 1, lambda formula, a:
        a.hypotheses if _is(a.conclusion, "~", Expression("~", (formula,))) else None),
    "FalseE": Rule("False; gives anything", 1, lambda formula, a: a.hypotheses if a.conclusion == FALSE else None),
    "<->I": Rule(
        "A -> B, B -> A; gives A <-> B", 2, lambda formula, ab, ba:
        ab.hypotheses | ba.hypotheses
        if ab.conclusion.head == "->" and _is(formula, "<->", *ab.conclusion.parts)
        and _is(ba.conclusion, "->", *ab.conclusion.parts[::-1]) else None),
    "<->E": Rule(
        "A <-> B; gives A -> B or B -> A", 1, lambda formula, ab:
        ab.hypotheses if ab.conclusion.head == "<->" and formula.head == "->"
        and formula.parts in (ab.conclusion.parts, ab.conclusion.parts[::-1]) else None),
})  # fmt: skip


class Line(NamedTuple):
    """One line of a proof."""

    number: int
    formula: Expression
    rule: str
    cited: tuple[int, ...]

    def __str__(self) -> str:
        reason = " ".join([self.rule, *map(str, self.cited)])
        return f"{self.number}. {write(self.formula)} by {reason}"


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
            premises, goal = frozenset(map(parse, data_list(problem, "premises", str))), parse(problem.data["goal"])
        except UnreadableError as error:
            raise ValueError(str(error)) from None
        lines = list(read(proof))
        if not lines:
            raise UnreadableError("the proof has no line")
        theorem, fault = prove(lines, premises), ""
        if theorem.conclusion != goal:
            fault = f"the last line is {write(theorem.conclusion)}, not the goal {write(goal)}"
        elif assumptions := sorted(map(write, theorem.hypotheses - premises)):
            fault = f"the last line still depends on the assumption {assumptions[0]}"
        outcome, evidence = Outcome.WRONG if fault else Outcome.CORRECT, f"proved in {len(lines)} lines by the rules"
        return Finding(outcome, fault or evidence, "\n".join(map(str, lines)))


def read(proof: str) -> Iterator[Line]:
    """The lines of a proof, without blank ones (UnreadableError: names the line, blank ones counted)."""
    texts = normalised(proof).split("\n")
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
            line = Line(int(number[1]), parse(formula), rule, tuple(map(int, citations)))
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
                raise RuleError(f"{write(line.formula)} is not a premise of this problem")
            theorems[line.number] = infer(rule, line.formula, [theorems[number] for number in line.cited])
        except RuleError as error:
            raise RuleError(f"line {line.number}: {error}") from None
    return theorems[lines[-1].number]
