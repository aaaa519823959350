"""Programs judged as EvalPlus does, by a reference program, base and added inputs apart; ways to read a program."""

import time
from typing import Any

import pytest

from groupwise.sandbox.base import Sandbox, SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.tasks.code import ROOTS, arguments, oracle
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.code import CodeVerifier, same_output

LIMITS = SandboxConfig(cpu_s=2)
DOUBLE = {
    "form": "reference", "entry_point": "f", "reference": "def f(x):\n    return 2 * x", "base": 2,
    "inputs": [[1], [2], [-3]], "atol": 0.0, "stub": "def f(x):\n",
}  # fmt: skip


def judge(sandbox: Sandbox, text: str, program: str = "whole", **changes: Any) -> Verdict:
    verifier = CodeVerifier(CodeVerifier.Config(kind="code", sandbox=LIMITS, program=program), sandbox)  # type: ignore[arg-type]
    return verifier.verify(Problem("p", "q", "", data={**DOUBLE, **changes}), text)


@pytest.mark.parametrize(
    ("source", "outcome", "base"),
    [("def f(x): return x + x", Outcome.CORRECT, 1.0), ("def f(x): return x + abs(x)", Outcome.WRONG, 1.0),
     ("def f(x): return x + 1", Outcome.WRONG, 0.0), ("def f(x): 1 / 0", Outcome.WRONG, 0.0)],
)  # fmt: skip
def test_base_and_added_inputs(sandbox: Sandbox, source: str, outcome: Outcome, base: float) -> None:
    verdict = judge(sandbox, source)
    assert verdict.outcome is outcome, verdict.evidence
    assert verdict.measures["base"] == base


def test_inputs_that_the_reference_cannot_answer(sandbox: Sandbox) -> None:
    partial = "def f(x):\n    return {1: 2, 2: 4}[x]"
    assert judge(sandbox, "def f(x): return {1: 2, 2: 4}.get(x)", reference=partial).outcome is Outcome.CORRECT
    broken = judge(sandbox, "def f(x): return 1", reference="def g(x): return 1")
    assert broken.outcome is Outcome.CRASHED
    assert "its reference program gives no answer: it does not define f" in broken.evidence


def test_large_outputs_are_asked_for_in_parts(sandbox: Sandbox) -> None:
    source = "def f(x):\n    return 'a' * 100_000"
    assert judge(sandbox, source, reference=source, inputs=[[n] for n in range(5)]).outcome is Outcome.CORRECT


def test_what_a_slow_reference_does_not_reach_in_one_run_is_judged_too(bubblewrap: None) -> None:
    slow = "from time import process_time as t\ndef f(x):\n    a = t()\n    while t() - a < {}: pass\n    return 2 * x"
    sources = [slow.format(0.3), "def f(x): return 2 * x if x < 4 else 0", slow.format(9)]
    with open_sandbox(SandboxConfig(cpu_s=1)) as hasty:
        verdicts = [judge(hasty, each, reference=sources[0], inputs=[[n] for n in range(5)]) for each in sources]
    assert [verdict.outcome for verdict in verdicts] == [Outcome.CORRECT, Outcome.WRONG, Outcome.WRONG]


@pytest.mark.parametrize(
    ("entry", "reference", "source"),
    [("find_char_long", "def find_char_long(x): return ['b', 'a']", "def find_char_long(x): return ['a', 'b', 'a']"),
     ("check_str", "def check_str(x): return object()", "def check_str(x): return 5"),
     ("are_equivalent", "def are_equivalent(x): return 1", "def are_equivalent(x): return 2"),
     ("sum_div", "def sum_div(x): return 1", "def sum_div(x): return 0")],
)  # fmt: skip
def test_special_comparisons(sandbox: Sandbox, entry: str, reference: str, source: str) -> None:
    for program, outcome in ((source, Outcome.CORRECT), (source.partition(":")[0] + ": 1 / 0", Outcome.WRONG)):
        verdict = judge(sandbox, program, entry_point=entry, reference=reference, **oracle(entry))
        assert verdict.outcome is outcome, verdict.evidence


@pytest.mark.parametrize(
    ("source", "outcome"),
    [("return -1.00000001", Outcome.CORRECT), ("return 1", Outcome.CORRECT), ("return 0.9", Outcome.WRONG),
     ("return '1'", Outcome.WRONG), ("return 1e308", Outcome.WRONG), ("return float('nan')", Outcome.WRONG),
     ("return True", Outcome.CORRECT), ("xs.clear(); return 0", Outcome.WRONG), ("return xs", Outcome.WRONG),
     ("return 0\nabs = lambda x: 0", Outcome.WRONG), ("return 0\ndef enumerate(xs): return []", Outcome.WRONG)],
)  # fmt: skip
def test_any_root_is_right(sandbox: Sandbox, source: str, outcome: Outcome) -> None:
    changes = {"entry_point": "find_zero", "reference": "def find_zero(xs): return 1.0", "inputs": [[[1.0, 0.0, -1.0]]]}
    assert judge(sandbox, f"def find_zero(xs): {source}", **changes, **ROOTS["find_zero"]).outcome is outcome


@pytest.mark.parametrize(
    ("program", "text", "outcome"),
    [("continued", "    return 2 * x\n\nand so on (", Outcome.CORRECT), ("whole", "    return 2 * x", Outcome.WRONG),
     ("sanitised", "So:\n```python\ndef f(x):\n\treturn 2 * x\n```\nDone", Outcome.CORRECT),
     ("first", "So:\n```\ndef f(x):\n    return 2 * x\n```\n```python\nf = 1\n```", Outcome.CORRECT),
     ("first", "  def f(x): return 2 * x", Outcome.CORRECT), ("first", "``````", Outcome.UNPARSABLE),
     ("first", "```" + "\n" * 60_000, Outcome.WRONG),
     ("fenced", "So:\n```python\ndef f(x):\n    return 2 * x", Outcome.UNPARSABLE), ("whole", " ", Outcome.UNPARSABLE)],
)  # fmt: skip
def test_ways_to_read_a_program(sandbox: Sandbox, program: str, text: str, outcome: Outcome) -> None:
    began = time.process_time()
    assert judge(sandbox, text, program).outcome is outcome
    assert time.process_time() - began < 5  # in time linear in the text


@pytest.mark.parametrize(
    ("value", "expected", "atol", "same"),
    [
        (1, 1.0, 0.0, True), (0.1 + 0.2, 0.3, 0.0, True), (1.00001, 1.0, 0.0, False), (1.00001, 1.0, 1e-4, True),
        (1, 1.0000001, 0.0, False), ([1.0, 2.0000001], [1.0, 2.0], 0.0, True), ((1.0,), [1.0], 0.0, False),
        ([1.0], [1.0, 2.0], 0.0, False), ("a", "b", 1e-4, False), (float("nan"), float("nan"), 0.0, False),
        (float("inf"), float("inf"), 0.0, True), ([1, 2], [1, 3], 0.0, False), ([], [0.5], 0.0, False),
        (1e9 + 1, 1e9, 0.0, True),
    ],
)  # fmt: skip
def test_outputs_are_compared_as_evalplus_compares_them(value: Any, expected: Any, atol: float, same: bool) -> None:
    assert same_output(value, expected, atol) is same


@pytest.mark.parametrize(
    ("task", "entered", "expected"),
    [
        ("Mbpp/63", [[[1, 2], [3]]], [[(1, 2), (3,)]]), ("Mbpp/106", [[5], [6]], [[5], (6,)]),
        ("Mbpp/115", [[[1], []]], [[{1}, {}]]), ("Mbpp/124", ["1.5", "2"], [1.5, 2 + 0j]),
        ("Mbpp/252", ["3j"], [3j]), ("Mbpp/307", [[1], 2, 3], [(1,), 2, 3]), ("Mbpp/401", [[[1], [2]]], [((1,), (2,))]),
        ("Mbpp/580", [[1, [2, [3]]]], [(1, (2, (3,)))]), ("Mbpp/722", [{"a": [1]}, 2], [{"a": (1,)}, 2]),
        ("Mbpp/278", [[1, [2]]], [(1, (2,))]), ("Mbpp/3", [[1]], [[1]]), ("HumanEval/63", [[[1, 2]]], [[[1, 2]]]),
    ],
)  # fmt: skip
def test_arguments_have_the_types_of_the_reference(task: str, entered: list[Any], expected: list[Any]) -> None:
    assert arguments(task, entered) == expected
