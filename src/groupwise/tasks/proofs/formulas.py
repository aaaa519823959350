"""Formulas of generated problems: how they are drawn, written and decided.

A formula is a tuple of an operator and its operands; an atom is a tuple of its name. The verifier has a parser and a
kernel of its own, so that what is generated here is checked there by other code.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from groupwise.randomness import Draw

Formula = tuple[Any, ...]
"""`(atom,)`, `("False",)`, `("~", formula)` or `(operator, formula, formula)`."""

FALSE: Formula = ("False",)
OPERATORS = ("&", "|", "->", "<->")
_WEIGHTS = (4, 3, 4, 1)


def write(formula: Formula) -> str:
    """The formula as text; what has two operands stands in parentheses within others."""
    operator, *parts = formula
    inner = [f"({write(part)})" if len(part) == 3 else write(part) for part in parts]
    return f" {operator} ".join(inner) if len(parts) == 2 else operator + "".join(inner)


def draw_formula(draw: Draw, atoms: Sequence[str], depth: int) -> Formula:
    """A random formula in which at most `depth` operators are nested, none between equal formulas."""
    if depth == 0 or draw.uniform() < 0.3:
        return (draw.choice(atoms),)
    if draw.uniform() < 0.2:
        return ("~", draw_formula(draw, atoms, depth - 1))
    left, right = draw_formula(draw, atoms, depth - 1), draw_formula(draw, atoms, depth - 1)
    return left if left == right else (draw.weighted(OPERATORS, _WEIGHTS), left, right)


def truth(formula: Formula, atoms: Sequence[str]) -> int:
    """The truth table as an integer: bit i is the value in row i, in which atom k has bit k of i."""
    num_rows = 1 << len(atoms)
    every = (1 << num_rows) - 1
    operator, *parts = formula
    if operator == "False":
        return 0
    if not parts:
        place = atoms.index(operator)
        return sum(1 << row for row in range(num_rows) if row >> place & 1)
    values = [truth(part, atoms) for part in parts]
    if operator == "~":
        return every ^ values[0]
    left, right = values
    return {"&": left & right, "|": left | right, "->": every ^ left | right, "<->": every ^ left ^ right}[operator]


def conjunction(tables: Iterable[int], atoms: Sequence[str]) -> int:
    """The rows in which all hold."""
    rows = (1 << (1 << len(atoms))) - 1
    for table in tables:
        rows &= table
    return rows


def is_sound_problem(premises: Sequence[Formula], goal: Formula, atoms: Sequence[str]) -> bool:
    """Whether the premises do not contradict each other, entail the goal, and would not without any one of them."""
    tables, wanted = [truth(premise, atoms) for premise in premises], truth(goal, atoms)
    together = conjunction(tables, atoms)
    if together == 0 or together & ~wanted:
        return False
    fewer = (conjunction(tables[:place] + tables[place + 1 :], atoms) for place in range(len(tables)))
    return all(rows & ~wanted for rows in fewer)
