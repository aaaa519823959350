"""Proofs in propositional logic: what follows from premises, to be shown line by line with natural deduction.

Every problem is made from a derivation, which is its reference proof; any proof counts, and the verifier's kernel
checks each line. No premise can be left out, and the premises do not contradict each other.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.errors import ConfigError
from groupwise.randomness import Draw, key
from groupwise.tasks.base import TEMPLATES, Candidate, GeneratedConfig, Template
from groupwise.tasks.proofs.base import DrawnTask, canonical
from groupwise.tasks.proofs.derivations import DeadEndError, Derivation
from groupwise.tasks.proofs.formulas import all_needed, write
from groupwise.types import Problem

ATOMS = "PQRST"
MAX_FORMULA = 40
"""Characters of a premise or a goal."""
AIMED_ATTEMPTS = 8
"""Derivations to try for a proof at least as long as was drawn; then any length in the range will do."""
MAX_ATTEMPTS = 20_000
"""Derivations to try at all."""

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
    """How a problem becomes a prompt."""
    num_atoms: int = Field(default=3, ge=2, le=5)
    """Different letters that may occur in a problem."""
    min_lines: int = Field(default=3, ge=2)
    """Fewest lines of a reference proof, premises and assumptions counted."""
    max_lines: int = Field(default=10, le=30)
    """Most lines of a reference proof."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.min_lines > self.max_lines:
            raise ValueError(
                f"min_lines = {self.min_lines} is above max_lines = {self.max_lines}; at most {self.max_lines} is "
                "allowed"
            )
        return self


class PropositionalProofs(DrawnTask):
    """Problems such as `From P -> Q and P prove Q.`."""

    name: ClassVar[str] = "propositional_proofs"
    verifier: ClassVar[str] = "propositional_proof"
    Config = PropositionalProofsConfig
    config: PropositionalProofsConfig

    def draw_candidate(self, draw: Draw) -> Candidate:
        return draw_problem(draw, self.config)


def draw_problem(draw: Draw, config: PropositionalProofsConfig) -> Candidate:
    """A provable problem; its content is the premises and the goal up to the order and the names of the atoms.

    Raises:
        ConfigError: derivations of such a length are too rare.
    """
    wanted = draw.integer(config.min_lines, config.max_lines)
    for attempt in range(MAX_ATTEMPTS):
        shortest = wanted if attempt < AIMED_ATTEMPTS else config.min_lines
        made = _derive(draw, ATOMS[: config.num_atoms], wanted)
        if made is not None and shortest <= len(made.lines()) <= config.max_lines:
            return _problem(made)
    raise ConfigError(
        f"task.min_lines = {config.min_lines}: none of {MAX_ATTEMPTS} derivations with {config.num_atoms} letters has "
        f"{config.min_lines} to {config.max_lines} lines; allow other lengths or more letters"
    )


def _derive(draw: Draw, atoms: str, wanted: int) -> Derivation | None:
    """A derivation of about as many lines as wanted, if it makes a problem."""
    try:
        made = Derivation(draw, atoms, depth=1 + wanted // 3)
    except DeadEndError:
        return None
    premises, goal = list(made.premises), made.root.formula
    short = max(map(len, map(write, [*premises, goal]))) <= MAX_FORMULA
    return made if short and goal not in premises and all_needed(premises, goal, atoms) else None


def _problem(made: Derivation) -> Candidate:
    given, wanted, lines = [write(premise) for premise in made.premises], write(made.root.formula), made.lines()
    content = canonical(given, wanted, ATOMS)
    problem = Problem(
        id=f"propositional_proofs/{key(content):016x}",
        question=f"{_listed(given)} {wanted}.",
        reference="\n".join(lines),
        difficulty=f"{len(lines)} lines",
        data={"premises": given, "goal": wanted},
    )
    return content, problem


def _listed(given: Sequence[str]) -> str:
    if not given:
        return "Without premises prove"
    *first, last = given
    return f"From {', '.join(first)} and {last} prove" if first else f"From {last} prove"
