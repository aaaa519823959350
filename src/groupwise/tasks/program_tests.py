"""Tests of programs as APPS, TACO, LiveCodeBench, CodeContests and others write them.

A field of `TESTS` holds them as an object or its text, with lists of inputs and outputs or a list of cases. An input
that is a list is its lines; with `fn_name` it is the arguments of a call. What is not understood is refused: a test
that means something else than what is run would teach it.
"""

import ast
import builtins
import contextlib
import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from groupwise.errors import DataError
from groupwise.runs.jsonl import Written, read_json
from groupwise.sandbox.solver import LIBRARY
from groupwise.types import Problem

Record = Mapping[str, Any]
QUESTIONS = ("problem", "question", "question_content", "description")
TESTS = ("tests", "test_cases", "input_output", "public_tests", "private_tests", "generated_tests", "public_test_cases",
         "private_test_cases")  # fmt: skip
"""Fields of tests; those that a record has are put together."""
JUDGES = ("checker", "special_judge", "generated_checker", "output_checker", "interactor", "interactive",
          "is_interactive", "interaction_format", "multiple_answers", "input_file", "output_file")  # fmt: skip
"""Fields that say that comparing the output of a program that reads standard input does not judge it."""
TOLERANCES = ("atol", "rtol", "eps", "epsilon")
"""Fields of a tolerance in other forms than the one that is read."""
FUNCTION = ("fn_name", "func_name", "function_name", "entry_point")
KINDS = {"stdin": False, "stdin_stdout": False, "stdio": False, "functional": True, "function_call": True}
"""Names of kinds of tests: true where a function is called."""
_INPUTS, _OUTPUTS = ("input", "inputs", "stdin"), ("output", "outputs", "stdout", "expected_output")
_ABOUT = ("id", "name", "explanation", "testtype", "type", "metadata", *FUNCTION)


class _Case(NamedTuple):
    """One test: what goes in, what comes out, and the function that is called, if one is."""

    entry: Any
    output: Any
    function: str


def read_tests(record: Record, name: str, tolerance: float) -> Problem:
    """The problem of a record (ValueError: names a field that is not understood).

    Without a solution in Python the reference is a table of the tests: it proves that every test can be passed.
    """
    for field in (*JUDGES, *TOLERANCES):
        if record.get(field) not in (None, False, "", 0, "stdin", "stdout", "standard input", "standard output"):
            need = "what may differ is in `tolerance`" if field in TOLERANCES else "each test has one right output"
            raise ValueError(f"{field} is {record[field]!r:.60}, which is not read; {need} here")
    texts = {field: record.get(field) or "" for field in (*QUESTIONS, "starter_code")}
    for field, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{field} is {text!r:.60}; text is needed")
    if not (question := next((texts[field].strip() for field in QUESTIONS if texts[field]), "")):
        raise ValueError(f"it has no question; it is looked for in {', '.join(QUESTIONS)}")
    if starter := texts["starter_code"].strip():
        question += f"\n\nIt begins with:\n```python\n{starter}\n```"
    function = _function(record)
    cases = [case for field in TESTS if record.get(field) for case in _cases(record[field], field, function)]
    if not cases:
        raise ValueError(f"it has no tests; they are looked for in {', '.join(TESTS)}")
    functions = sorted({case.function for case in cases})
    if len(functions) > 1:
        raise ValueError(f"its tests are for {' and '.join(f or 'standard input' for f in functions)}; one is allowed")
    if functions[0]:
        return _called(name, question, _solution(record), cases, tolerance)
    tests = [{"input": _text(case.entry, "an input"), "output": _text(case.output, "an output")} for case in cases]
    if not any(test["output"].strip() for test in tests):
        raise ValueError("its tests expect no output, so that a program that does nothing passes")
    table = {test["input"]: test["output"] for test in tests}
    for test in tests:
        if table[test["input"]].split() != test["output"].split():
            raise ValueError(f"two outputs are right for the input {test['input']!r:.60}; only one is allowed")
    return Problem(
        name,
        f"{question}\n\nThe program reads standard input and writes standard output.",
        _solution(record) or f"import sys\nTABLE = {table!r}\nprint(TABLE[sys.stdin.buffer.read().decode()])\n",
        data={"form": "stdio", "tests": tests, "tolerance": tolerance},
    )


def _called(name: str, question: str, solution: str, cases: Sequence[_Case], tolerance: float) -> Problem:
    """Tests that call a function; in lists, the only value of every output may stand for the output (APPS)."""
    function = cases[0].function
    values = [_values(case) for case in cases]
    is_wrapped = all(isinstance(case.entry, list) and type(v[1]) is list and len(v[1]) == 1
                     for case, v in zip(cases, values, strict=True))  # fmt: skip
    calls = []
    for args, output in values:
        call = {"args": json.dumps(args), "expected": json.dumps(output)}
        calls.append(call | {"or": json.dumps(output[0])} if is_wrapped else call)
    table = {repr(tuple(args)): output for args, output in values}
    imports = []  # of what the solution uses of the library, as the judges of such collections run it
    for unbound in unbound_names(solution) if solution else ():
        home = next((module for module in LIBRARY if hasattr(importlib.import_module(module), unbound)), None)
        if unbound in sys.stdlib_module_names:
            imports.append(f"import {unbound}\n")
        elif home:
            imports.append(f"from {home} import {unbound}\n")
    return Problem(
        name,
        f"{question}\n\nThe program defines the function `{function}`, or a class `Solution` with that method.",
        "".join(imports) + solution
        or f"nan, inf = float('nan'), float('inf')\nTABLE = {table!r}\n"
        f"def {function}(*args): return TABLE[repr(args)]\n",
        data={"form": "calls", "entry_point": function, "calls": calls, "values": "json", "tolerance": tolerance},
    )


def _function(fields: Mapping[str, Any]) -> str:
    """The function that a record, its metadata, tests or a test name; empty where they name none."""
    metadata = fields.get("metadata")
    with contextlib.suppress(ValueError):  # a remark, which names nothing
        metadata = loaded(metadata, "metadata")
    for place in (fields, metadata if isinstance(metadata, Mapping) else {}):
        for field in FUNCTION:
            if place.get(field):
                value = place[field]
                if not (isinstance(value, str) and value.removeprefix("Solution.").isidentifier()):
                    raise ValueError(f"{field} is {value!r:.60}; the name of a function is needed")
                return value.removeprefix("Solution.")
    return ""


def loaded(value: Any, field: str) -> Any:
    """The content of a field, which may be an object or its text: JSON, or a Python literal."""
    if not isinstance(value, str):
        return value
    try:
        return read_json(value, field)
    except DataError as error:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            if "is not JSON" in str(error):
                return ast.literal_eval(value)
        raise ValueError(str(error)) from None


def _cases(value: Any, field: str, function: str) -> Iterator[_Case]:
    """The tests of a field: lists of inputs and outputs in one object, or a list of objects with one of each."""
    value = loaded(value, field)
    if isinstance(value, list):
        for index, case in enumerate(value):
            if not isinstance(case, Mapping):
                raise ValueError(f"{field}.{index} is {case!r:.60}; an object with an input and an output is needed")
            yield _case(case, f"{field}.{index}", function)
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{field} is {value!r:.60}; an object with inputs and outputs is needed")
    whole = _case(value, field, function)
    inputs, outputs = whole.entry, whole.output
    if isinstance(inputs, str) and isinstance(outputs, str):
        yield whole
        return
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)):
        sides = f"the inputs {inputs!r:.60} and the outputs {outputs!r:.60}"
        raise ValueError(f"{field} has {sides}; two lists of one length are needed")
    for entry, output in zip(inputs, outputs, strict=True):
        yield _Case(entry, output, whole.function)


def _case(case: Mapping[str, Any], place: str, function: str) -> _Case:
    unknown = [key for key in case if key not in (*_INPUTS, *_OUTPUTS, *_ABOUT) and case[key] not in (None, "", False)]
    if unknown:
        known = ", ".join((*_INPUTS, *_OUTPUTS, *_ABOUT))
        raise ValueError(
            f"{place}.{unknown[0]} is {case[unknown[0]]!r:.60}, which is not understood; known are {known}"
        )
    sides = []
    for names in (_INPUTS, _OUTPUTS):
        given = [key for key in names if key in case]
        if len(given) != 1:
            raise ValueError(
                f"{place} has {' and '.join(given) or 'none'} of {', '.join(names)}; exactly one is needed"
            )
        sides.append(case[given[0]])
    function = _function(case) or function
    kind = case.get("testtype") or case.get("type")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"{place}: the kind of the test is {kind!r:.60}; {', '.join(KINDS)} are allowed")
    is_call = bool(function) if kind is None else KINDS[kind]
    if is_call and not function:
        raise ValueError(f"{place} calls a function that nothing names; {', '.join(FUNCTION)} are looked for")
    return _Case(sides[0], sides[1], function if is_call else "")


def _text(value: Any, what: str) -> str:
    """Text as it is, a number as it was written, or a list of these as lines."""
    if isinstance(value, list) and not any(isinstance(line, list) for line in value):
        return "\n".join(_text(line, what) for line in value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} is {value!r:.60}; text, a number, or a list of them as lines is needed")
    return value.text if isinstance(value, Written) else repr(value)


def _values(case: _Case) -> tuple[list[Any], Any]:
    """The arguments of a call and what it must return: a list of values, or text with one value of JSON a line."""
    if isinstance(case.entry, list):
        return case.entry, case.output
    if not (isinstance(case.entry, str) and isinstance(case.output, str)):
        raise ValueError(
            f"the arguments of {case.function} are {case.entry!r:.60}; a list, or lines of JSON, are needed"
        )
    lines = [line for line in case.entry.split("\n") if line.strip()]
    try:
        args = [read_json(line, f"an argument of {case.function}") for line in lines]
        return args, read_json(case.output, "an output")
    except DataError as error:
        raise ValueError(str(error)) from None


def _solution(record: Record) -> str:
    """The record's solution, or the first of its solutions that is Python; empty where there is none."""
    value = record.get("solution") or record.get("solutions") or ""
    if isinstance(value, str) and not record.get("solution"):
        value = loaded(value, "solutions") if value.strip() else []
    if isinstance(value, Mapping):
        value = value.get("solution") or []
    sources = [value] if isinstance(value, str) else value
    if not (isinstance(sources, list) and all(isinstance(source, str) for source in sources)):
        raise ValueError(f"the solution is {value!r:.60}; text or a list of texts is needed")
    for source in sources:
        try:
            ast.parse(source)
        except (SyntaxError, ValueError):  # another language, or Python 2
            continue
        return str(source)
    return value if isinstance(value, str) else ""


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


def refuse_empty(source: str) -> None:
    """Refuse (ValueError) tests that no program fails: without exception or assertion (of more than a true value)."""
    if not any(
        isinstance(node, ast.Raise)
        or (isinstance(node, ast.Assert) and not (isinstance(node.test, ast.Constant) and node.test.value))
        or "assert" in getattr(node, "attr", getattr(node, "id", ""))  # `self.assertEqual`
        for node in ast.walk(ast.parse(source))
    ):
        raise ValueError("its tests assert nothing, so that every program passes")


def defined_names(source: str) -> set[str]:
    """Functions and classes that a source defines; none where it is not Python."""
    with contextlib.suppress(SyntaxError, ValueError):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}
    return set()
