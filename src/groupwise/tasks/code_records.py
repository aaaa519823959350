"""Records of programming problems: HumanEval, MBPP and stdin/stdout collections, each into one problem with its tests.

The tests' forms are those of the verifier `code`: `calls` (plain values in, plain values out), `python`, `stdio`.
Sources: Chen et al. 2021 (arXiv:2107.03374), Austin et al. 2021 (arXiv:2108.07732), Li et al. 2022 (arXiv:2203.07814).
"""

import ast
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.tasks.code_asserts import as_calls, assertions, unbound_names
from groupwise.types import Problem

Record = Mapping[str, Any]


def read_problems(path: Path, form: str, tolerance: float) -> Iterator[Problem]:
    """The problems of a file (`.jsonl`, `.json` with a list, either also with `.gz`).

    Raises:
        DataError: names the file and the record that cannot be read.
    """
    for number, record in enumerate(_records(path), start=1):
        try:
            yield FORMATS[form](record, f"{path.name.split('.')[0]}/{number}", tolerance)
        except (KeyError, TypeError, ValueError, SyntaxError, IndexError) as error:
            raise DataError(f"{path} record {number} is no {form} problem: {error!r}") from None


def _records(path: Path) -> list[Record]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        is_list = path.name.removesuffix(".gz").endswith(".json")
        records = json.loads(text) if is_list else [json.loads(line) for line in text.split("\n") if line.strip()]
    except FileNotFoundError:
        raise DataError(f"there is no problem file {path.absolute()}") from None
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(records, list):
        raise DataError(f"{path} holds a JSON {type(records).__name__}; a list of problems is needed")
    return records


def _humaneval(record: Record, name: str, tolerance: float) -> Problem:
    """The stub and its docstring are the question; what stands beside the stub helps the tests and is trusted."""
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
    """The first assertion is shown, as the paper's prompts show them all; the others stay hidden."""
    tests = [test.replace("\r\n", "\n") for test in record["test_list"]]
    question = f"{record['text'].strip()} For example:\n```python\n{tests[0]}\n```"
    setup = record["test_setup_code"]
    unbound = unbound_names("\n".join([setup, *tests]))
    modules = [name for name in unbound if name in sys.stdlib_module_names]  # they count on the program's imports
    data = (None if setup else as_calls([ast.parse(test).body[0] for test in tests], {})) or {
        "form": "python",
        "setup": "".join(f"import {name}\n" for name in modules) + setup,
        "names": [name for name in unbound if name not in modules],
        "tests": tests,
    }
    return Problem(name, question, record["code"].replace("\r\n", "\n"), data=data)


def _stdio(record: Record, name: str, tolerance: float) -> Problem:
    """`problem` and `tests` with lists of `inputs` and `outputs`, as an object or its text; `solution` if there is one.

    Where there is none, the reference is a table of the tests: it proves that every test can be passed.
    """
    tests = record["tests"]
    tests = ast.literal_eval(tests) if isinstance(tests, str) else tests
    pairs = [(str(given), str(output)) for given, output in zip(tests["inputs"], tests["outputs"], strict=True)]
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
