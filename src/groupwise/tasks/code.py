"""Programming problems from files: HumanEval, MBPP, and programs that read standard input. Judged by hidden tests.

The tests' forms are those of the verifier `code`: `calls` (plain values in, plain values out), `python`, `stdio`.
Sources: Chen et al. 2021 (arXiv:2107.03374), Austin et al. 2021 (arXiv:2108.07732), Li et al. 2022 (arXiv:2203.07814).
"""

import ast
import builtins
import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.runs.jsonl import read_jsonl
from groupwise.tasks.base import TEMPLATES, Task, TaskConfig, Template, split_of
from groupwise.types import SPLITS, Problem, Split

PROGRAM = Template(
    prompt=(
        "The user describes a task and the assistant solves it with a Python program. The assistant first thinks it "
        "through inside <think> </think> and then gives the whole program, imports included, in one block that begins "
        "with ```python and ends with ```. Only the standard library is there.\nUser: {question}\nAssistant:"
    ),
    gold="<think></think>\n```python\n{reference}\n```",
)
"""Default template."""


class CodeConfig(TaskConfig):
    """Dials of the code task."""

    template: Annotated[Template, TEMPLATES] = PROGRAM
    """Makes the prompt of a problem."""
    path: DataRef
    """File of problems: `.jsonl`, or `.json` with a list; either also compressed, with `.gz`."""
    format: Literal["humaneval", "mbpp", "stdio"]
    """Format of the records. `stdio`: fields `problem`, `tests` (lists `inputs` and `outputs`) and, where there is
    one, `solution`."""
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    """Difference allowed between numbers of a `stdio` output, relative above 1; 0: tokens must be equal."""
    only_test: bool = False
    """Put every problem into the test split: for benchmarks, which are never trained on."""


class Code(Task):
    """Programming problems from a file."""

    name: ClassVar[str] = "code"
    verifier: ClassVar[str] = "code"
    answers_any_question: ClassVar[bool] = False
    Config = CodeConfig
    config: CodeConfig

    def __init__(self, config: CodeConfig) -> None:
        super().__init__(config)
        self._splits: dict[Split, list[Problem]] | None = None

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, in the file's order."""
        if self._splits is None:
            self._splits = {name: [] for name in SPLITS}
            for problem in read_problems(Path(self.config.path), self.config.format, self.config.tolerance):
                self._splits["test" if self.config.only_test else split_of(problem.question)].append(problem)
        if not self._splits[split]:
            raise DataError(f"{self.config.path} has no problem for the {split} split")
        return self._splits[split]


Record = Mapping[str, Any]


def read_problems(path: Path, form: str, tolerance: float) -> Iterator[Problem]:
    """The problems of a file (`.jsonl`, `.json` with a list, either also with `.gz`)."""
    for number, record in enumerate(_records(path), start=1):
        try:
            yield FORMATS[form](record, f"{path.name.split('.')[0]}/{number}", tolerance)
        except (KeyError, TypeError, ValueError, SyntaxError, IndexError) as error:
            raise DataError(f"{path} record {number} is not a problem in the {form} format: {error!r}") from None


def _records(path: Path) -> list[Record]:
    if not path.exists():
        raise DataError(f"there is no problem file {path.absolute()}")
    if not path.name.removesuffix(".gz").endswith(".json"):
        return [record.fields for record in read_jsonl(path)]
    try:
        data = path.read_bytes()
        records = json.loads((gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig"))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(records, list):
        raise DataError(f"{path} holds a JSON {type(records).__name__}; a list of problems is needed")
    return records


def _humaneval(record: Record, name: str, tolerance: float) -> Problem:
    entry, stub = record["entry_point"], record["prompt"]
    question = f"Write the function `{entry}`:\n```python\n{stub.strip()}\n```"
    calls = as_calls(assertions(record["test"], "check"), {"candidate": entry})
    data = calls or {
        "form": "python",
        "setup": stub,
        "names": [entry],
        "tests": [f"{record['test']}\ncheck({entry})\n"],
    }
    return Problem(name, question, stub + record["canonical_solution"], data=data)


def _mbpp(record: Record, name: str, tolerance: float) -> Problem:
    tests = [test.replace("\r\n", "\n") for test in record["test_list"]]
    question = f"{record['text'].strip()} For example:\n```python\n{tests[0]}\n```"
    setup = record["test_setup_code"]
    free_names = unbound_names("\n".join([setup, *tests]))
    modules = [name for name in free_names if name in sys.stdlib_module_names]  # they count on the program's imports
    data = (None if setup else as_calls([ast.parse(test).body[0] for test in tests], {})) or {
        "form": "python",
        "setup": "".join(f"import {name}\n" for name in modules) + setup,
        "names": [name for name in free_names if name not in modules],
        "tests": tests,
    }
    return Problem(name, question, record["code"].replace("\r\n", "\n"), data=data)


def _stdio(record: Record, name: str, tolerance: float) -> Problem:
    """`problem` and `tests` with lists of `inputs` and `outputs`, as an object or its text; `solution` if there is one.

    Without a solution the reference is a table of the tests: it proves that every test can be passed.
    """
    tests = record["tests"]
    tests = ast.literal_eval(tests) if isinstance(tests, str) else tests
    pairs = [(str(entry), str(output)) for entry, output in zip(tests["inputs"], tests["outputs"], strict=True)]
    if not pairs:
        raise ValueError("it has no tests")
    table = f"import sys\nTABLE = {dict(pairs)!r}\nprint(TABLE[sys.stdin.read()])\n"
    question = f"{record['problem'].strip()}\n\nThe program reads standard input and writes standard output."
    data = {"form": "stdio", "tests": [{"input": i, "output": o} for i, o in pairs], "tolerance": tolerance}
    return Problem(name, question, record.get("solution") or table, data=data)


FORMATS: Mapping[str, Callable[[Record, str, float], Problem]] = {
    "humaneval": _humaneval,
    "mbpp": _mbpp,
    "stdio": _stdio,
}
"""Name of a format to the reader of one record."""


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


def as_calls(statements: Sequence[ast.stmt], aliases: Mapping[str, str]) -> dict[str, Any] | None:
    """Tests of form `calls`; None unless every statement asserts that one and the same function returns a literal."""
    parsed_calls = [_as_call(statement) for statement in statements]
    names = {call[0] for call in parsed_calls if call}
    if not parsed_calls or None in parsed_calls or len(names) != 1:
        return None
    name = names.pop()
    calls = [{"args": call[1], "expected": call[2]} for call in parsed_calls if call]
    return {"form": "calls", "entry_point": aliases.get(name, name), "calls": calls}


def _as_call(statement: ast.stmt) -> tuple[str, str, str] | None:
    match statement:
        case ast.Assert(
            test=ast.Compare(
                left=ast.Call(func=ast.Name(id=name), args=args, keywords=[]), ops=[ast.Eq()], comparators=[expected]
            )
        ) if _is_literal(expected) and all(map(_is_literal, args)):
            return name, ast.unparse(ast.Tuple(elts=args, ctx=ast.Load())), ast.unparse(expected)
    return None


def _is_literal(node: ast.expr) -> bool:
    try:
        return ast.literal_eval(node) is not Ellipsis
    except (ValueError, TypeError):
        return False


def unbound_names(source: str) -> list[str]:
    """Names that a source reads and never binds, except built-ins, in order."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name | ast.arg | ast.alias)]
    bound_names = {
        node.arg if isinstance(node, ast.arg) else (node.asname or node.name).split(".")[0]
        for node in nodes
        if not isinstance(node, ast.Name)
    } | {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    loaded_names = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return [name for name in dict.fromkeys(loaded_names) if name not in bound_names and not hasattr(builtins, name)]
