"""Generated proofs: provable, fit for their dials, disjoint, and said in the form that the verifier reads."""

import re
from collections import Counter
from itertools import product

import pytest

from groupwise.errors import ConfigError
from groupwise.randomness import Draw
from groupwise.types import SPLITS, Problem
from groupwise.verifiers import make_verifier
from natural_deduction import RULES, Expression, parse
from propositional import (
    NATURAL_DEDUCTION,
    PropositionalProofs,
    PropositionalProofsConfig,
    all_needed,
    canonical,
    entails,
    truth,
    write,
)
from propositional import draw_problem as draw_proof

SMALL = {"num_problems": 150, "num_eval_problems": 8}
PROPOSITIONAL = PropositionalProofs(PropositionalProofsConfig(kind="propositional_proofs", **SMALL))


def test_every_reference_proof_passes_through_the_template() -> None:
    verifier = make_verifier(PROPOSITIONAL.verifier)
    problems = [problem for split in SPLITS for problem in PROPOSITIONAL.problems(split)]
    answers = [PROPOSITIONAL.template.gold_answer(problem) for problem in problems]
    verdicts = [verifier.verify(problem, answer) for problem, answer in zip(problems, answers, strict=True)]
    assert all(verdict.outcome == "correct" for verdict in verdicts)
    assert len({problem.id for problem in problems}) == len(problems) == 166
    assert PROPOSITIONAL.find(problems[-1].id) == problems[-1]


def test_problems_do_not_depend_on_when_they_are_asked_for() -> None:
    again = PropositionalProofs(PROPOSITIONAL.config)
    assert again.problems("test") == PROPOSITIONAL.problems("test")
    assert again.problems("train") == PROPOSITIONAL.problems("train")


def lines(problem: Problem) -> list[str]:
    return problem.reference.split("\n")


def test_propositional_dials() -> None:
    config = PropositionalProofsConfig(kind="propositional_proofs", max_lines=9)
    drawn = [draw_proof(Draw("dials", index), config)[1] for index in range(60)]
    assert {len(lines(problem)) for problem in drawn} == set(range(3, 10))
    assert all(set(re.findall(r"\b[A-Z]\b", problem.question)) <= set("PQR") for problem in drawn)
    assert drawn[0].difficulty == f"{len(lines(drawn[0]))} lines"
    rules = Counter(line.split(" by ")[1].split()[0] for problem in drawn for line in lines(problem))
    assert len(rules) >= 12, rules


def rows_of(text: str) -> set[tuple[bool, ...]]:
    """The rows in which a formula holds, by the verifier's parser and a recursion of this file."""

    def value(formula: Expression, row: dict[str, bool]) -> bool:
        left, right = ([value(part, row) for part in formula.parts] + [False, False])[:2]
        return {
            "~": not left, "&": left and right, "|": left or right, "->": not left or right, "<->": left == right,
        }.get(formula.head, row.get(formula.head, False))  # fmt: skip

    every = product((False, True), repeat=3)
    return {row for row in every if value(parse(text), dict(zip("PQR", row, strict=True)))}


def test_every_premise_is_needed_and_they_do_not_contradict_each_other() -> None:
    everything = rows_of("~False")
    for problem in PROPOSITIONAL.problems("train"):
        premises, wanted = [rows_of(text) for text in problem.data["premises"]], rows_of(problem.data["goal"])
        together = everything.intersection(*premises)
        assert together
        assert together <= wanted
        for left_out in range(len(premises)):
            rest = everything.intersection(*premises[:left_out], *premises[left_out + 1 :])
            assert not rest <= wanted, problem.question


def test_truth_tables() -> None:
    p, q = ("P",), ("Q",)
    rows = [dict(zip("PQ", (place & 1, place >> 1 & 1), strict=True)) for place in range(4)]
    for formula, value in (
        (p, lambda P, Q: P), (q, lambda P, Q: Q), (("~", p), lambda P, Q: not P), (("False",), lambda P, Q: False),
        (("&", p, q), lambda P, Q: P and Q), (("|", p, q), lambda P, Q: P or Q),
        (("->", p, q), lambda P, Q: not P or Q), (("<->", p, q), lambda P, Q: P == Q),
    ):  # fmt: skip
        assert truth(formula, "PQ") == sum(bool(value(**row)) << place for place, row in enumerate(rows)), write(
            formula
        )
    assert truth(("R",), "PQR") == 0b11110000
    assert entails([("->", p, q), p], q, "PQ")
    assert not entails([("->", p, q)], q, "PQ")
    assert all_needed([("->", p, q), p], q, "PQ")
    assert not all_needed([("->", p, q), p, ("|", p, q)], q, "PQ")
    assert not all_needed([q, p], q, "PQ")


def test_the_template_states_every_rule_of_the_kernel() -> None:
    for name, rule in RULES.items():
        assert f"{name} ({rule.schema})" in NATURAL_DEDUCTION.prompt


def test_the_example_of_the_template_is_a_proof() -> None:
    example = re.search(r"\\boxed\{\n.*?\n\}", PROPOSITIONAL.template.prompt, re.DOTALL)
    assert example
    problem = Problem("p", "q", "", data={"premises": ["P & Q"], "goal": "P -> Q"})
    assert make_verifier("propositional_proof").verify(problem, example[0]).reward == 1.0


def test_renamed_and_reordered_problems_are_the_same_one() -> None:
    texts = {
        canonical([f"{p} -> {q}", f"{q} & {r}"][::step], f"{p} | ~{r}", "PQRST")
        for (p, q, r), step in product([("P", "Q", "R"), ("R", "P", "Q"), ("S", "T", "P")], [1, -1])
    }
    assert len(texts) == 1
    assert canonical(["P -> Q"], "Q", "PQ") != canonical(["P -> Q"], "P", "PQ")


def test_lengths_that_no_derivation_has_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("propositional.MAX_ATTEMPTS", 20)
    monkeypatch.setattr("propositional.MIN_LINES", 30)
    with pytest.raises(ConfigError, match="none of 20 derivations has 30 to 30 lines"):
        draw_proof(Draw("long", 0), PropositionalProofsConfig(kind="propositional_proofs", max_lines=30))
