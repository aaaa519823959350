"""The kernel for propositional logic: formulas, and natural deduction with the hypotheses kept at every line.

Formulas are read by an operator precedence parser (Pratt 1973): P, Q1, False, ~P, P & Q, P | Q, P -> Q, P <-> Q;
-> associates to the right, the others to the left.

As in LCF (Milner 1972) a theorem can only be made by a rule of this file (Gentzen 1935), so whatever else is wrong
elsewhere, a `Theorem` holds: its conclusion follows from its hypotheses. A discharged assumption needs no bookkeeping:
a line that is used again carries its hypotheses with it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

MAX_SYMBOLS = 120  # symbols of one formula or term, which bounds its depth too


class Expression(NamedTuple):
    """An operator and its operands, or a leaf."""

    head: str
    parts: tuple["Expression", ...] = ()


class UnreadableError(Exception):
    """The text is not an expression of this language."""


@dataclass(frozen=True, eq=False)
class Grammar:
    """A language: leaves, binding powers of operators (left, right; a higher one binds tighter), other spellings."""

    leaf: re.Pattern[str]
    infix: Mapping[str, tuple[int, int]]
    prefix: Mapping[str, int]
    spellings: Mapping[str, str]

    def normalise(self, text: str) -> str:
        for spelling, symbol in self.spellings.items():
            text = text.replace(spelling, symbol)
        return text

    def parse(self, text: str) -> Expression:
        """Read a normalised text (UnreadableError: names the symbol that is where something else was expected)."""
        parser = _Parser(self, _TOKEN.findall(text))
        expression = parser.expression(0)
        if parser.peek():
            raise UnreadableError(f"{parser.peek()!r} where an operator or the end was expected")
        return expression

    def write(self, expression: Expression) -> str:
        head, parts = expression
        if head in self.infix:
            return f" {head} ".join(map(self._enclose, parts))
        if head in self.prefix:
            return f"{head}{self._enclose(parts[0])}"
        return head

    def _enclose(self, part: Expression) -> str:
        return f"({self.write(part)})" if part.head in self.infix else self.write(part)


_TOKEN = re.compile(r"<->|->|[A-Za-z0-9_]+|\S")


class _Parser:
    def __init__(self, grammar: Grammar, tokens: list[str]) -> None:
        if len(tokens) > MAX_SYMBOLS:
            raise UnreadableError(f"an expression has {len(tokens)} symbols, at most {MAX_SYMBOLS} are read")
        self._grammar, self._tokens, self._position = grammar, tokens, 0

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self, symbol: str = "") -> str:
        token = self.peek()
        if symbol and token != symbol:
            raise UnreadableError(f"{token or 'the end'!r} where {symbol!r} was expected")
        self._position += 1
        return token

    def expression(self, power: int) -> Expression:
        left = self._operand()
        while (binding := self._grammar.infix.get(self.peek(), (-1, 0)))[0] >= power:
            left = Expression(self._take(), (left, self.expression(binding[1])))
        return left

    def _operand(self) -> Expression:
        token = self._take()
        if token in self._grammar.prefix:
            return Expression(token, (self.expression(self._grammar.prefix[token]),))
        if token == "(":
            group = self.expression(0)
            self._take(")")
            return group
        if not self._grammar.leaf.fullmatch(token):
            raise UnreadableError(f"{token or 'the end'!r} where an operand was expected")
        return Expression(token)


FORMULAS = Grammar(
    leaf=re.compile(r"[A-Z][0-9]{0,3}|False"),
    infix={"<->": (0, 1), "->": (10, 10), "|": (20, 21), "&": (30, 31)},
    prefix={"~": 40},
    spellings={
        "\\leftrightarrow": "<->", "\\rightarrow": "->", "\\wedge": "&", "\\land": "&", "\\vee": "|", "\\lor": "|",
        "\\neg": "~", "\\lnot": "~", "\\bot": "False", "\\to": "->", "<=>": "<->", "=>": "->", "/\\": "&", "\\/": "|",
        "↔": "<->", "→": "->", "∧": "&", "∨": "|", "¬": "~", "⊥": "False",
    },
)  # fmt: skip
"""The language of propositional logic."""


@lru_cache(maxsize=4096)
def parse_stated(grammar: Grammar, text: str) -> Expression:
    """Read an expression of a problem; problems recur, so what was read is cached."""
    return grammar.parse(grammar.normalise(text))


_SEAL = object()
FALSE = Expression("False")
Hypotheses = frozenset[Expression]


class RuleError(Exception):
    """A rule does not give the stated formula; says what it needs."""


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
"""All rules by name."""
