"""Formulas of generated problems: how they are drawn, written and decided.

A formula is a tuple of an operator and its operands; an atom is a tuple of its name. The verifier has its own parser
and kernel, so that what is generated here is checked there by other code.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from groupwise.randomness import Draw

Formula = tuple[Any, ...]
"""`(atom,)`, `("False",)`, `("~", formula)` or `(operator, formula, formula)`."""

FALSE: Formula = ("False",)
OPERATORS = ("&", "|", "->", "<->")
_WEIGHTS = (4, 3, 4, 1)


def write(formula: Formula) -> str:
    """The formula as text; what has two operands is put in parentheses within others."""
    operator, *parts = formula
    operands = [f"({write(part)})" if len(part) == 3 else write(part) for part in parts]
    return f" {operator} ".join(operands) if len(parts) == 2 else operator + "".join(operands)


def draw_formula(draw: Draw, atoms: Sequence[str], depth: int) -> Formula:
    """A random formula in which at most `depth` operators are nested, none between equal formulas."""
    if depth == 0 or draw.uniform() < 0.3:
        return (draw.choice(atoms),)
    if draw.uniform() < 0.2:
        return ("~", draw_formula(draw, atoms, depth - 1))
    left, right = draw_formula(draw, atoms, depth - 1), draw_formula(draw, atoms, depth - 1)
    return left if left == right else (draw.weighted(OPERATORS, _WEIGHTS), left, right)


def all_rows(atoms: Sequence[str]) -> int:
    """The truth table of what always holds: a one for each of the 2^n rows."""
    return (1 << (1 << len(atoms))) - 1


def truth(formula: Formula, atoms: Sequence[str]) -> int:
    """The truth table as an integer: bit i is the value in row i, in which atom k has bit k of i."""
    rows = all_rows(atoms)
    operator, *parts = formula
    if operator == "False":
        return 0
    if not parts:
        # rows in which bit k is set: 2^k zeros, then 2^k ones, and so on
        return rows // ((1 << (1 << atoms.index(operator))) + 1) << (1 << atoms.index(operator))
    values = [truth(part, atoms) for part in parts]
    if operator == "~":
        return rows ^ values[0]
    left, right = values
    return {"&": left & right, "|": left | right, "->": rows ^ left | right, "<->": rows ^ left ^ right}[operator]


def entails(premises: Sequence[Formula], goal: Formula, atoms: Sequence[str]) -> bool:
    """Whether the goal holds in every row in which the premises hold."""
    rows = all_rows(atoms)
    for premise in premises:
        rows &= truth(premise, atoms)
    return not rows & ~truth(goal, atoms)


def all_needed(premises: Sequence[Formula], goal: Formula, atoms: Sequence[str]) -> bool:
    """Whether no premise can be left out, if together they entail the goal."""
    subsets = ([*premises[:index], *premises[index + 1 :]] for index in range(len(premises)))
    return not any(entails(subset, goal, atoms) for subset in subsets)


def canonical(premises: list[str], goal: str, letters: str) -> str:
    """The same text for problems that differ in the order of what is given or in the names of the letters only."""
    used_letters = "".join(letter for letter in letters if any(letter in text for text in (*premises, goal)))
    tables = [str.maketrans(used_letters, "".join(order)) for order in permutations(letters[: len(used_letters)])]
    renamings = ([text.translate(table) for text in (*premises, goal)] for table in tables)
    return min("; ".join([*sorted(lines[:-1]), lines[-1]]) for lines in renamings)
