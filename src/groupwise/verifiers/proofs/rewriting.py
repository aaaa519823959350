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
    """`left` = `right` in every structure in which the axioms used hold."""

    left: Expression
    right: Expression
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only the rules of the kernel make equalities")


def reflexivity(term: Expression) -> Equality:
    """Every term equals itself."""
    return Equality(term, term, _SEAL)


def rewrite(equality: Equality, axiom: Axiom, term: Expression) -> Equality:
    """`equality.left = term`, where `term` is `equality.right` with one part replaced by an instance of the axiom.

    Raises:
        RuleError: no part of `equality.right` becomes `term` by this axiom, read in either direction.
    """
    if term == equality.right:
        raise RuleError("the step changes nothing")
    for source, target in _differences(equality.right, term):
        if _instance(axiom, source, target) or _instance(axiom, target, source):
            return Equality(equality.left, term, _SEAL)
    raise RuleError("no single use of this equation, in either direction, makes this term from the one before")


def _differences(source: Expression, target: Expression) -> Iterator[tuple[Expression, Expression]]:
    """Pairs of parts outside of which two different terms agree, from the whole terms inwards."""
    while True:
        yield source, target
        if source.head != target.head or len(source.parts) != len(target.parts):
            return
        differences = [pair for pair in zip(source.parts, target.parts, strict=True) if pair[0] != pair[1]]
        if len(differences) != 1:
            return
        source, target = differences[0]


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
