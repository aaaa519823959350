"""The code task: three file formats, disjoint splits, and which assertions are plain calls."""

import ast
import gzip
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.tasks import make_task
from groupwise.tasks.code import Code, CodeConfig, as_calls, assertions
from groupwise.tasks.program_tests import unbound_names
from groupwise.types import SPLITS, Split

DATA = Path(__file__).parents[4] / "shared" / "data"
FILES = {
    "evalplus": ("mbpp_plus/MbppPlus.jsonl", (0, 0, 399), {"reference": 399}),
    "humaneval": ("humaneval/HumanEval.jsonl.gz", (0, 0, 164), {"calls": 142, "python": 22}),
    "mbpp": ("mbpp/mbpp.jsonl", (374, 90, 500), {"calls": 957, "python": 7}),
    "stdio": ("code_contests_small/code_contests_test.json", (144, 13, 8), {"stdio": 165}),
}
MBPP = {"text": "Add.", "code": "def add(a, b):\r\n  return a + b", "task_id": 1, "test_setup_code": "",
        "test_list": ["assert add(1, 2) == 3", "assert add(-1, (2)) == 1"]}  # fmt: skip
HUMANEVAL = {
    "task_id": "x",
    "entry_point": "f",
    "prompt": 'def f(x):\n    """Doc."""\n',
    "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate([1]) == [1]\n",
}
STDIO = {"problem": "Echo.", "tests": {"inputs": ["1\n", "2"], "outputs": ["1", "2\n"]}}


def task(path: Path, form: str, *records: Any, **options: Any) -> Code:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return Code(parse(CodeConfig, {"kind": "code", "path": str(path), "format": form, "only_test": True, **options}))


def test_mbpp(tmp_path: Path) -> None:
    (problem,) = task(tmp_path / "a.jsonl", "mbpp", MBPP).problems("test")
    calls = [{"args": "(1, 2)", "expected": "3"}, {"args": "(-1, 2)", "expected": "1"}]
    assert problem.data.items() >= {"form": "calls", "entry_point": "add", "calls": calls}.items()
    assert problem.data["tests_shown"] == "assert add(1, 2) == 3\nassert add(-1, (2)) == 1"
    assert problem.reference == "def add(a, b):\n  return a + b"
    assert "add(1, 2) == 3" in problem.question
    assert "add(-1" not in problem.question, "only the first assertion is shown"


def test_mbpp_with_tests_that_need_python(tmp_path: Path) -> None:
    record = {**MBPP, "test_setup_code": "top = Node(1)", "test_list": ["assert sys.maxsize > size(top)"]}
    (problem,) = task(tmp_path / "a.jsonl", "mbpp", record).problems("test")
    expected = {
        "form": "python", "setup": "import sys\ntop = Node(1)", "names": ["Node", "size"],
        "tests": ["assert sys.maxsize > size(top)"],
    }  # fmt: skip
    assert problem.data.items() >= expected.items()
    setup = "def near(a, b): return abs(a - b) < 1e-6\ndef add(a, b): pass"
    record |= {"test_setup_code": setup, "test_list": ["assert near(add(1, 2), 3)"]}
    (problem,) = task(tmp_path / "b.jsonl", "mbpp", record).problems("test")
    assert problem.data["names"] == ["add"], "a helper of the tests is theirs, whatever a program defines"


def test_humaneval(tmp_path: Path) -> None:
    (problem,) = task(tmp_path / "a.jsonl", "humaneval", HUMANEVAL).problems("test")
    calls = [{"args": "([1],)", "expected": "[1]"}]
    stub = 'def f(x):\n    """Doc."""\n'
    assert problem.data == {"form": "calls", "entry_point": "f", "calls": calls, "stub": stub}
    assert problem.reference == 'def f(x):\n    """Doc."""\n    return x\n'
    assert "def f(x):" in problem.question
    loop = "def check(candidate):\n    for n in range(3): assert candidate(n) == n\n"
    (problem,) = task(tmp_path / "b.jsonl", "humaneval", {**HUMANEVAL, "test": loop}).problems("test")
    assert problem.data["form"] == "python"
    assert problem.data["tests"] == [f"{loop}\ncheck(f)\n"]
    assert problem.data["setup"] == HUMANEVAL["prompt"]


@pytest.mark.parametrize(
    ("number", "split"),
    [(10, None), (11, "test"), (510, "test"), (511, "dev"), (600, "dev"), (601, "train"), (974, "train")],
)
def test_mbpp_has_its_published_splits(tmp_path: Path, number: int, split: Split | None) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({**MBPP, "task_id": number}))
    whole = Code(CodeConfig(kind="code", path=str(tmp_path / "a.jsonl"), format="mbpp"))
    for name in SPLITS:
        if name == split:
            assert len(whole.problems(name)) == 1
        else:
            with pytest.raises(DataError, match=f"no problem for the {name} split"):
                whole.problems(name)


EVALPLUS = {
    "task_id": "Mbpp/2", "prompt": "'''\nShare.\n'''", "entry_point": "f", "base_input": [[[1, 2], [2]]], "atol": 0,
    "canonical_solution": "def f(a, b):\n  return set(a) & set(b)", "plus_input": [[[1.5], []]],
    "assertion": "\nassert f((1, 2), (2,)) == {2}\nassert f((), ()) == set()\n",
}  # fmt: skip


def test_rows_of_evalplus(tmp_path: Path) -> None:
    (problem,) = task(tmp_path / "a.jsonl", "evalplus", EVALPLUS).problems("test")
    assert problem.data["stub"] == '"""\nShare.\nassert f((1, 2), (2,)) == {2}\n"""\n'
    assert problem.data["inputs"] == [[(1, 2), (2,)], [(1.5,), ()]], "task 2 takes tuples"
    assert problem.data["base"] == 1
    assert problem.id == "Mbpp/2"
    whole = {**EVALPLUS, "task_id": "HumanEval/7", "prompt": "def f(a, b):\n", "canonical_solution": "  return a\n"}
    (problem,) = task(tmp_path / "b.jsonl", "evalplus", whole).problems("test")
    assert problem.reference == "def f(a, b):\n  return a\n"
    assert problem.data["inputs"] == [[[1, 2], [2]], [[1.5], []]]


def test_standard_input(tmp_path: Path) -> None:
    records = [STDIO, {**STDIO, "problem": "Other.", "tests": repr(STDIO["tests"]), "solution": "print(input())"}]
    first, second = task(tmp_path / "a.jsonl", "stdio", *records, tolerance=1e-6).problems("test")
    tests = [{"input": "1\n", "output": "1"}, {"input": "2", "output": "2\n"}]
    assert first.data == second.data == {"form": "stdio", "tests": tests, "tolerance": 1e-6}
    assert "TABLE" in first.reference
    assert second.reference == "print(input())"


def test_problems_that_differ_in_spaces_are_in_one_split(tmp_path: Path) -> None:
    records = [{**STDIO, "problem": f"Echo the number {n}."} for n in range(120)]
    spread = [{**record, "problem": str(record["problem"]).replace(" ", "\n")} for record in records]
    alone = task(tmp_path / "a.jsonl", "stdio", *records, only_test=False)
    both = task(tmp_path / "b.jsonl", "stdio", *records, *spread, only_test=False)
    for split in SPLITS:
        assert len(both.problems(split)) == 2 * len(alone.problems(split))


def test_a_tolerance_reaches_calls(tmp_path: Path) -> None:
    records = [MBPP, {**MBPP, "tolerance": 0.5}]
    problems = task(tmp_path / "a.jsonl", "mbpp", *records, tolerance=1e-6).problems("test")
    assert [problem.data["tolerance"] for problem in problems] == [1e-6, 0.5]


def test_mbpp_as_it_was_sanitised(tmp_path: Path) -> None:
    record = {"prompt": "Add.", "code": "x", "test_imports": ["import math"], "test_list": ["assert f(math.pi) == 3"]}
    (problem,) = task(tmp_path / "a.jsonl", "mbpp", record).problems("test")
    assert problem.data["setup"] == "import math"


def test_a_compressed_list(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps([STDIO]).encode()))
    (problem,) = make_task(
        {"kind": "code", "path": str(tmp_path / "a.json.gz"), "format": "stdio", "only_test": True}
    ).problems("test")
    assert problem.id == "a/1"


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"text": 1}', "line 1 is not a problem in the mbpp format: it has no field 'test_list'"),
     (json.dumps({**MBPP, "test_list": ["assert ("]}), "line 1 is not a problem in the mbpp format: SyntaxError"),
     (json.dumps({**MBPP, "test_list": []}), r"test_list is \[\]; a list of tests"),
     (json.dumps({**MBPP, "test_list": "assert add(1, 2) == 3"}), "test_list is not JSON"),
     ("", "has no problem for the test split")],
)  # fmt: skip
def test_files_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        Code(CodeConfig(kind="code", path=str(tmp_path / "a.jsonl"), format="mbpp", only_test=True)).problems("test")


@pytest.mark.parametrize(
    ("source", "stated"),
    [("assert f(1) == 2", True), ("assert f(1)", True), ("if f(1) != 2: raise ValueError", True),
     ("t.assertEqual(f(1), 2)", True), ("assert_allclose(f(1), 2)", True), ("f(1)", False),
     ("try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass", True), ("print(f(1) == 2)", False),
     ("x = f(1)\nassert True, 'ok'", False), ("pass", False)],
)  # fmt: skip
def test_tests_that_state_nothing_are_refused(tmp_path: Path, source: str, stated: bool) -> None:
    body = "".join(f"    {line}\n" for line in source.split("\n"))
    rows = {"mbpp": {**MBPP, "test_list": [source]}, "humaneval": {**HUMANEVAL, "test": f"def check(f):\n{body}"}}
    for form, row in rows.items():
        with nullcontext() if stated else pytest.raises(DataError, match="its tests assert nothing"):
            assert task(tmp_path / f"{form}.jsonl", form, row).problems("test")


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="format"):
        parse(CodeConfig, {"kind": "code", "path": "x", "format": "leetcode"})
    with pytest.raises(ConfigError, match="path"):
        parse(CodeConfig, {"kind": "code", "format": "mbpp"})


@pytest.mark.parametrize(
    ("source", "calls"),
    [("assert f(1, 'a') == {2}", ("(1, 'a')", "{2}")), ("assert f() == -1.5", ("()", "-1.5")),
     ("assert f((1)) == 2, 'message'", ("(1,)", "2")), ("assert f(x) == 1", None), ("assert f(1) == g(1)", None),
     ("assert f(1) != 1", None), ("assert f(a=1) == 1", None), ("assert abs(f(1) - 2) < 3", None),
     ("assert f(*[1]) == 2", None), ("assert f(...) == 2", None), ("assert m.f(1) == 2", None), ("f(1)", None),
     ("assert f(1) == 2 == 3", None)],
)  # fmt: skip
def test_which_assertions_are_plain_calls(source: str, calls: tuple[str, str] | None) -> None:
    found = as_calls(ast.parse(source).body, {})
    assert (found and (found["calls"][0]["args"], found["calls"][0]["expected"])) == calls


def test_calls_of_two_functions_need_python() -> None:
    assert as_calls(ast.parse("assert f(1) == 1\nassert g(1) == 1").body, {}) is None
    assert as_calls([], {}) is None


def test_statements_that_state_nothing_are_left_out() -> None:
    source = "def check(candidate):\n  'Doc.'\n  assert True, 'x'\n  assert candidate(1) == 1\n  assert False\n  x = 1"
    assert [ast.unparse(statement) for statement in assertions(source, "check")] == [
        "assert candidate(1) == 1", "assert False", "x = 1"
    ]  # fmt: skip


def test_unbound_names() -> None:
    source = "import os.path as p, re\nfor i in range(3):\n  assert len(f(i)) == p.x(re, lambda q: q + Pair)\ny = y2"
    assert unbound_names(source) == ["y2", "f", "Pair"]


@pytest.mark.skipif(not DATA.is_dir(), reason="benchmark files are not beside the repository")
@pytest.mark.parametrize("form", sorted(FILES))
def test_collections(form: str) -> None:
    name, sizes, forms = FILES[form]
    task = make_task(CodeConfig(kind="code", path=str(DATA / name), format=form))  # type: ignore[arg-type]
    problems = {split: task.problems(split) for split, size in zip(SPLITS, sizes, strict=True) if size}
    assert tuple(len(problems.get(split, ())) for split in SPLITS) == sizes
    everything = [problem for part in problems.values() for problem in part]
    assert len({problem.id for problem in everything}) == sum(sizes)
    questions = [{problem.question for problem in part} for part in problems.values()]
    assert sum(map(len, questions)) == len(set().union(*questions)), "no question is in two splits"
    found = [problem.data["form"] for problem in everything]
    assert {each: found.count(each) for each in set(found)} == forms
    assert task.find(everything[-1].id) is everything[-1]
    prompt = task.template.render(everything[0])
    assert all(part in prompt for part in ("```python", "<think>", everything[0].question))
    if form != "evalplus":  # whose arguments are tuples and sets
        json.dumps([dict(problem.data) for problem in everything])
