"""Equational proofs: hand cases, soundness in finite models, and the kernel against a slow search for the instance."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.randomness import Draw
from groupwise.tasks.proofs.equational import EquationalProofsConfig, draw_problem
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import make_verifier
from groupwise.verifiers.proofs.expressions import TERMS, Expression
from groupwise.verifiers.proofs.natural_deduction import RuleError
from groupwise.verifiers.proofs.rewriting import Axiom, Equality, reflexivity, rewrite

VERIFIER = make_verifier("equational_proof")
GROUP = {
    "assoc": "(x * y) * z = x * (y * z)", "one_right": "x * 1 = x", "one_left": "1 * x = x",
    "inv_right": "x * inv(x) = 1", "inv_left": "inv(x) * x = 1",
}  # fmt: skip


def judge(goal: str, *lines: str, equations: Mapping[str, str] = GROUP) -> Verdict:
    problem = Problem("p", "q", "", data={"equations": equations, "goal": goal})
    return VERIFIER.verify(problem, "\\boxed{" + "\n".join(lines) + "}")


@pytest.mark.parametrize(
    ("goal", "lines"),
    [
        ("a * (b * inv(b)) = a", ("a * (b * inv(b))", "= a * 1 by inv_right", "= a by one_right")),
        ("a * (b * inv(b)) = a", ("a*(b*inv(b)) = a·1 by inv_right", "", "  = a by one_right")),
        ("a = a", ("a",)),
        ("a * b * c = a * (b * c)", ("a * b * c", "= a * (b * c) by assoc")),
        ("inv(inv(a)) = a", (
            "inv(inv(a))", "= 1 * inv(inv(a)) by one_left", "= (a * inv(a)) * inv(inv(a)) by inv_right",
            "= a * (inv(a) * inv(inv(a))) by assoc", "= a * 1 by inv_right", "= a by one_right")),
    ],
)  # fmt: skip
def test_right_proofs(goal: str, lines: tuple[str, ...]) -> None:
    verdict = judge(goal, *lines)
    assert verdict.outcome is Outcome.CORRECT, verdict.evidence


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (("a * 1",), "the chain ends with a * 1, not with a"),
        (("a", "= a * 1 by one_right"), "the chain begins with a, not with a * 1"),
        (("a * 1", "= a by inv_right"), "line 2: inv_right: no single use"),
        (("a * 1", "= a by sorry"), "there is no equation 'sorry'"),
        (("a * 1", "= a * 1 by one_right"), "changes nothing"),
        (("a * 1", "= b by one_right", "= a by one_right"), "line 2"),
        # x must stand for the same term on both sides, constants for themselves
        (("a * 1", "= (b * inv(a)) * a by inv_right", "= a by one_right"), "line 2"),
        # two places in one step
        (("a * 1", "= (a * 1) * (1 * 1) by one_right", "= a by one_right"), "line 2"),
    ],
)
def test_wrong_proofs(lines: tuple[str, ...], evidence: str) -> None:
    verdict = judge("a * 1 = a", *lines)
    assert verdict.outcome is Outcome.WRONG
    assert evidence in verdict.evidence


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (("a * 1", "a by one_right"), "line 2: 'a by one_right' is not of the form"),
        (("a * 1", "= a"), "line 2: after '=' comes 'a'"),
        (("a * 1", "= a by one right"), "line 2: after '='"),
        (("a * 1", "= a * by one_right"), "line 2: 'the end'"),
        (("= a by one_right",), "line 1"),
        (("a ** 1", "= a by one_right"), "line 1: '*' where an operand"),
        (("inv a", "= a by one_right"), "line 1: 'a' where '('"),
        (("a - 1", "= a by one_right"), "line 1"),
        (("a * 1", *["= a by one_right"] * 300), "301 lines"),
        (("a" + " * a" * 100,), "201 symbols"),
    ],
)
def test_unreadable_proofs(lines: tuple[str, ...], evidence: str) -> None:
    verdict = judge("a * 1 = a", *lines)
    assert verdict.outcome is Outcome.UNPARSABLE
    assert evidence in verdict.evidence


def test_a_problem_without_equations_is_the_verifiers_failure() -> None:
    for data in ({}, {"equations": {}}, {"equations": {"e": "x"}, "goal": "a = a"}, {"equations": 1, "goal": "a = a"}):
        verdict = VERIFIER.verify(Problem("p", "q", "", data=data), "\\boxed{a}")
        assert verdict.outcome is Outcome.CRASHED


def test_only_rules_make_equalities() -> None:
    with pytest.raises(TypeError, match="only the rules"):
        Equality(Expression("0"), Expression("1"), object())


@given(st.text(alphabet="ab01*+-=() inv\nbyone_right{}\\", max_size=60))
def test_no_text_raises(text: str) -> None:
    assert judge("a * 1 = b", text).outcome in (Outcome.WRONG, Outcome.UNPARSABLE)


def test_hostile_texts_take_no_time() -> None:
    wide = "a" + " * (b * 1)" * 19
    floods = [
        "-" * 19_000,
        "= " * 9000,
        " by " * 4500,
        f"{wide} = " * 90,
        "\n".join([wide, *[f"= {wide} by assoc"] * 90]),
    ]
    began = time.process_time()
    for flood in floods:
        assert judge("a * 1 = a", flood).outcome is not Outcome.CORRECT
    assert time.process_time() - began < 1.0


# Soundness: whatever is accepted holds in finite models, with every choice of the constants that fits what is given.

Operations = Mapping[str, Callable[..., object]]


def evaluate(term: Expression, operations: Operations, constants: Mapping[str, object]) -> object:
    if term.head in constants:
        return constants[term.head]
    return operations[term.head](*(evaluate(part, operations, constants) for part in term.parts))


def s3() -> tuple[list[object], Operations]:
    elements: list[object] = list(permutations(range(3)))

    def times(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(left[each] for each in right)

    def inverse(one: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one.index(place) for place in range(3))

    return elements, {"*": times, "inv": inverse, "1": lambda: (0, 1, 2)}


def integers(n: int) -> tuple[list[object], Operations]:
    return list(range(n)), {"*": lambda a, b: (a + b) % n, "inv": lambda a: -a % n, "1": lambda: 0}


def integer_ring(n: int) -> tuple[list[object], Operations]:
    return list(range(n)), {
        "+": lambda a, b: (a + b) % n, "*": lambda a, b: a * b % n, "-": lambda a: -a % n, "0": lambda: 0,
        "1": lambda: 1 % n,
    }  # fmt: skip


def triangular_matrices() -> tuple[list[object], Operations]:
    """Upper triangular 2x2 matrices over Z_2: a ring in which a * b and b * a differ."""
    return list(product(range(2), repeat=3)), {
        "+": lambda a, b: tuple((x + y) % 2 for x, y in zip(a, b, strict=True)), "-": lambda a: a,
        "*": lambda a, b: (a[0] * b[0] % 2, (a[0] * b[1] + a[1] * b[2]) % 2, a[2] * b[2] % 2),
        "0": lambda: (0, 0, 0), "1": lambda: (1, 0, 1),
    }  # fmt: skip


def table(*rows: str) -> tuple[list[object], Operations]:
    """A semigroup by its table; a test below checks that it is one."""
    return list(range(len(rows))), {"*": lambda a, b: int(rows[a][b])}


SEMIGROUPS = [table("01", "10"), table("00", "11"), table("00", "01"), table("000", "001", "012"),
              table("000", "000", "001"), integers(3), s3()]  # fmt: skip
MODELS = {
    "group": [integers(2), integers(5), s3()], "ring": [integer_ring(4), integer_ring(3), triangular_matrices()],
    "semigroup": SEMIGROUPS,
}  # fmt: skip


def assignments(
    equations: list[Axiom], letters: str, model: tuple[list[object], Operations]
) -> Iterator[dict[str, object]]:
    """Choices of the constants under which the equations hold for every choice of the variables."""
    elements, operations = model
    for values in product(elements, repeat=len(letters)):
        constants = dict(zip(letters, values, strict=True))
        if all(holds(equation, operations, constants, elements) for equation in equations):
            yield constants


def holds(equation: Axiom, operations: Operations, constants: dict[str, object], elements: list[object]) -> bool:
    variables = sorted({leaf for side in equation for leaf in leaves(side)} & set("uvwxyz"))
    for values in product(elements, repeat=len(variables)):
        known = constants | dict(zip(variables, values, strict=True))
        if evaluate(equation.left, operations, known) != evaluate(equation.right, operations, known):
            return False
    return True


def leaves(term: Expression) -> set[str]:
    return set().union(*(leaves(part) for part in term.parts)) if term.parts else {term.head}


def equation(text: str) -> Axiom:
    left, right = text.split("=")
    return Axiom(TERMS.parse(left), TERMS.parse(right))


@pytest.mark.parametrize("theory", ["group", "ring", "semigroup"])
def test_the_models_are_models_and_the_axioms_hold_in_them(theory: str) -> None:
    _, problem = draw_problem(Draw("models", 1), EquationalProofsConfig(kind="equational_proofs", theories=(theory,)))
    axioms = [equation(text) for name, text in problem.data["equations"].items() if not name.startswith("given")]
    for elements, operations in MODELS[theory]:
        assert all(holds(axiom, operations, {}, elements) for axiom in axioms)


def changed(rng: Random, lines: list[str], names: list[str]) -> list[str]:
    """The chain with a line dropped, a name changed, or a letter changed."""
    place = rng.randrange(len(lines))
    line = lines[place]
    letter, other = rng.sample("abc1", 2)
    new = rng.choice([None, line.replace(letter, other, 1), line.split(" by ")[0] + f" by {rng.choice(names)}"])
    return lines[:place] + ([] if new is None else [new]) + lines[place + 1 :]


@pytest.mark.parametrize("theory", ["group", "ring", "semigroup"])
def test_what_is_accepted_holds_in_every_model(theory: str) -> None:
    config, accepted, rejected = EquationalProofsConfig(kind="equational_proofs", theories=(theory,), min_steps=2), 0, 0
    for index in range(20):
        rng, (_, problem) = Random(index), draw_problem(Draw("chains", index), config)
        lines, names = problem.reference.split("\n"), list(problem.data["equations"])
        given = [equation(text) for name, text in problem.data["equations"].items() if name.startswith("given")]
        for chain in [lines, *(changed(rng, lines, names) for _ in range(15))]:
            if not chain:
                continue
            right = chain[-1].removeprefix("= ").split(" by ")[0]
            goal = f"{chain[0]} = {right}"  # whatever the chain claims to prove
            verdict = judge(goal, *chain, equations=problem.data["equations"])
            if verdict.outcome is not Outcome.CORRECT:
                rejected += 1
                continue
            accepted += 1
            claimed = equation(goal)
            used = set().union(*(leaves(side) for each in (claimed, *given) for side in each))
            for model in MODELS[theory]:
                letters = "".join(sorted(used - model[1].keys()))
                for constants in assignments(given, letters, model):
                    assert holds(claimed, model[1], constants, model[0]), (goal, chain)
    assert accepted > 50
    assert rejected > 50


def parts(term: Expression) -> Iterator[tuple[tuple[int, ...], Expression]]:
    yield (), term
    for place, part in enumerate(term.parts):
        for path, inner in parts(part):
            yield (place, *path), inner


def replaced(term: Expression, path: tuple[int, ...], new: Expression) -> Expression:
    if not path:
        return new
    place, *rest = path
    inner = replaced(term.parts[place], tuple(rest), new)
    return Expression(term.head, (*term.parts[:place], inner, *term.parts[place + 1 :]))


def instance(term: Expression, binding: Mapping[str, Expression]) -> Expression:
    if term.head in binding:
        return binding[term.head]
    return Expression(term.head, tuple(instance(part, binding) for part in term.parts))


def slowly_rewrites(before: Expression, axiom: Axiom, after: Expression) -> bool:
    """Try every place, every direction and every term of the two for every variable."""
    known = {inner for term in (before, after) for _, inner in parts(term)}
    variables = sorted((leaves(axiom.left) | leaves(axiom.right)) & set("xyz"))
    for terms in product(known, repeat=len(variables)):
        binding = dict(zip(variables, terms, strict=True))
        left, right = instance(axiom.left, binding), instance(axiom.right, binding)
        for one, other in ((left, right), (right, left)):
            if any(inner == one and replaced(before, path, other) == after for path, inner in parts(before)):
                return True
    return False


def random_term(rng: Random, depth: int) -> Expression:
    if depth == 0 or rng.random() < 0.25:
        return Expression(rng.choice("ab1"))
    head = rng.choice(["*", "*", "inv"])
    return Expression(head, tuple(random_term(rng, depth - 1) for _ in range(2 if head == "*" else 1)))


def test_the_kernel_agrees_with_the_slow_search() -> None:
    rng, accepted, rejected = Random(3), 0, 0
    axioms = [equation(text) for text in (*GROUP.values(), "x * y = y * x", "a * b = 1", "x = a * x", "a = b")]
    for _ in range(400):
        axiom, before = rng.choice(axioms), random_term(rng, 2)
        binding = {variable: random_term(rng, 1) for variable in "xyz"}
        path, _ = rng.choice(list(parts(before)))
        sides = [instance(side, binding) for side in rng.sample([axiom.left, axiom.right], 2)]
        before = replaced(before, path, sides[0])
        after = rng.choice([replaced(before, path, sides[1]), replaced(before, path, random_term(rng, 1))])
        if after == before:
            continue
        try:
            done = rewrite(reflexivity(before), axiom, after)
        except RuleError:
            assert not slowly_rewrites(before, axiom, after), (before, axiom, after)
            rejected += 1
        else:
            assert (done.left, done.right) == (before, after)
            assert slowly_rewrites(before, axiom, after), (before, axiom, after)
            accepted += 1
    assert min(accepted, rejected) > 100
