"""Proofs of equations in groups, rings and semigroups: chains of rewriting steps.

Every problem is a random walk along the equations, which is its reference proof; any chain counts, and the verifier's
kernel checks each step. A semigroup has equations between constants of its own (a word problem).

A term is a tuple of an operator and its operands; a leaf is a tuple of its name. The verifier has its own parser and
kernel, so that what is generated here is checked there by other code.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.errors import ConfigError
from groupwise.randomness import Draw, key
from groupwise.tasks.base import TEMPLATES, Candidate, DrawnTask, GeneratedConfig, Template
from groupwise.tasks.proofs.formulas import canonical
from groupwise.types import Problem

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
    """The term as text; what has two operands is put in parentheses within others."""
    head, *parts = term
    if head == "inv":
        return f"inv({write(parts[0])})"
    operands = [f"({write(part)})" if len(part) == 3 else write(part) for part in parts]
    return f" {head} ".join(operands) if len(parts) == 2 else head + "".join(operands)


def size(term: Term) -> int:
    """The number of leaves and operators."""
    return 1 + sum(map(size, term[1:]))


def draw_term(draw: Draw, theory: Theory, constants: str, num_leaves: int) -> Term:
    """A random term with this number of leaves."""
    if num_leaves > 1:
        left = draw.integer(1, num_leaves - 1)
        parts = (draw_term(draw, theory, constants, count) for count in (left, num_leaves - left))
        return (draw.choice(theory.binary), *parts)
    leaf = (draw.choice(constants),)
    return (theory.unary, leaf) if theory.unary and draw.uniform() < 0.25 else leaf


def rewritten(term: Term, pattern: Term, result: Term, filler: Term) -> Iterator[Term]:
    """What the term becomes by one use of `pattern = result`, at every place; `filler` replaces unbound variables."""
    binding = match(pattern, term, {})
    if binding is not None:
        yield substitute(result, dict.fromkeys(_VARIABLES, filler) | binding)
    for index in range(1, len(term)):
        for part in rewritten(term[index], pattern, result, filler):
            yield (*term[:index], part, *term[index + 1 :])


def match(pattern: Term, term: Term, binding: Mapping[Term, Term]) -> dict[Term, Term] | None:
    """The variables' terms that make the pattern the term, in addition to those bound; None if there are none."""
    if pattern in _VARIABLES:
        return {**binding, pattern: term} if binding.get(pattern, term) == term else None
    if pattern[0] != term[0] or len(pattern) != len(term):
        return None
    bindings: dict[Term, Term] | None = dict(binding)
    for part, counterpart in zip(pattern[1:], term[1:], strict=True):
        bindings = match(part, counterpart, bindings) if bindings is not None else None
    return bindings


def substitute(term: Term, binding: Mapping[Term, Term]) -> Term:
    """The term with its variables replaced."""
    return binding.get(term) or (term[0], *(substitute(part, binding) for part in term[1:]))


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
    def _check_range(self) -> Self:
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
    answers_any_question: ClassVar[bool] = False
    Config = EquationalProofsConfig
    config: EquationalProofsConfig

    def draw(self, index: int) -> Candidate:
        return draw_problem(Draw(self.name, index), self.config)


def draw_problem(draw: Draw, config: EquationalProofsConfig) -> Candidate:
    """A provable equation; its content is the theory, the given equations and the goal up to the constants' names.

    Raises:
        ConfigError: chains of such a length are too rare among terms of such a size.
    """
    name = draw.choice(config.theories)
    num_steps = draw.integer(config.min_steps, config.max_steps)
    for _ in range(MAX_ATTEMPTS):
        relations, terms, names = _draw_chain(draw, name, num_steps, config)
        if len(names) == num_steps and len(set(names)) >= min(2, num_steps):
            return _problem(name, relations, terms, names)
    raise ConfigError(
        f"task.max_size = {config.max_size}: none of {MAX_ATTEMPTS} walks in a {name} has {num_steps} steps; allow "
        "larger terms or fewer steps"
    )


def _draw_chain(
    draw: Draw, name: TheoryName, num_steps: int, config: EquationalProofsConfig
) -> tuple[dict[str, Equation], list[Term], list[str]]:
    """Given equations, the terms of a chain and the names between; the larger side first, so that most simplify."""
    theory, constants = THEORIES[name], CONSTANTS[: config.num_constants]
    relations = draw_relations(draw, constants) if name == "semigroup" else {}
    start = draw_term(draw, theory, constants, draw.integer(2, 4))
    terms, names = walk(draw, start, {**theory.equations, **relations}, constants, num_steps, config.max_size)
    if size(terms[0]) < size(terms[-1]):
        terms, names = terms[::-1], names[::-1]
    return relations, terms, names


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
            successors = rewritten(terms[-1], pattern, result, (draw.choice(constants),))
            candidates = [term for term in successors if term not in terms and size(term) <= max_size]
            if candidates:
                terms.append(draw.choice(candidates))
                names.append(name)
                break
        else:
            break
    return terms, names[1:]


def _problem(name: TheoryName, relations: Mapping[str, Equation], terms: list[Term], names: list[str]) -> Candidate:
    equations = {label: _write(equation) for label, equation in {**THEORIES[name].equations, **relations}.items()}
    goal = _write((terms[0], terms[-1]))
    content = f"{name}: {canonical([_write(equation) for equation in relations.values()], goal, CONSTANTS)}"
    listing = "\n".join(f"{label}: {equation}" for label, equation in equations.items())
    steps = (f"= {write(term)} by {rule}" for term, rule in zip(terms[1:], names, strict=True))
    problem = Problem(
        id=f"equational_proofs/{key(content):016x}",
        question=f"Given\n{listing}\nprove {goal}.",
        reference="\n".join([write(terms[0]), *steps]),
        difficulty=f"{name} {len(names)} step{'s' if len(names) > 1 else ''}",
        data={"equations": equations, "goal": goal},
    )
    return content, problem


def _write(equation: Equation) -> str:
    return f"{write(equation[0])} = {write(equation[1])}"
