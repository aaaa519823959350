"""The kernel for equations: chains of rewriting steps (Birkhoff 1935), sealed like the one for propositional logic."""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from typing import NamedTuple

from groupwise.verifiers.proofs.expressions import Expression
from groupwise.verifiers.proofs.natural_deduction import RuleError

_SEAL = object()
VARIABLES = frozenset("uvwxyz")
"""Leaves that stand for any term in an axiom; every other leaf is a constant."""


class Axiom(NamedTuple):
    """`left` = `right` whatever the variables stand for."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Equality:
    """`left` = `right` in every structure in which the axioms hold that were used."""

    left: Expression
    right: Expression
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only the rules of the kernel make equalities")


def reflexivity(term: Expression) -> Equality:
    """Every term equals itself."""
    return Equality(term, term, _SEAL)


def rewrite(known: Equality, axiom: Axiom, term: Expression) -> Equality:
    """`known.left = term`, where `term` is `known.right` with one part replaced by an instance of the axiom.

    Raises:
        RuleError: no part of `known.right` becomes `term` by this axiom, read in either direction.
    """
    if term == known.right:
        raise RuleError("the step changes nothing")
    for before, after in _differences(known.right, term):
        if _instance(axiom, before, after) or _instance(axiom, after, before):
            return Equality(known.left, term, _SEAL)
    raise RuleError("no single use of this equation, in either direction, makes this term of the one before")


def _differences(before: Expression, after: Expression) -> Iterator[tuple[Expression, Expression]]:
    """Parts at the same place outside of which two different terms agree, from the whole terms inwards."""
    while True:
        yield before, after
        if before.head != after.head or len(before.parts) != len(after.parts):
            return
        unequal = [pair for pair in zip(before.parts, after.parts, strict=True) if pair[0] != pair[1]]
        if len(unequal) != 1:
            return
        before, after = unequal[0]


def _instance(axiom: Axiom, left: Expression, right: Expression) -> bool:
    binding: dict[str, Expression] = {}
    return _match(axiom.left, left, binding) and _match(axiom.right, right, binding)


def _match(pattern: Expression, term: Expression, binding: dict[str, Expression]) -> bool:
    """Whether the term is the pattern with its variables replaced as bound; binds those that are not yet."""
    if pattern.head in VARIABLES:
        return binding.setdefault(pattern.head, term) == term
    if pattern.head != term.head or len(pattern.parts) != len(term.parts):
        return False
    return all(_match(*parts, binding) for parts in zip(pattern.parts, term.parts, strict=True))
