"""Tests of programs as people's files have them: read as they are meant, or refused with the field and its value."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import DataError
from groupwise.tasks.code import read_problems
from groupwise.types import Problem

SUM = {"problem": "Add n numbers."}
PAIR = {"input": "3\n1 2 3", "output": "6"}
LINES = {"inputs": [["3", "1 2 3"]], "outputs": [["6"]]}
TWO_SUM = "class Solution:\n    def twoSum(self, a: List[int], t: int):\n        return Counter(a), sys.maxsize, gcd"


def read(path: Path, *records: Any) -> list[Problem]:
    file = path / "a.jsonl"
    file.write_text("\n".join(record if isinstance(record, str) else json.dumps(record) for record in records))
    return list(read_problems(file, "stdio", 0.0))


@pytest.mark.parametrize(
    "tests",
    [
        {"tests": LINES},
        {"tests": json.dumps({**LINES, "fn_name": None})},
        {"tests": repr({**LINES, "fn_name": None})},
        {"input_output": json.dumps({"inputs": ["3\n1 2 3"], "outputs": ["6"]})},
        {"tests": {"inputs": [[3, "1 2 3"]], "outputs": [6]}},
        {"tests": {"input": "3\n1 2 3", "output": "6"}},
        {"tests": [{"stdin": "3\n1 2 3", "stdout": "6", "explanation": "1 + 2 + 3"}]},
        {"tests": [{"input": ["3", "1 2 3"], "output": ["6"], "testtype": "stdin", "fn_name": ""}]},
        {"public_test_cases": json.dumps([{**PAIR, "testtype": "stdin"}]), "private_test_cases": ""},
        {"test_cases": [{**PAIR, "type": "stdin_stdout", "fn_name": None}], "metadata": "a remark"},
        {"public_tests": {"input": ["3\n1 2 3"], "output": ["6"]}, "generated_tests": {"input": [], "output": []}},
        {"tests": LINES, "checker": None, "interactive": False, "input_file": "", "tolerance": 0},
    ],
)
def test_programs_that_read_standard_input(tmp_path: Path, tests: dict[str, Any]) -> None:
    (problem,) = read(tmp_path, SUM | tests)
    assert problem.data == {"form": "stdio", "tests": [PAIR], "tolerance": 0.0}
    assert problem.question.startswith("Add n numbers.\n\nThe program reads standard input")
    assert "TABLE" in problem.reference


def test_tests_of_several_fields_are_put_together(tmp_path: Path) -> None:
    record = {"description": "Add.", "public_tests": {"input": ["1"], "output": ["1"]},
              "private_tests": {"input": ["2"], "output": ["2"]}, "tolerance": 1e-6}  # fmt: skip
    (problem,) = read(tmp_path, record)
    tests = [{"input": "1", "output": "1"}, {"input": "2", "output": "2"}]
    assert problem.data == {"form": "stdio", "tests": tests, "tolerance": 1e-6}


def test_numbers_are_those_that_were_written(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, '{"problem": "x", "tests": {"inputs": [0.10, 1e23], "outputs": [1E-7, [2, -3.50]]}}')
    tests = [{"input": "0.10", "output": "1E-7"}, {"input": "1e23", "output": "2\n-3.50"}]
    assert problem.data["tests"] == tests


@pytest.mark.parametrize(
    ("tests", "calls"),
    [
        ({"tests": {"fn_name": "f", "inputs": [[[1, 2], "a"], [[], "b"]], "outputs": [[3, 4], []]}},
         [('[[1, 2], "a"]', "[3, 4]", None), ('[[], "b"]', "[]", None)]),
        ({"input_output": json.dumps({"fn_name": "f", "inputs": [[5]], "outputs": [["x"]]})},
         [("[5]", '["x"]', '"x"')]),
        ({"public_test_cases": json.dumps([{"input": '[1, 2]\n"a"', "output": "null", "testtype": "functional"}]),
          "metadata": json.dumps({"func_name": "f"})}, [('[[1, 2], "a"]', "null", None)]),
        ({"tests": [{"input": [1.5], "output": True, "fn_name": "f", "type": "function_call"}]},
         [("[1.5]", "true", None)]),
        ({"tests": {"inputs": [[{"1": None}]], "outputs": [float("nan")]}, "fn_name": "Solution.f"},
         [('[{"1": null}]', "NaN", None)]),
    ],
)  # fmt: skip
def test_functions_that_are_called(tmp_path: Path, tests: dict[str, Any], calls: list[Any]) -> None:
    (problem,) = read(tmp_path, SUM | tests)
    assert {key: problem.data[key] for key in ("form", "entry_point", "values")} == {
        "form": "calls", "entry_point": "f", "values": "json"
    }  # fmt: skip
    assert [(call["args"], call["expected"], call.get("or")) for call in problem.data["calls"]] == calls
    assert "The program defines the function `f`" in problem.question
    namespace: dict[str, Any] = {}
    exec(problem.reference, namespace)
    for args, expected, _ in calls:
        assert json.dumps(namespace["f"](*json.loads(args))) == expected


def test_the_solution_is_the_first_in_python_and_has_its_imports(tmp_path: Path) -> None:
    tests = {"fn_name": "twoSum", "inputs": [[[1], 2]], "outputs": [[1, 2]]}
    solutions = {"solution": ["int main() {}", "print 'old'", TWO_SUM, "pass"], "language": [2, 1, 3, 3]}
    (problem,) = read(tmp_path, {"question": "q", "input_output": tests, "solutions": solutions, "starter_code": "def"})
    imports = "import sys\nfrom typing import List\nfrom collections import Counter\nfrom math import gcd\n"
    assert sorted(problem.reference.removesuffix(TWO_SUM).splitlines()) == sorted(imports.splitlines())
    assert "It begins with:\n```python\ndef\n```" in problem.question
    (problem,) = read(tmp_path, {"question": "q", "tests": LINES, "solutions": json.dumps(["print(6)"])})
    assert problem.reference == "print(6)"
    (problem,) = read(tmp_path, {"question": "q", "tests": LINES, "solutions": ["int main() {}"]})
    ast.parse(problem.reference)
    assert "TABLE" in problem.reference


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tests": {"inputs": "12", "outputs": ["1", "2"]}}, "tests has the inputs '12' and the outputs .* two lists"),
        ({"tests": {"inputs": ["1"], "outputs": ["1", "2"]}}, "two lists of one length are needed"),
        ({"tests": {"inputs": [], "outputs": []}}, "it has no tests"),
        ({"tests": {"inputs": ["1", "2"], "outputs": ["", " \n"]}}, "its tests expect no output"),
        ({"tests": {"inputs": ["1"]}}, "tests has none of output, outputs, stdout, expected_output"),
        ({"tests": {"inputs": ["1"], "input": ["2"], "outputs": ["1"]}}, "has input and inputs of"),
        ({"tests": {"inputs": ["1"], "outputs": [float("nan")]}}, "an output is nan; text, a number, or a list"),
        ({"tests": {"inputs": [True], "outputs": ["1"]}}, "an input is True; text, a number, or a list"),
        ({"tests": {"inputs": ["1"], "outputs": [{"a": 1}]}}, "an output is {'a': 1}"),
        ({"tests": {"inputs": [[["1"]]], "outputs": ["1"]}}, r"an input is \[\['1'\]\]"),
        ({"tests": {"inputs": ["1"], "outputs": ["1"], "checker": "c.cpp"}}, "tests.checker is 'c.cpp'"),
        ({"tests": [{**PAIR, "testtype": "interactive"}]}, "tests.0: the kind of the test is 'interactive'"),
        ({"tests": [PAIR, ["1", "2"]]}, r"tests.1 is \['1', '2'\]; an object"),
        ({"tests": [PAIR, {**PAIR, "output": "7"}]}, r"two outputs are right for the input '3\\n1 2 3'"),
        ({"tests": [PAIR, {"input": [1], "output": 2, "fn_name": "f"}]}, "for standard input and f; one is allowed"),
        ({"tests": [{**PAIR, "testtype": "functional"}]}, "calls a function that nothing names"),
        ({"tests": [{**PAIR, "testtype": "functional", "fn_name": "f"}]}, "an argument of f is not JSON"),
        ({"tests": {"fn_name": "f", "inputs": [5], "outputs": [6]}}, "the arguments of f are 5; a list"),
        ({"tests": {"fn_name": 3, "inputs": [[5]], "outputs": [6]}}, "fn_name is 3; the name of a function"),
        ({"private_test_cases": "eJxrYJkq"}, "private_test_cases is not JSON.* begins with 'eJxrYJkq'"),
        ({"tests": '{"inputs": ["1"], "inputs": ["2"], "outputs": ["1"]}'}, "the field 'inputs' more than once"),
        ({"tests": 5}, "tests is 5; an object with inputs and outputs"),
        ({"tests": LINES, "special_judge": True}, "special_judge is True, which is not read; each test has one"),
        ({"tests": LINES, "input_file": "in.txt"}, "input_file is 'in.txt'"),
        ({"tests": LINES, "atol": 1e-6}, "atol is 1e-06, which is not read; what may differ is in `tolerance`"),
        ({"tests": LINES, "tolerance": "0.1"}, "tolerance is '0.1'; a number from 0 to below 1"),
        ({"tests": LINES, "tolerance": float("nan")}, "tolerance is nan"),
        ({"tests": LINES, "problem": ["Add."]}, r"problem is \['Add.'\]; text is needed"),
        ({"tests": LINES, "problem": " "}, "it has no question"),
        ({"tests": LINES, "starter_code": 5}, "starter_code is 5; text"),
        ({"tests": LINES, "solution": 5}, "the solution is 5; text or a list"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"a.jsonl, line 2 is not a problem in the stdio format: .*{message}"):
        read(tmp_path, {**SUM, "tests": LINES}, SUM | record)
