"""Terms of generated problems: theories, random terms and what one use of an equation makes of a term.

A term is a tuple of an operator and its operands; a leaf is a tuple of its name. The verifier has a parser and a
kernel of its own, so that what is generated here is checked there by other code.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from groupwise.randomness import Draw

Term = tuple[Any, ...]
"""`(leaf,)`, `("inv", term)`, `("-", term)`, `("+", term, term)` or `("*", term, term)`."""
Equation = tuple[Term, Term]
TheoryName = Literal["group", "ring", "semigroup"]

CONSTANTS = "abcd"
_X, _Y, _Z = ("x",), ("y",), ("z",)
_ONE, _ZERO = ("1",), ("0",)
_VARIABLES = (_X, _Y, _Z)


def _associative(operator: str) -> Equation:
    return (operator, (operator, _X, _Y), _Z), (operator, _X, (operator, _Y, _Z))


class Theory(NamedTuple):
    """The equations that define a kind of structure, and the operators its terms are drawn from."""

    equations: Mapping[str, Equation]
    binary: str
    unary: str = ""


THEORIES: Mapping[TheoryName, Theory] = {
    "group": Theory(
        {
            "assoc": _associative("*"),
            "one_left": (("*", _ONE, _X), _X),
            "one_right": (("*", _X, _ONE), _X),
            "inv_left": (("*", ("inv", _X), _X), _ONE),
            "inv_right": (("*", _X, ("inv", _X)), _ONE),
        },
        binary="*",
        unary="inv",
    ),
    "ring": Theory(
        {
            "add_assoc": _associative("+"),
            "add_comm": (("+", _X, _Y), ("+", _Y, _X)),
            "add_zero": (("+", _X, _ZERO), _X),
            "add_neg": (("+", _X, ("-", _X)), _ZERO),
            "mul_assoc": _associative("*"),
            "one_left": (("*", _ONE, _X), _X),
            "one_right": (("*", _X, _ONE), _X),
            "dist_left": (("*", _X, ("+", _Y, _Z)), ("+", ("*", _X, _Y), ("*", _X, _Z))),
            "dist_right": (("*", ("+", _X, _Y), _Z), ("+", ("*", _X, _Z), ("*", _Y, _Z))),
        },
        binary="+*",
        unary="-",
    ),
    "semigroup": Theory({"assoc": _associative("*")}, binary="*"),
}
"""Theories by name. A semigroup's problems come with equations between constants of their own."""


def write(term: Term) -> str:
    """The term as text; what has two operands stands in parentheses within others."""
    head, *parts = term
    if head == "inv":
        return f"inv({write(parts[0])})"
    inner = [f"({write(part)})" if len(part) == 3 else write(part) for part in parts]
    return f" {head} ".join(inner) if len(parts) == 2 else head + "".join(inner)


def size(term: Term) -> int:
    """The number of leaves and operators."""
    return 1 + sum(map(size, term[1:]))


def draw_term(draw: Draw, theory: Theory, constants: str, num_leaves: int) -> Term:
    """A random term with so many leaves."""
    if num_leaves > 1:
        left = draw.integer(1, num_leaves - 1)
        parts = (draw_term(draw, theory, constants, count) for count in (left, num_leaves - left))
        return (draw.choice(theory.binary), *parts)
    leaf = (draw.choice(constants),)
    return (theory.unary, leaf) if theory.unary and draw.uniform() < 0.25 else leaf


def rewritten(term: Term, pattern: Term, result: Term, free: Term) -> Iterator[Term]:
    """What the term becomes by one use of `pattern = result`, at every place; `free` is put for unbound variables."""
    binding = match(pattern, term, {})
    if binding is not None:
        yield substitute(result, dict.fromkeys(_VARIABLES, free) | binding)
    for place in range(1, len(term)):
        for part in rewritten(term[place], pattern, result, free):
            yield (*term[:place], part, *term[place + 1 :])


def match(pattern: Term, term: Term, binding: Mapping[Term, Term]) -> dict[Term, Term] | None:
    """The variables' terms that make the pattern the term, in addition to those bound; None if there are none."""
    if pattern in _VARIABLES:
        return {**binding, pattern: term} if binding.get(pattern, term) == term else None
    if pattern[0] != term[0] or len(pattern) != len(term):
        return None
    found: dict[Term, Term] | None = dict(binding)
    for one, other in zip(pattern[1:], term[1:], strict=True):
        found = match(one, other, found) if found is not None else None
    return found


def substitute(term: Term, binding: Mapping[Term, Term]) -> Term:
    """The term with its variables replaced."""
    return binding.get(term) or (term[0], *(substitute(part, binding) for part in term[1:]))
