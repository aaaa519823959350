"""Proofs in propositional logic: what follows from premises, to be shown line by line with natural deduction.

Every problem is made from a derivation, which is its reference proof; any proof counts, and the verifier's kernel
checks each line. No premise can be left out, and the premises do not contradict each other.

Derivations are made from the goal upwards; a leaf that nothing else proves is a premise. Eliminations take their main
formula from premises, assumptions or other eliminations, never from an introduction, so a derivation has no detours
(Prawitz 1965: it is normal).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, permutations
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.errors import ConfigError
from groupwise.randomness import Draw, key
from groupwise.tasks.base import TEMPLATES, Candidate, GeneratedConfig, GeneratedTask, Template
from groupwise.types import Problem

Formula = tuple[Any, ...]
"""`(atom,)`, `("False",)`, `("~", formula)` or `(operator, formula, formula)`."""

FALSE: Formula = ("False",)
OPERATORS = ("&", "|", "->", "<->")
_OPERATOR_WEIGHTS = (4, 3, 4, 1)


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
    return left if left == right else (draw.weighted(OPERATORS, _OPERATOR_WEIGHTS), left, right)


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
    """True where the goal holds in every row in which the premises hold."""
    rows = all_rows(atoms)
    for premise in premises:
        rows &= truth(premise, atoms)
    return not rows & ~truth(goal, atoms)


def all_needed(premises: Sequence[Formula], goal: Formula, atoms: Sequence[str]) -> bool:
    """True where no premise can be left out of those that entail the goal."""
    subsets = ([*premises[:index], *premises[index + 1 :]] for index in range(len(premises)))
    return not any(entails(subset, goal, atoms) for subset in subsets)


def canonical(premises: list[str], goal: str, letters: str) -> str:
    """The same text for problems that differ in the order of what is given or in the names of the letters only."""
    used_letters = "".join(letter for letter in letters if any(letter in text for text in (*premises, goal)))
    tables = [str.maketrans(used_letters, "".join(order)) for order in permutations(letters[: len(used_letters)])]
    renamings = ([text.translate(table) for text in (*premises, goal)] for table in tables)
    return min("; ".join([*sorted(lines[:-1]), lines[-1]]) for lines in renamings)


@dataclass(frozen=True, eq=False)
class Node:
    """A formula, the rule that gives it and what the rule cites; compared by identity."""

    formula: Formula
    rule: str
    cited: tuple["Node", ...] = ()


Context = tuple[Node, ...]


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
        numbers: dict[Node, int] = {}
        lines: list[str] = []
        for node in (*self.premises.values(), self.root):
            _write(node, numbers, lines)
        return lines

    def derive(self, goal: Formula, depth: int, context: Context) -> Node:
        node = next((node for node in context if node.formula == goal), None)
        if node is not None:
            return node
        if depth <= 0:
            return self._leaf(goal, context)
        introduce = _INTRODUCTIONS.get(goal[0])
        if introduce is not None and self.draw.uniform() < 0.7:
            return introduce(self, goal, depth - 1, context)
        return self.draw.weighted(_ELIMINATIONS, _ELIMINATION_WEIGHTS)(self, goal, depth - 1, context)

    def _leaf(self, goal: Formula, context: Context) -> Node:
        if not context or self.draw.uniform() < 0.3:
            return self._premise(goal)
        assumption = self.draw.choice(context)
        return Node(goal, "->E", (self._premise(("->", assumption.formula, goal)), assumption))

    def _premise(self, formula: Formula) -> Node:
        if formula not in self.premises:
            rows = self._rows & truth(formula, self.atoms)
            if rows in (0, self._rows):
                raise DeadEndError
            self._rows = rows
            self.premises[formula] = Node(formula, "premise")
        return self.premises[formula]

    def main(self, formula: Formula, depth: int, context: Context) -> Node:
        node = next((node for node in context if node.formula == formula), None)
        if node is not None or depth <= 0 or self.draw.uniform() < 0.6:
            return node or self._premise(formula)
        return self.draw.choice((self.and_elim, self.implies_elim))(formula, depth - 1, context)

    def intermediate(self, context: Context) -> Formula:
        if context and self.draw.uniform() < 0.6:
            return self.draw.choice(context).formula
        return draw_formula(self.draw, self.atoms, 1)

    def implies_intro(self, goal: Formula, depth: int, context: Context) -> Node:
        start = Node(goal[1], "assume")
        return Node(goal, "->I", (start, self.derive(goal[2], depth, (*context, start))))

    def not_intro(self, goal: Formula, depth: int, context: Context) -> Node:
        start = Node(goal[1], "assume")
        return Node(goal, "~I", (start, self.derive(FALSE, depth, (*context, start))))

    def iff_intro(self, goal: Formula, depth: int, context: Context) -> Node:
        _, left, right = goal
        ways = [("->", left, right), ("->", right, left)]
        return Node(goal, "<->I", tuple(self.derive(way, depth, context) for way in ways))

    def contradiction(self, goal: Formula, depth: int, context: Context) -> Node:
        claim = self.intermediate(context)
        if claim[0] == "~":
            return Node(goal, "~E", (self.derive(claim[1], depth, context), self.main(claim, depth, context)))
        return Node(goal, "~E", (self.derive(claim, depth, context), self.main(("~", claim), depth, context)))

    def implies_elim(self, goal: Formula, depth: int, context: Context) -> Node:
        condition = self.intermediate(context)
        main = self.main(("->", condition, goal), depth, context)
        return Node(goal, "->E", (main, self.derive(condition, depth, context)))

    def and_elim(self, goal: Formula, depth: int, context: Context) -> Node:
        left, right = self.draw.shuffled([goal, draw_formula(self.draw, self.atoms, 1)])
        return Node(goal, "&E", (self.main(("&", left, right), depth, context),))

    def iff_elim(self, goal: Formula, depth: int, context: Context) -> Node:
        condition = self.intermediate(context)
        left, right = self.draw.shuffled([condition, goal])
        main = Node(("->", condition, goal), "<->E", (self.main(("<->", left, right), depth, context),))
        return Node(goal, "->E", (main, self.derive(condition, depth, context)))

    def or_elim(self, goal: Formula, depth: int, context: Context) -> Node:
        cases = [Node(draw_formula(self.draw, self.atoms, 1), "assume") for _ in range(2)]
        main = self.main(("|", cases[0].formula, cases[1].formula), depth, context)
        conclusions = [self.derive(goal, depth, (*context, case)) for case in cases]
        return Node(goal, "|E", (main, cases[0], conclusions[0], cases[1], conclusions[1]))

    def by_absurdity(self, goal: Formula, depth: int, context: Context) -> Node:
        if any(node.formula == ("~", goal) for node in context):  # once is enough
            return self.false_elim(goal, depth, context)
        return Node(goal, "~~E", (self.not_intro(("~", ("~", goal)), depth, context),))

    def false_elim(self, goal: Formula, depth: int, context: Context) -> Node:
        return Node(goal, "FalseE", (self.contradiction(FALSE, depth, context),))


def _write(node: Node, numbers: dict[Node, int], lines: list[str]) -> None:
    if node in numbers:
        return
    for cited in node.cited:
        _write(cited, numbers, lines)
    numbers[node] = len(lines) + 1
    reason = " ".join([node.rule, *(str(numbers[cited]) for cited in node.cited)])
    lines.append(f"{numbers[node]}. {write(node.formula)} by {reason}")


Way = Callable[[Derivation, Formula, int, Context], Node]
_INTRODUCTIONS: dict[str, Way] = {
    "&": lambda derivation, goal, depth, context: Node(
        goal, "&I", tuple(derivation.derive(part, depth, context) for part in goal[1:])
    ),
    "|": lambda derivation, goal, depth, context: Node(
        goal, "|I", (derivation.derive(derivation.draw.choice(goal[1:]), depth, context),)
    ),
    "->": Derivation.implies_intro,
    "~": Derivation.not_intro,
    "<->": Derivation.iff_intro,
    "False": Derivation.contradiction,
}
_ELIMINATIONS: tuple[Way, ...] = (
    Derivation.implies_elim,
    Derivation.and_elim,
    Derivation.iff_elim,
    Derivation.or_elim,
    Derivation.by_absurdity,
    Derivation.false_elim,
)
_ELIMINATION_WEIGHTS = (6, 3, 2, 3, 1, 1)


ATOMS = "PQR"
"""Letters that may occur in a problem."""
MIN_LINES = 3
"""Fewest lines of a reference proof."""
MAX_FORMULA = 40
"""Characters of a premise or a goal."""
AIMED_ATTEMPTS = 8
"""Derivations to try for a proof at least as long as was drawn; then any length in the range will do."""
MAX_ATTEMPTS = 20_000
"""Most derivations to try."""

NATURAL_DEDUCTION = Template(
    prompt="""Prove the goal by natural deduction. Write one line per step: `number. formula by rule numbers`, where \
the numbers after the rule are the lines that it cites, in the order below. Connectives: ~ & | -> <-> and False.
premise (a given formula); assume (anything; what follows depends on it until it is discharged)
copy (A; gives A); &I (A, B; gives A & B); &E (A & B; gives A or B); |I (A; gives A | B or B | A)
|E (A | B, assumption A, C, assumption B, C; gives C)
->I (assumption A, B; gives A -> B); ->E (A -> B, A; gives B)
~I (assumption A, False; gives ~A); ~E (A, ~A; gives False); ~~E (~~A; gives A); FalseE (False; gives anything)
<->I (A -> B, B -> A; gives A <-> B); <->E (A <-> B; gives A -> B or B -> A)
For example, from P & Q prove P -> Q:
\\boxed{
1. P & Q by premise
2. P by assume
3. Q by &E 1
4. P -> Q by ->I 2 3
}
The last line is the goal and depends on no assumption. Think inside <think> </think>, then give the proof inside \
\\boxed{}.
{question}
""",
    gold="<think></think>\\boxed{{\n{reference}\n}}",
)
"""Default template: the rules, their form and an example."""


class PropositionalProofsConfig(GeneratedConfig):
    """Dials of the propositional proofs."""

    template: Annotated[Template, TEMPLATES] = NATURAL_DEDUCTION
    """Makes the prompt of a problem."""
    max_lines: int = Field(default=10, ge=MIN_LINES, le=30)
    """Most lines of a reference proof, premises and assumptions counted; the fewest are 3."""


class PropositionalProofs(GeneratedTask):
    """Problems such as `From P -> Q and P prove Q.`."""

    name: ClassVar[str] = "propositional_proofs"
    verifier: ClassVar[str] = "propositional_proof"
    answers_any_question: ClassVar[bool] = False
    Config = PropositionalProofsConfig
    config: PropositionalProofsConfig

    def candidates(self) -> Iterator[Candidate]:
        return (draw_problem(Draw(self.name, index), self.config) for index in count())


def draw_problem(draw: Draw, config: PropositionalProofsConfig) -> Candidate:
    """A provable problem; its content is the premises and the goal up to the order and the names of the atoms."""
    num_lines = draw.integer(MIN_LINES, config.max_lines)
    for attempt in range(MAX_ATTEMPTS):
        shortest = num_lines if attempt < AIMED_ATTEMPTS else MIN_LINES
        try:
            derivation = Derivation(draw, ATOMS, depth=1 + num_lines // 3)
        except DeadEndError:
            continue
        premises, goal = list(derivation.premises), derivation.root.formula
        is_short = max(map(len, map(write, [*premises, goal]))) <= MAX_FORMULA
        fits = is_short and goal not in premises and all_needed(premises, goal, ATOMS)
        if fits and shortest <= len(derivation.lines()) <= config.max_lines:
            break
    else:
        raise ConfigError(
            f"task.max_lines = {config.max_lines}: none of {MAX_ATTEMPTS} derivations has {MIN_LINES} to "
            f"{config.max_lines} lines; allow longer ones"
        )
    lines, stated, conclusion = derivation.lines(), [write(premise) for premise in premises], write(goal)
    listing = " and ".join([*filter(None, [", ".join(stated[:-1])]), *stated[-1:]])
    content = canonical(stated, conclusion, ATOMS)
    problem = Problem(
        id=f"propositional_proofs/{key(content):016x}",
        question=f"{f'From {listing}' if stated else 'Without premises'} prove {conclusion}.",
        reference="\n".join(lines),
        difficulty=f"{len(lines)} lines",
        data={"premises": stated, "goal": conclusion},
    )
    return content, problem
