"""Workings with calls: every result is the calculator's, and every form says what it should."""

import re
from typing import get_args

import pytest

from groupwise.errors import ConfigError
from groupwise.pipeline.tool_integrated import Form, ToolIntegratedConfig, working
from groupwise.randomness import Draw
from groupwise.rollout.tools.base import put_in_spans
from groupwise.rollout.tools.calculator import Calculator, value_of, written
from groupwise.rollout.tools.python import PythonTool
from groupwise.tasks import make_task
from groupwise.types import Outcome, Problem
from groupwise.verifiers import make_verifier

TASK = make_task({"kind": "arithmetic", "kinds": ["product", "chain"], "digits": [3, 2], "num_problems": 40})
RIGHT = {
    "call": True, "wrong_call": False, "needless_call": True, "at_once": False, "text": True, "chain": True,
    "python": True,
}  # fmt: skip


@pytest.mark.parametrize("form", get_args(Form))
def test_forms(form: str) -> None:
    with make_verifier("number") as verifier:
        for problem in TASK.problems("train"):
            text = working(problem, form, Draw("test", problem.id))
            assert text == working(problem, form, Draw("test", problem.id))
            calls = re.findall(r"<<([^=]+)=([^>]+)>>", text)
            assert all(written(value_of(expression)) == result for expression, result in calls)
            num_steps = len(problem.data["steps"])
            expected = {"call": num_steps, "wrong_call": num_steps, "needless_call": num_steps + 1}
            assert len(calls) == expected.get(form, 0)
            if form != "program":
                is_right = verifier.verify(problem, text).outcome is Outcome.CORRECT
                assert is_right == RIGHT[form], text


def test_a_program_uses_what_it_has_found_and_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    for problem in TASK.problems("train")[:12]:
        text = working(problem, "program", Draw("test"))
        exec(compile(text.removeprefix("```python").removesuffix("```"), "program.py", "exec"), {})
        assert capsys.readouterr().out.strip() == problem.reference
    steps = [("+", 12, 5, 17), ("×", 17, 3, 51), ("÷", 51, 17, 3)]
    text = working(Problem("p", "?", "3", data={"steps": steps}), "program", Draw("test"))
    assert text == "```python\nx0 = 12 + 5\nx1 = x0 * 3\nx2 = x1 // x0\nprint(x2)\n```"


def test_a_chain_works_products_out_by_tens() -> None:
    steps = [("×", 47, 86, 4042), ("-", 4042, 2, 4040), ("×", 3, 40, 120)]
    text = working(Problem("p", "?", "120", data={"steps": steps}), "chain", Draw("test"))
    assert text == "<think>47×80=3760. 47×6=282. 3760+282=4042. 4042-2=4040. 3×40=120.</think>\\boxed{120}"


def test_results_are_found_where_they_are_put_in() -> None:
    problem = TASK.problems("train")[0]
    text = working(problem, "call", Draw("test"))
    spans = put_in_spans(text, {"calculator": Calculator()})
    assert [text[b:e] for b, e in spans] == [f"{step[3]}>>" for step in problem.data["steps"]]
    text = working(problem, "python", Draw("test"))
    [(begin, end)] = put_in_spans(text, {"python": PythonTool()})
    assert text[begin:end] == f"\n```output\n{problem.reference}\n```\n"


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(ConfigError, match="p has no plan"):
        working(Problem("p", "?", "1"), "call", Draw("test"))
    with pytest.raises(ValueError, match="all weights are 0"):
        ToolIntegratedConfig.model_validate({"task": {"kind": "arithmetic"}, "seed": 0, "forms": {"call": 0}})
    assert ToolIntegratedConfig.model_fields["forms"].default.keys() < set(get_args(Form))
