"""Propositional proofs: hand cases, soundness against truth tables, mutants against a slow checker of this file."""

import re
import time
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.randomness import Draw
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import make_verifier
from groupwise.verifiers.proofs.base import RuleError
from natural_deduction import RULES, Expression, Theorem, infer, parse, write
from propositional import PropositionalProofsConfig, draw_problem

VERIFIER = make_verifier("propositional_proof")


def problem(premises: list[str], goal: str) -> Problem:
    return Problem("p", "q", "", data={"premises": premises, "goal": goal})


def judge(premises: list[str], goal: str, *lines: str) -> Verdict:
    return VERIFIER.verify(problem(premises, goal), "<think>...</think>\\boxed{\n" + "\n".join(lines) + "\n}")


EXCLUDED_MIDDLE = (
    "1. ~(P | ~P) by assume", "2. P by assume", "3. P | ~P by |I 2", "4. False by ~E 3 1", "5. ~P by ~I 2 4",
    "6. P | ~P by |I 5", "7. False by ~E 6 1", "8. ~~(P | ~P) by ~I 1 7", "9. P | ~P by ~~E 8",
)  # fmt: skip


@pytest.mark.parametrize(
    ("premises", "goal", "lines"),
    [
        (["P & Q"], "P -> Q", ("1. P & Q by premise", "2. P by assume", "3. Q by &E 1", "4. P -> Q by ->I 2 3")),
        (["P -> Q", "P"], "Q", ("1) P → Q by premise", "2) P by premise", "", "3) Q by →E 1, 2")),
        ([], "P | ~P", EXCLUDED_MIDDLE),
        ([], "P -> Q -> P", ("1. P by assume", "2. Q by assume", "3. Q -> P by ->I 2 1", "7. P -> Q -> P by ->I 1 3")),
        (["P | Q"], "Q | P", ("1. P | Q by premise", "2. P by assume", "3. Q | P by |I 2", "4. Q by assume",
                              "5. Q | P by |I 4", "6. Q | P by |E 1 2 3 4 5")),
        (["False"], "P <-> Q", ("1. False by premise", "2. P <-> Q by FalseE 1")),
        (["P -> Q", "Q -> P"], "P <-> Q", ("1. P -> Q by premise", "2. Q -> P by premise", "3. P <-> Q by <->I 1 2")),
        (["P <-> Q"], "Q -> P", ("1: P <-> Q by premise", "2: Q -> P by <->E 1")), (["P"], "P", ("1. P by premise",)),
        (["P"], r"P /\ P", ("1. P by premise", "2. P by copy 1", r"3. P \wedge P by &I 1 2")),
    ],
)  # fmt: skip
def test_right_proofs(premises: list[str], goal: str, lines: tuple[str, ...]) -> None:
    verdict = judge(premises, goal, *lines)
    assert verdict.outcome is Outcome.CORRECT, verdict.evidence
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (("1. P by assume",), "the last line is P, not the goal Q"),
        (("1. Q by assume",), "depends on the assumption Q"),
        (("1. Q by premise",), "line 1: Q is not a premise"),
        (("1. Q by sorry",), "there is no rule 'sorry'"),
        (("1. P -> Q by premise", "2. Q by ->E 1 1"), "line 2: ->E does not give this (A -> B, A; gives B)"),
        (("1. P -> Q by premise", "2. Q by ->E 1"), "->E cites 2 lines, not 1"),
        (("1. P -> Q by premise", "2. Q by ->E 1 2"), "line 2: there is no line 2 above it"),
        (("1. P -> Q by premise", "2. P by assume", "3. Q by ->E 1 2"), "depends on the assumption P"),
        (("1. P -> Q by premise 1",), "no line 1 above"),
        (("1. P -> Q by premise", "2. P -> Q by premise 1"), "cites 0 lines"),
        # a discharged assumption is used again
        (("1. P by assume", "2. P -> P by ->I 1 1", "3. P -> Q by premise", "4. Q by ->E 3 1"), "assumption P"),
        # what is discharged must be an assumption
        (("1. P -> Q by premise", "2. P by assume", "3. Q by ->E 1 2", "4. Q -> Q by ->I 3 3"), "->I does not give"),
        (
            ("1. P by assume", "2. P | P by |I 1", "3. ~P by assume", "4. False by ~E 1 3", "5. ~(P | P) by ~I 2 4"),
            "~I does",
        ),
        (("1. P by assume", "2. P | P by |I 1", "3. (P | P) | P by |I 2", "4. P by |E 3 2 1 1 1"), "|E does not give"),
        (("1. P by assume", "2. P | P by |I 1", "3. P | (P | P) by |I 2", "4. P by |E 3 1 1 2 1"), "|E does not give"),
        # the cases must be those of the disjunction
        (("1. P by assume", "2. P | P by |I 1", "3. Q by assume", "4. Q by |E 2 3 3 3 3"), "|E does not give"),
    ],
)
def test_wrong_proofs(lines: tuple[str, ...], evidence: str) -> None:
    verdict = judge(["P -> Q"], "Q", *lines)
    assert verdict.outcome is Outcome.WRONG
    assert evidence in verdict.evidence
    assert verdict.reward == 0.0


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (("1. P -> by premise",), "line 1: 'the end' where an operand"),
        (("1. P by assume", "", "2. P Q by copy 1"), "line 3: 'Q' where an operator"),
        (("P by assume",), "line 1: 'P by assume' is not of the form"), (("1. P",), "not of the form"),
        (("1. P by",), "not of the form"), (("1. P by copy one",), "'one', not line numbers"),
        (("2. P by assume", "1. P by assume"), "line 2: the number 1 must be above 2"),
        (("1. __import__('os') by assume",), "line 1"),
        (("1. " + "(" * 500 + "P" + ")" * 500 + " by assume",), "1001 symbols"),
        (tuple(f"{n}. P by assume" for n in range(1, 300)), "299 lines"),
        (("1. " + "P & " * 9000 + "P by assume",), "characters"),
    ],
)  # fmt: skip
def test_unreadable_proofs(lines: tuple[str, ...], evidence: str) -> None:
    verdict = judge([], "P", *lines)
    assert verdict.outcome is Outcome.UNPARSABLE
    assert evidence in verdict.evidence


def test_the_answer_may_stand_in_a_fence_or_a_tag() -> None:
    proof = "```\n1. P by premise\n```"
    assert judge(["P"], "P", "```text\n1. P by premise\n```").outcome is Outcome.CORRECT
    assert judge(["P"], "P", "```1. P by premise```").outcome is Outcome.CORRECT
    assert judge(["P"], "P", proof).outcome is Outcome.CORRECT
    with make_verifier({"kind": "propositional_proof", "extraction": "tag"}) as tagged:
        assert tagged.verify(problem(["P"], "P"), f"<answer>{proof}</answer>").outcome is Outcome.CORRECT
        assert tagged.verify(problem(["P"], "P"), f"\\boxed{{{proof}}}").outcome is Outcome.UNPARSABLE
    assert VERIFIER.verify(problem(["P"], "P"), "<think>\\boxed{1. P by premise}").outcome is Outcome.UNPARSABLE


def test_a_problem_without_statement_is_the_verifiers_failure() -> None:
    for data in ({}, {"premises": [], "goal": "P &"}, {"premises": None, "goal": "P"}):
        verdict = VERIFIER.verify(Problem("p", "q", "", data=data), "\\boxed{1. P by assume}")
        assert verdict.outcome is Outcome.CRASHED
        assert verdict.reward is None


def test_only_rules_make_theorems() -> None:
    with pytest.raises(TypeError, match="only the rules"):
        Theorem(frozenset(), Expression("False"), object())


def test_the_formulas_text_reads_back() -> None:
    for text in ("~(P & Q) -> (R | ~~S)", "P <-> (Q <-> False)", "(P -> Q) -> P"):
        assert write(parse(text)) == text
    assert parse("~P & Q | R -> S -> T <-> P") == parse("((((~P) & Q) | R) -> (S -> T)) <-> P")


@given(st.text(alphabet="123. PQ~&|->()<byEIassumeprmi\n\\{}∧", max_size=80))
def test_no_text_raises(text: str) -> None:
    assert VERIFIER.verify(problem(["P"], "Q"), f"\\boxed{{{text}}}").outcome in (Outcome.WRONG, Outcome.UNPARSABLE)


def test_hostile_texts_take_no_time() -> None:
    floods = [
        "1. " + "~" * 19_000,
        "```\n" + " " * 200_000 + "x",
        "1." * 9000,
        " by " * 4000,
        "\n" * 19_000,
        "1. P by " + "1 " * 9000,
    ]
    began = time.process_time()
    for flood in floods:
        assert judge([], "P", flood).outcome is not Outcome.CORRECT
    assert time.process_time() - began < 1.0


# Soundness: whatever the kernel accepts holds by brute force.

Value = dict[str, bool]


def value(formula: Expression, row: Value) -> bool:
    parts = [value(part, row) for part in formula.parts]
    if not parts:
        return row.get(formula.head, False)  # False is in no row
    return {
        "~": lambda a, _: not a, "&": lambda a, b: a and b, "|": lambda a, b: a or b,
        "->": lambda a, b: not a or b, "<->": lambda a, b: a == b,
    }[formula.head](parts[0], parts[-1])  # fmt: skip


def entails(hypotheses: Any, conclusion: Expression) -> bool:
    rows = (dict(zip("PQR", values, strict=True)) for values in product((False, True), repeat=3))
    return all(value(conclusion, row) for row in rows if all(value(one, row) for one in hypotheses))


def random_formula(rng: Random, depth: int) -> Expression:
    if depth == 0 or rng.random() < 0.3:
        return Expression(rng.choice(["P", "Q", "R", "False"]))
    head = rng.choice(["~", "&", "|", "->", "<->"])
    return Expression(head, tuple(random_formula(rng, depth - 1) for _ in range(1 if head == "~" else 2)))


def plausible(rng: Random, cited: list[Theorem]) -> list[Expression]:
    """Formulas that a rule might give of these: parts, negations and combinations of them, and anything."""
    whole = [one.conclusion for one in cited]
    near = [formula for one in whole for part in (one, *one.parts) for formula in (part, *part.parts)]
    made = [Expression(head, (one, other)) for head in SHORT for one in whole for other in whole]
    made += [Expression("->", parts) for one in whole for parts in (one.parts, one.parts[::-1]) if len(parts) == 2]
    made += [Expression("<->", one.parts) for one in whole if len(one.parts) == 2]
    made += [Expression(head, (one, random_formula(rng, 1))) for one in whole for head in SHORT]
    made += [Expression("~", (one,)) for one in near]
    return list(dict.fromkeys([*near, *made, Expression("False"), random_formula(rng, 2)]))


def random_citations(rng: Random, name: str, pool: list[Theorem]) -> list[Theorem]:
    """Theorems to cite; for proofs by cases often those that belong together, which chance would hardly find."""
    cited = [rng.choice(pool) for _ in range(RULES[name].num_cited)]
    if name == "|E" and cited[0].conclusion.head == "|" and rng.random() < 0.8:
        left, right = (infer("assume", part, []) for part in cited[0].conclusion.parts)
        cited = [cited[0], rng.choice([left, cited[1]]), cited[2], rng.choice([right, cited[3]]), cited[2]]
    return cited


def test_every_theorem_of_the_kernel_holds() -> None:
    accepted = dict.fromkeys(RULES, 0)
    start = ["P", "Q", "~P", "~~Q", "P | Q", "P -> Q", "Q -> P", "P & Q", "P <-> Q", "False", "~(P | Q)"]
    for seed in range(30):
        rng = Random(seed)
        pool = [infer("assume", parse(text), []) for text in start]
        for _ in range(400):
            name = rng.choice([name for name in RULES if name not in ("assume", "copy")])
            cited = random_citations(rng, name, pool)
            for stated in plausible(rng, cited):
                try:
                    theorem = infer(name, stated, cited)
                except RuleError:
                    continue
                assert entails(theorem.hypotheses, theorem.conclusion), (name, theorem)
                accepted[name] += 1
                if len(pool) < 18 and theorem not in pool:
                    pool.append(theorem)
    assert {name: count for name, count in accepted.items() if count < 5} == {"assume": 0, "copy": 0}


# A slow checker that shares nothing with the kernel: formulas as bare texts, rules as patterns of texts.

LEVELS = ("<->", "->", "|", "&")
SCHEMAS = {
    "copy": (["A"], ["A"]), "&I": (["A", "B"], ["&AB"]), "&E": (["&AB"], ["A", "B"]), "|I": (["A"], ["|AB", "|BA"]),
    "|E": (["|AB", "!A", "C", "!B", "C"], ["C"]), "->I": (["!A", "B"], [">AB"]), "->E": ([">AB", "A"], ["B"]),
    "~I": (["!A", "F"], ["~A"]), "~E": (["A", "~A"], ["F"]), "~~E": (["~~A"], ["A"]), "FalseE": (["F"], ["A"]),
    "<->I": ([">AB", ">BA"], ["=AB"]), "<->E": (["=AB"], [">AB", ">BA"]),
}  # fmt: skip
SHORT = {"<->": "=", "->": ">", "|": "|", "&": "&"}


def polish(text: str) -> str | None:
    """A formula in prefix notation, by splitting at the loosest connective outside of parentheses."""
    text = text.strip()
    for level in LEVELS:
        depth, places = 0, []
        for place, letter in enumerate(text):
            depth += (letter == "(") - (letter == ")")
            arrow = level == "->" and place > 0 and text[place - 1] == "<"
            if depth == 0 and text.startswith(level, place) and not arrow:
                places.append(place)
        if places:
            place = places[0] if level == "->" else places[-1]
            left, right = polish(text[:place]), polish(text[place + len(level) :])
            return None if left is None or right is None else SHORT[level] + left + right
    if text.startswith("~"):
        inner = polish(text[1:])
        return None if inner is None else "~" + inner
    if text.startswith("(") and text.endswith(")"):
        return polish(text[1:-1])
    return "F" if text == "False" else text.lower() if re.fullmatch("[A-Z]", text) else None


def read_one(text: str, start: int) -> int:
    """Where the formula in prefix notation that begins at `start` ends."""
    if text[start] == "~":
        return read_one(text, start + 1)
    return read_one(text, read_one(text, start + 1)) if text[start] in "=>|&" else start + 1


def fits(pattern: str, text: str, bound: dict[str, str]) -> bool:
    place = 0
    for letter in pattern:
        if place >= len(text):
            return False
        if letter in "ABC":
            end = read_one(text, place)
            if bound.setdefault(letter, text[place:end]) != text[place:end]:
                return False
            place = end
        elif text[place] != letter:
            return False
        else:
            place += 1
    return place == len(text)


def slowly_accepts(premises: list[str], goal: str, lines: list[str]) -> bool:
    known: dict[int, tuple[str, frozenset[str]]] = {}
    given, last = {polish(premise) for premise in premises}, 0
    for line in lines:
        number, formula, rule, cited = re.fullmatch(r"(\d+)\. (.*) by (\S+)((?: \d+)*)", line).groups()  # type: ignore[union-attr]
        text, numbers = polish(formula), [int(each) for each in cited.split()]
        if text is None or int(number) <= last or any(each not in known for each in numbers):
            return False
        last = int(number)
        if rule in ("assume", "premise"):
            if numbers or (rule == "premise" and text not in given):
                return False
            known[last] = text, frozenset({text})
            continue
        needed, results = SCHEMAS[rule]
        if len(needed) != len(numbers):
            return False
        used, gone, open_ = {}, [], []
        for pattern, each in zip(needed, numbers, strict=True):
            stated, hypotheses = known[each]
            if pattern[0] == "!" and hypotheses != {stated}:
                return False
            if not fits(pattern.removeprefix("!"), stated, used):
                return False
            (gone if pattern[0] == "!" else open_).append(hypotheses)
        if not any(fits(result, text, dict(used)) for result in results):
            return False
        if rule == "|E":
            left = open_[0] | (open_[1] - gone[0]) | (open_[2] - gone[1])
        else:
            left = frozenset().union(*open_) - frozenset().union(*gone)
        known[last] = text, left
    return bool(known) and known[last][0] == polish(goal) and known[last][1] <= given


def mutants(rng: Random, lines: list[str]) -> list[list[str]]:
    """The proof with a line dropped, two lines swapped, a formula, a rule, a citation or a connective changed."""
    place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    number, formula, reason = re.fullmatch(r"(\d+)\. (.*) by (.*)", lines[place]).groups()  # type: ignore[union-attr]
    rule, *cited = reason.split()
    formulas = [line.split(". ")[1].split(" by ")[0] for line in lines]
    texts = [f"{number}. {rng.choice(formulas)} by {reason}", f"{number}. ~({formula}) by {reason}",
             f"{number}. {formula} by {rng.choice([*SCHEMAS, 'assume', 'premise'])} {' '.join(cited)}".strip(),
             f"{number}. {formula.replace('P', 'Q', 1)} by {reason}",
             f"{number}. {formula.replace('&', '|', 1)} by {reason}",
             f"{number}. {formula} by assume"]  # fmt: skip
    if cited:
        spot = rng.randrange(len(cited))
        changed = [*cited[:spot], str(rng.randint(1, len(lines))), *cited[spot + 1 :]]
        texts += [f"{number}. {formula} by {rule} {' '.join(each)}" for each in (changed, cited[::-1])]
    swapped = [*lines]
    swapped[place], swapped[other] = lines[other], lines[place]
    return [lines[:place] + lines[place + 1 :], swapped, lines[: place + 1]] + [
        [*lines[:place], text, *lines[place + 1 :]] for text in texts
    ]


def test_mutants_are_judged_as_by_the_slow_checker_and_what_passes_holds() -> None:
    config = PropositionalProofsConfig(kind="propositional_proofs", max_lines=14)
    counts = {Outcome.CORRECT: 0, Outcome.WRONG: 0, Outcome.UNPARSABLE: 0}
    for index in range(150):
        _, drawn = draw_problem(Draw("mutants", index), config)
        premises, goal, lines = drawn.data["premises"], drawn.data["goal"], drawn.reference.split("\n")
        assert slowly_accepts(premises, goal, lines)
        given = [parse(premise) for premise in premises]
        for mutant in mutants(Random(index), lines):
            verdict = VERIFIER.verify(drawn, "\\boxed{" + "\n".join(mutant) + "}")
            counts[verdict.outcome] += 1
            accepted = verdict.outcome is Outcome.CORRECT
            assert accepted == slowly_accepts(premises, goal, mutant), (mutant, verdict.evidence)
            if accepted:
                assert entails(given, parse(goal))
    assert counts[Outcome.WRONG] > 800, counts
    assert counts[Outcome.CORRECT] > 20, counts  # some changes do no harm
