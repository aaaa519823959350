"""Random derivations by natural deduction, made from the goal upwards; a leaf that nothing else proves is a premise.

Eliminations take their main formula from premises, assumptions or other eliminations, never from an introduction, so
a derivation has no detours (Prawitz 1965: it is normal).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.randomness import Draw
from groupwise.tasks.proofs.formulas import FALSE, Formula, all_rows, draw_formula, truth, write


@dataclass(frozen=True, eq=False)
class Node:
    """A formula, the rule that gives it and what the rule cites; compared by identity."""

    formula: Formula
    rule: str
    cited: tuple["Node", ...] = ()


Assumed = tuple[Node, ...]


class DeadEndError(Exception):
    """The derivation needs a premise that contradicts those it has, or that they entail."""


class Derivation:
    """Derives one random goal; `premises` grow as leaves need them."""

    def __init__(self, draw: Draw, atoms: Sequence[str], depth: int) -> None:
        self.draw, self.atoms = draw, atoms
        self.premises: dict[Formula, Node] = {}
        self._rows = all_rows(atoms)
        self.root = self.derive(draw_formula(draw, atoms, 2), depth, ())

    def lines(self) -> list[str]:
        """The proof as text, premises first, every other line after those that it cites."""
        numbers: dict[Node, int] = {}
        lines: list[str] = []
        for node in (*self.premises.values(), self.root):
            _write(node, numbers, lines)
        return lines

    def derive(self, goal: Formula, depth: int, assumed: Assumed) -> Node:
        """A derivation of the goal in which at most about `depth` rules follow each other."""
        known = next((node for node in assumed if node.formula == goal), None)
        if known is not None:
            return known
        if depth <= 0:
            return self._leaf(goal, assumed)
        introduce = _INTRODUCTIONS.get(goal[0])
        if introduce is not None and self.draw.uniform() < 0.7:
            return introduce(self, goal, depth - 1, assumed)
        return self.draw.weighted(_ELIMINATIONS, _WEIGHTS)(self, goal, depth - 1, assumed)

    def _leaf(self, goal: Formula, assumed: Assumed) -> Node:
        """A premise, or an assumption that a premise leads from to the goal."""
        if not assumed or self.draw.uniform() < 0.3:
            return self._premise(goal)
        known = self.draw.choice(assumed)
        return Node(goal, "->E", (self._premise(("->", known.formula, goal)), known))

    def _premise(self, formula: Formula) -> Node:
        if formula not in self.premises:
            rows = self._rows & truth(formula, self.atoms)
            if rows in (0, self._rows):
                raise DeadEndError
            self._rows = rows
            self.premises[formula] = Node(formula, "premise")
        return self.premises[formula]

    def main(self, formula: Formula, depth: int, assumed: Assumed) -> Node:
        """The main formula of an elimination."""
        known = next((node for node in assumed if node.formula == formula), None)
        if known is not None or depth <= 0 or self.draw.uniform() < 0.6:
            return known or self._premise(formula)
        return self.draw.choice((_and_elim, _implies_elim))(self, formula, depth - 1, assumed)

    def some(self, assumed: Assumed) -> Formula:
        """A formula to go by way of: an assumption if there is one, or a small new one."""
        if assumed and self.draw.uniform() < 0.6:
            return self.draw.choice(assumed).formula
        return draw_formula(self.draw, self.atoms, 1)


def _write(node: Node, numbers: dict[Node, int], lines: list[str]) -> None:
    if node in numbers:
        return
    for cited in node.cited:
        _write(cited, numbers, lines)
    numbers[node] = len(lines) + 1
    reason = " ".join([node.rule, *(str(numbers[cited]) for cited in node.cited)])
    lines.append(f"{numbers[node]}. {write(node.formula)} by {reason}")


def _and_intro(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    return Node(goal, "&I", tuple(made.derive(part, depth, assumed) for part in goal[1:]))


def _or_intro(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    return Node(goal, "|I", (made.derive(made.draw.choice(goal[1:]), depth, assumed),))


def _implies_intro(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    start = Node(goal[1], "assume")
    return Node(goal, "->I", (start, made.derive(goal[2], depth, (*assumed, start))))


def _not_intro(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    start = Node(goal[1], "assume")
    return Node(goal, "~I", (start, made.derive(FALSE, depth, (*assumed, start))))


def _iff_intro(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    _, left, right = goal
    ways = [("->", left, right), ("->", right, left)]
    return Node(goal, "<->I", tuple(made.derive(way, depth, assumed) for way in ways))


def _contradiction(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    """False from a formula and its negation."""
    known = made.some(assumed)
    if known[0] == "~":
        return Node(goal, "~E", (made.derive(known[1], depth, assumed), made.main(known, depth, assumed)))
    return Node(goal, "~E", (made.derive(known, depth, assumed), made.main(("~", known), depth, assumed)))


def _implies_elim(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    condition = made.some(assumed)
    main = made.main(("->", condition, goal), depth, assumed)
    return Node(goal, "->E", (main, made.derive(condition, depth, assumed)))


def _and_elim(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    left, right = made.draw.shuffled([goal, draw_formula(made.draw, made.atoms, 1)])
    return Node(goal, "&E", (made.main(("&", left, right), depth, assumed),))


def _iff_elim(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    condition = made.some(assumed)
    left, right = made.draw.shuffled([condition, goal])
    main = Node(("->", condition, goal), "<->E", (made.main(("<->", left, right), depth, assumed),))
    return Node(goal, "->E", (main, made.derive(condition, depth, assumed)))


def _or_elim(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    cases = [Node(draw_formula(made.draw, made.atoms, 1), "assume") for _ in range(2)]
    main = made.main(("|", cases[0].formula, cases[1].formula), depth, assumed)
    reached = [made.derive(goal, depth, (*assumed, case)) for case in cases]
    return Node(goal, "|E", (main, cases[0], reached[0], cases[1], reached[1]))


def _by_absurdity(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    if any(node.formula == ("~", goal) for node in assumed):  # once is enough
        return _false_elim(made, goal, depth, assumed)
    return Node(goal, "~~E", (_not_intro(made, ("~", ("~", goal)), depth, assumed),))


def _false_elim(made: Derivation, goal: Formula, depth: int, assumed: Assumed) -> Node:
    return Node(goal, "FalseE", (_contradiction(made, FALSE, depth, assumed),))


Way = Callable[[Derivation, Formula, int, Assumed], Node]
_INTRODUCTIONS: dict[str, Way] = {
    "&": _and_intro, "|": _or_intro, "->": _implies_intro, "~": _not_intro, "<->": _iff_intro, "False": _contradiction,
}  # fmt: skip
_ELIMINATIONS: tuple[Way, ...] = (_implies_elim, _and_elim, _iff_elim, _or_elim, _by_absurdity, _false_elim)
_WEIGHTS = (6, 3, 2, 3, 1, 1)
