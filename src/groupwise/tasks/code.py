"""Programming problems from files: HumanEval, MBPP, EvalPlus's, and programs that read standard input.

They are judged by hidden tests, whose forms are those of the verifier `code`: `calls` (plain values in, plain values
out), `python`, `stdio`, `reference`. HumanEval and MBPP have the splits that their authors published.
Sources: Chen et al. 2021 (arXiv:2107.03374), Austin et al. 2021 (arXiv:2108.07732), Li et al. 2022 (arXiv:2203.07814),
Liu et al. 2023 (arXiv:2305.01210): EvalPlus 0.3.1, `evalplus/data/mbpp.py` and `evalplus/eval`, has rows that JSON or
plain equality cannot hold, by types of arguments or special comparisons.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from groupwise.config import read_toml
from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.tasks.base import TEMPLATES, Task, TaskConfig, Template, split_of, without_spaces
from groupwise.tasks.data_files import read_file
from groupwise.tasks.program_tests import Record, defined_names, loaded, read_tests, refuse_empty, unbound_names
from groupwise.types import SPLITS, Problem, Split

_EVALPLUS = read_toml(Path(__file__).with_name("evalplus.toml"))


def arguments(task: str, entered: list[Any]) -> list[Any]:
    """Return the arguments of a call with the types that the reference solution of `Mbpp/N` expects.

    >>> arguments("Mbpp/2", [[3, 4], [5]]), arguments("Mbpp/75", [[[6, 24], [7]], 6]), arguments("HumanEval/0", [[1]])
    ([(3, 4), (5,)], [[(6, 24), (7,)], 6], [[1]])
    """
    suite, _, number = task.partition("/")
    mend = _MENDED.get(int(number)) if suite == "Mbpp" else None
    return mend(_bare(entered)) if mend else _bare(entered)


def _bare(value: Any) -> Any:
    """Return data of JSON without the texts of its numbers."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items()}
    return [*map(_bare, value)] if isinstance(value, list) else float(value) if isinstance(value, float) else value


def _tuples(items: list[Any]) -> list[Any]:
    return [tuple(item) for item in items]


def _deep(value: Any) -> Any:
    return tuple(map(_deep, value)) if isinstance(value, list) else value


_MENDED: Mapping[int, Callable[[list[Any]], list[Any]]] = {
    **dict.fromkeys(_EVALPLUS["tuples"], _tuples),
    **dict.fromkeys(_EVALPLUS["lists_of_tuples"], lambda entered: [_tuples(items) for items in entered]),
    **dict.fromkeys((75, 413, 444, 753), lambda entered: [_tuples(entered[0]), *entered[1:]]),
    **dict.fromkeys((106, 750), lambda entered: [entered[0], tuple(entered[1])]),
    **dict.fromkeys(_EVALPLUS["first_tuple"], lambda entered: [tuple(entered[0]), *entered[1:]]),
    **dict.fromkeys((259, 401, 445), lambda entered: [tuple(_tuples(items)) for items in entered]),
    **dict.fromkeys(_EVALPLUS["deep"], lambda entered: [_deep(value) for value in entered]),
    115: lambda entered: [[set(item) if isinstance(item, list) and item else {} for item in entered[0]]],
    124: lambda entered: [float(entered[0]), complex(entered[1])],
    252: lambda entered: [complex(entered[0])],
    278: lambda entered: [tuple(tuple(i) if isinstance(i, list) else i for i in items) for items in entered],
    722: lambda entered: [{key: tuple(value) for key, value in entered[0].items()}, *entered[1:]],
}


def oracle(entry: str) -> dict[str, str]:
    """Return what the data of a problem of MBPP+ needs beside its reference solution."""
    around = {
        entry in _EVALPLUS["sets"].split(): "set({0})",
        entry in _EVALPLUS["not_none"].split(): "{0} if isinstance({0}, bool) else {0} is not None",
        entry == "are_equivalent": "True",
    }.get(True)
    data = {"around": _around(entry, f"return {around.format('result')}")} if around else {}
    return data | ({"also": _EVALPLUS["also"][entry]} if entry in _EVALPLUS["also"] else {})


def _around(entry: str, body: str) -> str:
    """Return source that lets a function defined above it return something made of its `result` and `args`."""
    lines = (
        "def wrapped(function):", "    def changed(*args):", "        result = function(*args)", f"        {body}",
        "    return changed", f"{entry} = wrapped({entry})",
    )  # fmt: skip
    return "\n" + "\n".join(lines) + "\n"


ROOTS = {"find_zero": {"root": True}}
"""The problem of HumanEval+ that has many right answers."""


PROGRAM = Template(
    prompt=(
        "The user describes a task and the assistant solves it with a Python program. The assistant first thinks it "
        "through inside <think> </think> and then gives the whole program, imports included, in one block that begins "
        "with ```python and ends with ```. Only the standard library is there.\nUser: {question}\nAssistant:"
    ),
    gold="<think></think>\n```python\n{reference}\n```",
)


class CodeConfig(TaskConfig):
    """Dials of the code task."""

    template: Annotated[Template, TEMPLATES] = PROGRAM
    """Makes the prompt of a problem."""
    path: DataRef
    """Problems: a file, a directory of shards, or `hub:NAME:SPLIT`, as for the task `jsonl`."""
    format: Literal["humaneval", "mbpp", "evalplus", "stdio"]
    """Format of the records. Rows of HumanEval and MBPP+ (`evalplus`) are all for testing, those of MBPP by their
    number: 11 to 510 test, 511 to 600 dev, 601 to 974 train, 1 to 10 are the examples of prompts; other rows are
    divided by a hash. `stdio`: `problem`, `tests` and, where there is one, `solution`, or as APPS, TACO,
    LiveCodeBench and CodeContests call them; programs that read standard input, or functions that `fn_name` names."""
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    """Difference allowed between numbers that are not both whole, in an output or a call's result, relative above 1; 0:
    they must be equal. A record's own `tolerance` takes precedence; tests that are Python compare by themselves."""
    only_test: bool = False
    """Put every problem into the test split: for benchmarks, which are never trained on."""


class Code(Task):
    """Programming problems from a file."""

    name: ClassVar[str] = "code"
    verifier: ClassVar[str] = "code"
    answers_any_question: ClassVar[bool] = False
    Config = CodeConfig
    config: CodeConfig

    @cached_property
    def _splits(self) -> dict[Split, list[Problem]]:
        splits: dict[Split, list[Problem]] = {name: [] for name in SPLITS}
        split_by_question = dict[str, Split]()  # one that differs in spaces alone follows the first of its kind
        for problem in read_problems(self.config.path, self.config.format, self.config.tolerance):
            published: Any = "test" if self.config.only_test else problem.data.get("split")
            if published != "examples":
                hashed = split_by_question.setdefault(without_spaces(problem.question), split_of(problem.question))
                splits[published or hashed].append(problem)
        return splits

    def problems(self, split: Split) -> Sequence[Problem]:
        if not self._splits[split]:
            raise DataError(f"{self.config.path} has no problem for the {split} split")
        return self._splits[split]


def read_problems(path: str | Path, form: str, tolerance: float) -> Iterator[Problem]:
    """The problems of a data file (DataError: names the record, and the field that is not understood)."""
    for number, record in enumerate(read_file(path), start=1):
        fields = record.fields
        try:
            limit = tolerance if fields.get("tolerance") is None else fields["tolerance"]
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < 1:
                raise ValueError(f"tolerance is {limit!r}; a number from 0 to below 1 is allowed")
            problem = FORMATS[form](fields, f"{Path(path).name.split('.')[0]}/{number}", float(limit))
        except (TypeError, ValueError, SyntaxError, LookupError, ArithmeticError, AttributeError) as error:
            what = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
            what = f"it has no field {error}" if isinstance(error, KeyError) else what
            raise DataError(f"{record.place} is not a problem in the {form} format: {what}") from None
        yield problem


def _humaneval(record: Record, name: str, tolerance: float) -> Problem:
    entry, stub = record["entry_point"], record["prompt"]
    question = f"Write the function `{entry}`:\n```python\n{stub.strip()}\n```"
    calls = as_calls(assertions(record["test"], "check"), {"candidate": entry}, tolerance)
    data = calls or {
        "form": "python",
        "setup": stub,
        "names": [entry],
        "tests": [f"{record['test']}\ncheck({entry})\n"],
    }
    refuse_empty(record["test"])
    data |= {"entry_point": entry, "stub": f"{stub.strip()}\n"}
    if str(record.get("task_id")).startswith("HumanEval/"):
        data["split"] = "test"
    return Problem(name, question, stub + record["canonical_solution"], data=data)


def _mbpp(record: Record, name: str, tolerance: float) -> Problem:
    tests = loaded(record["test_list"], "test_list")
    if not tests or not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise ValueError(f"test_list is {tests!r:.60}; a list of tests as text is needed")
    tests = [test.replace("\r\n", "\n") for test in tests]
    question = f"{record['text' if 'text' in record else 'prompt'].strip()} For example:\n```python\n{tests[0]}\n```"
    setup = record["test_setup_code"] if "test_setup_code" in record else "\n".join(record["test_imports"])
    source = "\n".join([setup, *tests])
    refuse_empty(source)
    free_names = unbound_names(source)
    modules = [name for name in free_names if name in sys.stdlib_module_names]  # they count on the program's imports
    helpers = defined_names(source) - defined_names(record["code"])
    data = (None if setup else as_calls([ast.parse(test).body[0] for test in tests], {}, tolerance)) or {
        "form": "python",
        "setup": "".join(f"import {name}\n" for name in modules) + setup,
        "names": [name for name in free_names if name not in modules and name not in helpers],
        "tests": tests,
    }
    data |= {"text": record["text" if "text" in record else "prompt"], "tests_shown": "\n".join(tests)}
    number = record.get("task_id")
    if isinstance(number, int) and 1 <= number <= 974:
        bounds = {10: "examples", 510: "test", 600: "dev", 974: "train"}
        data["split"] = next(split for last, split in bounds.items() if number <= last)
    return Problem(name, question, record["code"].replace("\r\n", "\n"), data=data)


def _evalplus(record: Record, name: str, tolerance: float) -> Problem:
    """Read a row of HumanEval+ or MBPP+: the original tests and added ones, decided by the reference solution."""
    entry, stub, task = record["entry_point"], record["prompt"], str(record["task_id"])
    of_mbpp = task.startswith("Mbpp/")
    reference = ("" if of_mbpp else stub) + record["canonical_solution"]
    if of_mbpp:  # a docstring with one assertion, as MBPP+ 0.2 has it; rows of 0.1 hold the assertion apart
        text = stub.strip().strip("'\"").strip()
        shown = "" if "assert" in text else record["assertion"].strip().split("\n")[0] + "\n"
        stub = f'"""\n{text}\n{shown}"""\n'
    base, plus = ([*record[key]] for key in ("base_input", "plus_input"))
    data = {
        "form": "reference", "entry_point": entry, "stub": f"{stub.strip()}\n", "split": "test", "reference": reference,
        "inputs": [arguments(task, entered) for entered in (*base, *plus)], "base": len(base),
        "atol": max(float(record["atol"]), tolerance),
    }  # fmt: skip
    question = f"Write the function `{entry}`:\n```python\n{stub.strip()}\n```"
    return Problem(task, question, reference, data=data | (oracle(entry) if of_mbpp else ROOTS.get(entry, {})))


FORMATS: Mapping[str, Callable[[Record, str, float], Problem]] = {
    "humaneval": _humaneval,
    "mbpp": _mbpp,
    "evalplus": _evalplus,
    "stdio": read_tests,
}


def assertions(source: str, function: str) -> list[ast.stmt]:
    """The statements of a test function, without those that state nothing (docstrings, `assert True`)."""
    tree = ast.parse(source)
    (checker,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    stated = list[ast.stmt]()
    for node in checker.body:
        content = node.test if isinstance(node, ast.Assert) else getattr(node, "value", None)
        states_nothing = isinstance(content, ast.Constant) and bool(content.value)
        if not (states_nothing and isinstance(node, ast.Assert | ast.Expr)):
            stated.append(node)
    return stated


def as_calls(
    statements: Sequence[ast.stmt], aliases: Mapping[str, str], tolerance: float = 0.0
) -> dict[str, Any] | None:
    """Tests of form `calls`; None unless every statement asserts that one and the same function returns a literal."""
    names, calls = set[str](), []
    for statement in statements:
        match statement:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=called), args=args, keywords=[]),
                    ops=[ast.Eq()],
                    comparators=[expected],
                )
            ) if _is_literal(expected) and all(map(_is_literal, args)):
                names.add(called)
                arguments = ast.unparse(ast.Tuple(elts=args, ctx=ast.Load()))
                calls.append({"args": arguments, "expected": ast.unparse(expected)})
            case _:
                return None
    if len(names) != 1:
        return None
    name = names.pop()
    data = {"form": "calls", "entry_point": aliases.get(name, name), "calls": calls}
    return data | {"tolerance": tolerance} if tolerance else data


def _is_literal(node: ast.expr) -> bool:
    try:
        return ast.literal_eval(node) is not Ellipsis
    except (ValueError, TypeError):
        return False
