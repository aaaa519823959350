"""Proofs of equations in groups, rings and semigroups: chains of rewriting steps.

Every problem is a random walk along the equations, which is its reference proof; any chain counts, and the verifier's
kernel checks each step. A semigroup has equations between constants of its own (a word problem).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.errors import ConfigError
from groupwise.randomness import Draw, key
from groupwise.tasks.base import TEMPLATES, Candidate, GeneratedConfig, Template
from groupwise.tasks.proofs.base import DrawnTask, canonical
from groupwise.tasks.proofs.terms import (
    CONSTANTS,
    THEORIES,
    Equation,
    Term,
    TheoryName,
    draw_term,
    rewritten,
    size,
    write,
)
from groupwise.types import Problem

MAX_ATTEMPTS = 1000
"""Walks to try for a chain of the length that was drawn."""

CHAIN = Template(
    prompt="""Prove the goal by a chain of equalities. The first line is the left side of the goal; every other line \
is `= term by name`, where one use of the named equation on one part of the term before gives the term. Equations may \
be used in both directions; x, y, z stand for any terms, other letters are fixed. The last term is the right side of \
the goal. For example, from one_right: x * 1 = x and inv_right: x * inv(x) = 1 prove a * (b * inv(b)) = a:
\\boxed{
a * (b * inv(b))
= a * 1 by inv_right
= a by one_right
}
Think inside <think> </think>, then give the chain inside \\boxed{}.
{question}
""",
    gold="<think></think>\\boxed{{\n{reference}\n}}",
)
"""Default template: the form of a chain and an example."""


class EquationalProofsConfig(GeneratedConfig):
    """Dials of the equational proofs."""

    template: Annotated[Template, TEMPLATES] = CHAIN
    """How a problem becomes a prompt."""
    theories: tuple[TheoryName, ...] = Field(default=("group", "ring", "semigroup"), min_length=1)
    """Theories of the problems, each as likely: `group`, `ring`, `semigroup`."""
    min_steps: int = Field(default=1, ge=1)
    """Fewest steps of a reference proof; there may be a shorter one."""
    max_steps: int = Field(default=5, le=20)
    """Most steps of a reference proof."""
    num_constants: int = Field(default=3, ge=2, le=len(CONSTANTS))
    """Different letters that may occur in a problem."""
    max_size: int = Field(default=13, ge=7, le=31)
    """Most leaves and operators of a term."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.min_steps > self.max_steps:
            raise ValueError(
                f"min_steps = {self.min_steps} is above max_steps = {self.max_steps}; at most {self.max_steps} is "
                "allowed"
            )
        return self


class EquationalProofs(DrawnTask):
    """Problems such as `Given inv_right: x * inv(x) = 1 ... prove a * (b * inv(b)) = a.`."""

    name: ClassVar[str] = "equational_proofs"
    verifier: ClassVar[str] = "equational_proof"
    Config = EquationalProofsConfig
    config: EquationalProofsConfig

    def draw_candidate(self, draw: Draw) -> Candidate:
        return draw_problem(draw, self.config)


def draw_problem(draw: Draw, config: EquationalProofsConfig) -> Candidate:
    """A provable equation; its content is the theory, the given equations and the goal up to the constants' names.

    Raises:
        ConfigError: chains of such a length are too rare among terms of such a size.
    """
    name = draw.choice(config.theories)
    num_steps = draw.integer(config.min_steps, config.max_steps)
    for _ in range(MAX_ATTEMPTS):
        given, terms, names = _draw_chain(draw, name, num_steps, config)
        if len(names) == num_steps and len(set(names)) >= min(2, num_steps):
            return _problem(name, given, terms, names)
    raise ConfigError(
        f"task.max_size = {config.max_size}: none of {MAX_ATTEMPTS} walks in a {name} has {num_steps} steps; allow "
        "larger terms or fewer steps"
    )


def _draw_chain(
    draw: Draw, name: TheoryName, num_steps: int, config: EquationalProofsConfig
) -> tuple[dict[str, Equation], list[Term], list[str]]:
    """Given equations, the terms of a chain and the names between; the larger side first, so that most simplify."""
    theory, constants = THEORIES[name], CONSTANTS[: config.num_constants]
    given = draw_relations(draw, constants) if name == "semigroup" else {}
    start = draw_term(draw, theory, constants, draw.integer(2, 4))
    terms, names = walk(draw, start, {**theory.equations, **given}, constants, num_steps, config.max_size)
    if size(terms[0]) < size(terms[-1]):
        terms, names = terms[::-1], names[::-1]
    return given, terms, names


def draw_relations(draw: Draw, constants: str) -> dict[str, Equation]:
    """Two equations such as `a * b = c`."""
    relations: dict[str, Equation] = {}
    for number in (1, 2):
        left, right, result = ((draw.choice(constants),) for _ in range(3))
        relations[f"given_{number}"] = (("*", left, right), result)
    return relations


def walk(
    draw: Draw, start: Term, equations: Mapping[str, Equation], constants: str, num_steps: int, max_size: int
) -> tuple[list[Term], list[str]]:
    """Terms that follow each other by one equation, none twice, and the equations' names; shorter at a dead end."""
    terms, names = [start], [""]
    ways = [(name, *pair) for name, (left, right) in equations.items() for pair in ((left, right), (right, left))]
    while len(names) <= num_steps:
        for name, pattern, result in draw.shuffled(ways):
            found = rewritten(terms[-1], pattern, result, (draw.choice(constants),))
            fresh = [term for term in found if term not in terms and size(term) <= max_size]
            if fresh:
                terms.append(draw.choice(fresh))
                names.append(name)
                break
        else:
            break
    return terms, names[1:]


def _problem(name: TheoryName, given: Mapping[str, Equation], terms: list[Term], names: list[str]) -> Candidate:
    equations = {each: _write(equation) for each, equation in {**THEORIES[name].equations, **given}.items()}
    goal = _write((terms[0], terms[-1]))
    content = f"{name}: {canonical([_write(equation) for equation in given.values()], goal, CONSTANTS)}"
    listed = "\n".join(f"{each}: {equation}" for each, equation in equations.items())
    steps = (f"= {write(term)} by {by}" for term, by in zip(terms[1:], names, strict=True))
    problem = Problem(
        id=f"equational_proofs/{key(content):016x}",
        question=f"Given\n{listed}\nprove {goal}.",
        reference="\n".join([write(terms[0]), *steps]),
        difficulty=f"{name} {len(names)} step{'s' if len(names) > 1 else ''}",
        data={"equations": equations, "goal": goal},
    )
    return content, problem


def _write(equation: Equation) -> str:
    return f"{write(equation[0])} = {write(equation[1])}"
