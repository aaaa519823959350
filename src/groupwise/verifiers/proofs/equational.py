"""Proofs of equations as chains.

    a * (b * inv(b))
    = a * 1 by inverse
    = a by identity

Each step rewrites one part of the term by a named equation, in either direction. The chain leads from the left side
of the goal to its right side. In the named equations x y z u v w stand for any terms; other letters are constants.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding
from groupwise.verifiers.proofs.base import KernelVerifier
from groupwise.verifiers.proofs.expressions import TERMS, Expression, UnreadableError, parse_stated
from groupwise.verifiers.proofs.natural_deduction import RuleError
from groupwise.verifiers.proofs.rewriting import Axiom, Equality, reflexivity, rewrite

MAX_STEPS = 200


class Step(NamedTuple):
    """A term of a chain, and the equation that makes it from the term before; the first term has none."""

    line: int
    """Line, counted from 1 with the blank ones."""
    term: Expression
    by: str


class EquationalVerifier(KernelVerifier):
    """Needs `problem.data["equations"]` (name to equation) and `problem.data["goal"]` (an equation of constants)."""

    def find(self, problem: Problem, proof: str) -> Finding:
        """What is found out about a proof; see `KernelVerifier.find`."""
        equations = {name: _equation(text) for name, text in problem.data["equations"].items()}
        goal = _equation(problem.data["goal"])
        steps = list(read(proof))
        fault = _fault(prove(steps, equations), goal)
        text = "\n= ".join(TERMS.write(step.term) + (f" by {step.by}" if step.by else "") for step in steps)
        return Finding(
            Outcome.WRONG if fault else Outcome.CORRECT, fault or f"proved in {len(steps) - 1} steps of rewriting", text
        )


def _equation(text: str) -> Axiom:
    left, _, right = text.partition("=")
    try:
        return Axiom(parse_stated(TERMS, left), parse_stated(TERMS, right))
    except UnreadableError as error:
        raise ValueError(f"{text!r}: {error}") from None


def read(proof: str) -> Iterator[Step]:
    """The steps of a chain; the first equals sign may be on the first line; blank lines are skipped.

    Raises:
        UnreadableError: names the line, counted from 1 with the blank ones.
    """
    texts = TERMS.normalise(proof).strip().split("\n")
    if len(texts) > MAX_STEPS:
        raise UnreadableError(f"the proof has {len(texts)} lines, at most {MAX_STEPS} are read")
    for line, text in enumerate(texts, start=1):
        start, equals, reason = text.strip().partition("=")
        try:
            if line == 1:
                yield Step(line, TERMS.parse(start), "")
            elif start:
                raise UnreadableError(f"{text.strip()[:40]!r} is not of the form `= term by name`")
            if equals:
                yield _read_step(line, reason)
        except UnreadableError as error:
            raise UnreadableError(f"line {line}: {error}") from None


def _read_step(line: int, text: str) -> Step:
    term, separator, name = " ".join(text.split()).rpartition(" by ")
    if not separator or " " in name:
        raise UnreadableError(f"after '=' comes {text.strip()[:40]!r}, not `term by name`")
    return Step(line, TERMS.parse(term), name)


def prove(steps: Sequence[Step], equations: Mapping[str, Axiom]) -> Equality:
    """The equality of the first and the last term.

    Raises:
        RuleError: names the line that does not follow.
    """
    equality = reflexivity(steps[0].term)
    for line, term, name in steps[1:]:
        if name not in equations:
            raise RuleError(
                f"line {line}: there is no equation {name[:20]!r}; the equations are {', '.join(equations)}"
            )
        try:
            equality = rewrite(equality, equations[name], term)
        except RuleError as error:
            raise RuleError(f"line {line}: {name}: {error}") from None
    return equality


def _fault(equality: Equality, goal: Axiom) -> str:
    if equality.left != goal.left:
        return f"the chain begins with {TERMS.write(equality.left)}, not with {TERMS.write(goal.left)}"
    if equality.right != goal.right:
        return f"the chain ends with {TERMS.write(equality.right)}, not with {TERMS.write(goal.right)}"
    return ""
