"""The kernel for propositional logic: natural deduction (Gentzen 1935) with the hypotheses kept at every line.

As in LCF (Milner 1972) a theorem can only be made by a rule of this file, so whatever else is wrong elsewhere, a
`Theorem` holds: its conclusion follows from its hypotheses. A discharged assumption needs no bookkeeping: a line that
is used again carries its hypotheses with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import NamedTuple

from groupwise.verifiers.proofs.expressions import Expression

_SEAL = object()
FALSE = Expression("False")
Hypotheses = frozenset[Expression]


class RuleError(Exception):
    """A rule does not give what was stated; says what it needs."""


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
    """A way to make a theorem."""

    schema: str
    """What is cited, in this order, and what follows."""
    num_cited: int
    apply: Callable[..., Hypotheses | None]
    """From the stated formula and the cited theorems the hypotheses, or None where the rule does not give it."""


def infer(name: str, stated: Expression, cited: Sequence[Theorem]) -> Theorem:
    """The theorem that a rule makes.

    Raises:
        RuleError: there is no such rule, or it does not give the stated formula.
    """
    if name not in RULES:
        raise RuleError(f"there is no rule {name[:20]!r}; the rules are {', '.join(RULES)}")
    rule = RULES[name]
    if len(cited) != rule.num_cited:
        raise RuleError(f"{name} cites {rule.num_cited} lines, not {len(cited)} ({rule.schema})")
    hypotheses = rule.apply(stated, *cited)
    if hypotheses is None:
        raise RuleError(f"{name} does not give this ({rule.schema})")
    return Theorem(hypotheses, stated, _SEAL)


def _not(formula: Expression) -> Expression:
    return Expression("~", (formula,))


def _is(stated: Expression, head: str, *parts: Expression) -> bool:
    return stated == Expression(head, parts)


def _is_assumption(theorem: Theorem) -> bool:
    return theorem.hypotheses == {theorem.conclusion}


def _assume(stated: Expression) -> Hypotheses | None:
    return frozenset({stated})


def _copy(stated: Expression, one: Theorem) -> Hypotheses | None:
    return one.hypotheses if stated == one.conclusion else None


def _and_intro(stated: Expression, left: Theorem, right: Theorem) -> Hypotheses | None:
    fits = _is(stated, "&", left.conclusion, right.conclusion)
    return left.hypotheses | right.hypotheses if fits else None


def _and_elim(stated: Expression, both: Theorem) -> Hypotheses | None:
    return both.hypotheses if both.conclusion.head == "&" and stated in both.conclusion.parts else None


def _or_intro(stated: Expression, one: Theorem) -> Hypotheses | None:
    return one.hypotheses if stated.head == "|" and one.conclusion in stated.parts else None


def _or_elim(
    stated: Expression, either: Theorem, left: Theorem, by_left: Theorem, right: Theorem, by_right: Theorem
) -> Hypotheses | None:
    cases = _is(either.conclusion, "|", left.conclusion, right.conclusion)
    reached = stated == by_left.conclusion == by_right.conclusion
    if not (cases and reached and _is_assumption(left) and _is_assumption(right)):
        return None
    in_left, in_right = by_left.hypotheses - left.hypotheses, by_right.hypotheses - right.hypotheses
    return either.hypotheses | in_left | in_right


def _implies_intro(stated: Expression, assumed: Theorem, reached: Theorem) -> Hypotheses | None:
    fits = _is_assumption(assumed) and _is(stated, "->", assumed.conclusion, reached.conclusion)
    return reached.hypotheses - assumed.hypotheses if fits else None


def _implies_elim(stated: Expression, conditional: Theorem, condition: Theorem) -> Hypotheses | None:
    fits = _is(conditional.conclusion, "->", condition.conclusion, stated)
    return conditional.hypotheses | condition.hypotheses if fits else None


def _not_intro(stated: Expression, assumed: Theorem, absurd: Theorem) -> Hypotheses | None:
    fits = _is_assumption(assumed) and absurd.conclusion == FALSE and stated == _not(assumed.conclusion)
    return absurd.hypotheses - assumed.hypotheses if fits else None


def _not_elim(stated: Expression, one: Theorem, negation: Theorem) -> Hypotheses | None:
    fits = stated == FALSE and negation.conclusion == _not(one.conclusion)
    return one.hypotheses | negation.hypotheses if fits else None


def _double_negation(stated: Expression, double: Theorem) -> Hypotheses | None:
    return double.hypotheses if double.conclusion == _not(_not(stated)) else None


def _false_elim(stated: Expression, absurd: Theorem) -> Hypotheses | None:
    return absurd.hypotheses if absurd.conclusion == FALSE else None


def _iff_intro(stated: Expression, there: Theorem, back: Theorem) -> Hypotheses | None:
    if there.conclusion.head != "->":
        return None
    left, right = there.conclusion.parts
    fits = _is(back.conclusion, "->", right, left) and _is(stated, "<->", left, right)
    return there.hypotheses | back.hypotheses if fits else None


def _iff_elim(stated: Expression, both: Theorem) -> Hypotheses | None:
    fits = both.conclusion.head == "<->" and stated.head == "->"
    return both.hypotheses if fits and stated.parts in (both.conclusion.parts, both.conclusion.parts[::-1]) else None


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "assume": Rule("anything; what follows depends on it until it is discharged", 0, _assume),
        "copy": Rule("A; gives A", 1, _copy),
        "&I": Rule("A, B; gives A & B", 2, _and_intro),
        "&E": Rule("A & B; gives A or B", 1, _and_elim),
        "|I": Rule("A; gives A | B or B | A", 1, _or_intro),
        "|E": Rule("A | B, assumption A, C, assumption B, C; gives C", 5, _or_elim),
        "->I": Rule("assumption A, B; gives A -> B", 2, _implies_intro),
        "->E": Rule("A -> B, A; gives B", 2, _implies_elim),
        "~I": Rule("assumption A, False; gives ~A", 2, _not_intro),
        "~E": Rule("A, ~A; gives False", 2, _not_elim),
        "~~E": Rule("~~A; gives A", 1, _double_negation),
        "FalseE": Rule("False; gives anything", 1, _false_elim),
        "<->I": Rule("A -> B, B -> A; gives A <-> B", 2, _iff_intro),
        "<->E": Rule("A <-> B; gives A -> B or B -> A", 1, _iff_elim),
    }
)
"""All rules by name."""
