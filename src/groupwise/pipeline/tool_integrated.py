"""Stage `tool_integrated`: workings of a task's problems in several forms, to fine-tune on before RL with tools.

DeepSeekMath (arXiv:2402.03300, section 3.1) fine-tunes on chains of thought, programs of thought and tool-integrated
reasoning. Here a problem's own plan (`data["steps"]`: sign, left, right, result) is written in these forms; some calls
are wrong or needless, so that reinforcement learning has something to learn.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, field_validator

from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.randomness import Draw, permutation
from groupwise.rollout.tools.calculator import BEGIN, END, value_of, written
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.arithmetic import decompose, slip
from groupwise.tasks.base import split_problems
from groupwise.types import Problem

Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Form = Literal["call", "wrong_call", "needless_call", "at_once", "text", "chain", "program", "python"]


class ToolIntegratedConfig(Section):
    """Settings of the stage."""

    task: TaskOptions
    """Task whose training problems are worked; each needs a plan, as those of `arithmetic` have."""
    num_rows: int = Field(1200, ge=1)
    """Rows, a problem each; the last problems of the split, of which reinforcement learning sees fewer."""
    forms: Mapping[Form, Share] = {"call": 0.7, "wrong_call": 0.1, "needless_call": 0.1, "at_once": 0.1}
    """Relative weights of the forms. `call`: every step is a call of the calculator, `<<45×77=3465>>`; `wrong_call`:
    one with a wrong digit, carried through to a wrong answer; `needless_call`: one more for a known result; `at_once`:
    no working, and an answer with one digit wrong; `text`: steps with their results, a chain of thought; `chain`: the
    same, and a product whose right factor has two digits by its tens and units; `program`: a Python program that
    prints the answer; `python`: a program, its output and the answer, tool-integrated reasoning."""
    seed: int
    """Seed of all draws."""

    @field_validator("forms")
    @classmethod
    def _check_sum(cls, forms: Mapping[Form, float]) -> Mapping[Form, float]:
        if sum(forms.values()) <= 0:
            raise ValueError("all weights are 0; at least one must be above 0")
        return forms


class Step(NamedTuple):
    """One operation of a plan."""

    sign: str
    left: int
    right: int
    result: int

    @property
    def expression(self) -> str:
        return f"{self.left}{self.sign}{self.right}"


class ToolIntegrated(Stage[ToolIntegratedConfig]):
    """Write workings; nothing is sampled."""

    Config = ToolIntegratedConfig
    makes = "data"

    def run(self, settings: ToolIntegratedConfig, work: Workplace) -> Made:
        task = make_task(settings.task)
        problems = split_problems(task, "train", None)[-settings.num_rows :]
        forms: tuple[Form, ...] = get_args(Form)
        weights = [settings.forms.get(form, 0.0) for form in forms]
        rows: list[dict[str, Any]] = []
        for problem in problems:
            draw = Draw("tool integrated", settings.seed, problem.id)
            form = draw.weighted(forms, weights)
            rows.append({
                "prompt": task.template.render(problem) + task.template.prefill,
                "completion": working(problem, form, draw), "source": "tool integrated", "form": form,
                "problem": problem.id, "reference": problem.reference, "difficulty": problem.difficulty,
                "language": problem.language,
            })  # fmt: skip
        shuffled = [rows[i] for i in permutation(len(rows), settings.seed, "tool integrated")]
        number = Counter(row["form"] for row in rows)
        return work.made(shuffled, {"rows": len(rows), "forms": dict(sorted(number.items()))})


def working(problem: Problem, form: Form, draw: Draw) -> str:
    """Return a completion in one of the forms."""
    steps = [Step(*step) for step in problem.data.get("steps", ())]
    if not steps:
        raise ConfigError(f"{problem.id} has no plan: kind = 'tool_integrated' needs a task whose problems say steps")
    *before, last = steps
    match form:
        case "call":
            return _answered(_calls(steps), last.result)
        case "wrong_call":
            wrong = last._replace(left=slip(draw, last.left))
            return _answered(_calls([*before, wrong]), written(value_of(wrong.expression)))
        case "needless_call":
            again = draw.choice([Step("+", last.result, 0, last.result), last])
            return _answered(_calls([*steps, again]), last.result)
        case "at_once":
            return _answered("", slip(draw, last.result))
        case "text":
            return _text(steps)
        case "chain":  # a product with a right factor of two digits in three steps, by its tens and units
            parts = []
            for step in steps:
                is_long = step.sign == "×" and step.left >= 10 and 10 < step.right < 100 and step.right % 10 != 0
                parts += [Step(*part) for part in decompose(step.left, step.right)] if is_long else [step]
            return _text(parts)
        case "program":
            return _program(steps)
        case "python":
            return f"{_program(steps)}\n```output\n{last.result}\n```\n\\boxed{{{last.result}}}"


def _calls(steps: Sequence[Step]) -> str:
    return " ".join(f"{BEGIN}{step.expression}={written(value_of(step.expression))}{END}" for step in steps)


def _text(steps: Sequence[Step]) -> str:
    return _answered(" ".join(f"{step.expression}={step.result}." for step in steps), steps[-1].result)


def _program(steps: Sequence[Step]) -> str:
    names: dict[int, str] = {}
    lines = []
    for i, (sign, left, right, result) in enumerate(steps):
        operator = {"×": "*", "÷": "//"}.get(sign, sign)
        lines.append(f"x{i} = {names.get(left, left)} {operator} {names.get(right, right)}")
        names[result] = f"x{i}"
    return "\n".join(("```python", *lines, f"print(x{len(steps) - 1})", "```"))


def _answered(thoughts: str, answer: object) -> str:
    return f"<think>{thoughts}</think>\\boxed{{{answer}}}"
