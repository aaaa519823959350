"""The code verifier: three forms of tests, and every way to be paid without solving the task."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import SandboxError
from groupwise.sandbox.base import RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.bubblewrap import BubblewrapSandbox
from groupwise.sandbox.opening import open_sandbox
from groupwise.tasks.code import Code, CodeConfig
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.code import CodeVerifier, same_tokens, same_value

DATA = Path(__file__).parents[4] / "shared/data"
PROBES = DATA / "attack_probes/code.jsonl"
LIMITS = SandboxConfig(cpu_s=1)
ADD = {
    "form": "calls",
    "entry_point": "add",
    "calls": [{"args": "(2, 3)", "expected": "5"}, {"args": "([1], [2])", "expected": "[1, 2]"},
              {"args": "(0.5, 7918)", "expected": "7918.5"}],
}  # fmt: skip
SUM = {
    "form": "stdio",
    "tests": [{"input": "1 2 3\n", "output": "6"}, {"input": "7918 1", "output": "7919 \n"}],
    "tolerance": 0.0,
}
CHECK = {
    "form": "python",
    "setup": "import math\ndef root(x): pass\ndef square(x): return x * x",
    "names": ["root"],
    "tests": ["assert math.isclose(square(root(2.0)), 2.0)\nprint('noise')",
              "try:\n  root(-1.0)\n  raise AssertionError\nexcept ValueError: pass",
              "for n in range(1, 30): assert root(float(n * n)) == n"],
}  # fmt: skip
RIGHT = "def add(a, b): return a + b"
ROOT = "import math\ndef root(x): return math.sqrt(x)"
FORMS = {"calls": ADD, "stdio": SUM, "python": CHECK}


def fenced(source: str) -> str:
    return f"<think>hm</think>\n```python\n{source}\n```"


def judge(sandbox: Sandbox, data: dict[str, Any], source: str, **options: Any) -> Verdict:
    verifier = CodeVerifier(CodeVerifier.Config(kind="code", sandbox=LIMITS, **options), sandbox)
    return verifier.verify(Problem("p", "q", "", data=data), fenced(source))


@pytest.mark.parametrize(
    ("data", "source"),
    [(ADD, RIGHT), (ADD, "print('a')\ndef add(a, b):\n  print(a)\n  return a + b\nif __name__ == '__main__': 1 / 0"),
     (ADD, "add = lambda *a: sum(a[1:], a[0])"), (SUM, "print(sum(map(int, input().split())))"),
     (SUM, "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nquit()"), (CHECK, ROOT)],
)  # fmt: skip
def test_right_programs(sandbox: Sandbox, data: dict[str, Any], source: str) -> None:
    verdict = judge(sandbox, data, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.evidence
    assert verdict.reward == 1
    assert verdict.answer == source + "\n"


MANY = json.dumps([*range(90_000)])


@pytest.mark.parametrize(
    ("data", "source"),
    [({"form": "stdio", "tests": [{"input": "", "output": "7\n" * 200_000}]}, "print('7\\n' * 200_000)"),
     ({"form": "calls", "entry_point": "f", "values": "json", "calls": [{"args": f"[{MANY}]", "expected": MANY}] * 2},
      "def f(numbers): return sorted(numbers)")],
)  # fmt: skip
def test_room_for_large_answers_where_they_are_expected(sandbox: Sandbox, data: dict[str, Any], source: str) -> None:
    assert judge(sandbox, data, source).outcome is Outcome.CORRECT
    assert "KiB" in judge(sandbox, SUM, "print('7' * 500_000)").evidence


WRONG = {
    "calls": [
        ("def add(a, b): return a - b", "test 1 of 3: add(2, 3): it returned -1"),
        ("def add(a, b): return 5", "test 2 of 3: add([1], [2]): it returned 5"),
        ("def add(a, b): return {2: 5, 1: 0}[a]", "TypeError"),
        ("def add(a, b): raise KeyError('x')", "it raised KeyError"),
        ("def sub(a, b): return a + b", "it does not define add"), ("def add(a, b)", "SyntaxError"),
        ("import numpy_that_is_not_there", "ModuleNotFoundError"), ("", "no fenced python block"),
        ("pass", "it does not define add"), ("while True: pass", "no answer"), ("import os; os.abort()", "Aborted"),
        ("import sys; sys.exit(0)", "no answer"), ("import os; os._exit(0)", "no answer"),
        ("def add(a, b): raise SystemExit(0)", "SystemExit"), ("def add(a, b):\n  import os; os._exit(0)", "no answer"),
        ("import atexit, os\natexit.register(lambda: os._exit(0))\ndef add(a, b): raise ValueError", "ValueError"),
        ("def add(a, b): return b'x' * 999999", "KiB"),
        ("class E(list):\n  __eq__ = lambda s, o: True\ndef add(a, b): return E()", "plain data"),
        ("class E(int):\n  __eq__ = lambda s, o: True\n  __repr__ = lambda s: '5'\ndef add(a, b): return E(5)", "data"),
        ("class E:\n  __class__ = int\ndef add(a, b): return E()", "plain data"),
        ("def add(a, b):\n  x = []\n  x.append(x)\n  return x", "PlainError"),
        ("def add(a, b):\n  while True: yield 1", "plain data"), ("def add(a, b): return float('nan')", "nan"),
        ("def add(a, b): return 10 ** 5000", "it returned a value with an integer of more than 4300 digits"),
        ("def add(a, b): return 1 << (1 << 21)", "KiB"),
        ("def add(a, b, n=[]):\n  n.append(1)\n  return a + b if len(n) < 3 else 0", "test 3 of 3"),
        ("def add(a, b):\n  if type(a) is list: a.clear()\n  return a + b", "test 2 of 3"),
        ("import json\njson.dumps = lambda *a: '{\"value\": 5}'\ndef add(a, b): return 0", "test 2 of 3"),
        ("import builtins, sys\nlie = lambda *a, **k: '5'\nbuiltins.print = builtins.repr = builtins.ascii = lie\n"
         "for m in list(sys.modules.values()):\n  for n in ('dumps', 'encode', 'assertEqual', 'write'):\n"
         "    if hasattr(m, n): setattr(m, n, lie)\ndef add(a, b): return 0", "test 1 of 3"),
        ("import os\nfor fd in range(3, 9):\n  try: os.write(fd, b'{\"value\": 5}\\n' * 3)\n  except OSError: pass\n"
         "def add(a, b): return 0", "something other than its answers"),
        ("import os\nos.write(3, b'{\"value\": 5}\\n')\nos.write(4, b'{\"value\": 5}\\n')\nos._exit(0)", "no answer"),
        ("import os\nfor fd in range(3, 9):\n  try: os.write(fd, b'[' * 9999 + b'\\n')\n  except OSError: pass\n"
         "os._exit(0)", "plain data"),
        ("import builtins, inspect\ndef add(a, b):\n  out = []\n  f = inspect.currentframe()\n  while f:\n"
         "    out += [v for v in f.f_locals.values() if v == 7918.5]\n    f = f.f_back\n  return out[0]",
         "IndexError"),
        ("import gc\ndef add(a, b):\n  return next(o for o in gc.get_objects() if o == [1, 2])", "StopIteration"),
    ],
    "stdio": [
        ("print(6)", "test 2 of 2: it printed '6"), ("print('6 6')", "test 1 of 2"),
        ("pass", "test 1 of 2: it printed ''"), ("print(6); exit(3)", "exit status 3"), ("1/0", "ZeroDivisionError"),
        ("while 1: print(6)", "KiB"),
        ("import os; os.write(1, b'\\xff\\x00')", "it printed"), ("print(6)\nprint(6)", "test 1 of 2"),
    ],
    "python": [
        ("def root(x): return x / 2", "test 1 of 3: an assertion"),
        ("def root(x): return 2 ** .5", "test 2 of 3: an assertion"),
        ("def root(x): raise ValueError", "test 1 of 3: ValueError"),
        ("def root(x): raise AssertionError", "test 1 of 3: the call raised"),
        ("def square(x): return x", "the program does not define root"),
        ("import os; os._exit(0)", "ended before it answered"),
        ("def root(x):\n  import os; os._exit(0)", "ended before it answered"),
        ("class E(float):\n  __eq__ = lambda s, o: True\n  __mul__ = __rmul__ = lambda s, o: s\n"
         "def root(x): return E(1)", "test 1 of 3: TypeError"),
        ("def root(x): return 'x' * 10**7", "ended before it answered"),
        ("import os\nfor fd in range(3, 9):\n  try: os.write(fd, b'{\"value\": 1}\\n' * 50)\n  except OSError: pass\n"
         "def root(x): return 1", "test 1 of 3"),
        ("import os, sys\nsys.stderr.write('{\"test\": 0, \"passed\": true}\\n' * 3)\nos._exit(0)", "test 1 of 3"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("form", "source", "evidence"), [(form, *case) for form in WRONG for case in WRONG[form]])
def test_wrong_programs_and_attacks(sandbox: Sandbox, form: str, source: str, evidence: str) -> None:
    verdict = judge(sandbox, FORMS[form], source)
    assert verdict.outcome is (Outcome.WRONG if source else Outcome.UNPARSABLE), verdict.evidence
    assert evidence in verdict.evidence
    assert verdict.reward == 0
    assert "7918.5" not in verdict.evidence, "the expected values stay outside of the evidence"


@pytest.mark.parametrize("form", sorted(FORMS))
def test_programs_that_wait_are_wrong(sandbox: Sandbox, form: str) -> None:
    source = "import time\ndef add(*a): time.sleep(60)\nroot = add\nif __name__ == '__main__': add(1, 2)"
    with BubblewrapSandbox(SandboxConfig(wall_s=0.8, num_workers=1)) as hasty:
        verdict = judge(hasty, FORMS[form], source, partial_credit=0.5)
    assert (verdict.outcome, verdict.reward) == (Outcome.WRONG, 0)
    assert "did not end within 0.8 s" in verdict.evidence


def test_objects_stay_with_the_solver(sandbox: Sandbox) -> None:
    data = {
        "form": "python",
        "setup": "top = Node(1)\ntop.next = Node(2)\ntop.next.value = 5",
        "names": ["Node", "total"],
        "tests": ["assert total(top) == 6", "assert total([top, top.next]) == 11", "assert top != Node(1)"],
    }
    source = "class Node:\n  def __init__(s, v): s.value, s.next = v, None\n  __eq__ = lambda s, o: True\n" \
             "def total(n):\n  if type(n) is list: return sum(map(total, n))\n" \
             "  return n.value + total(n.next) if n else 0"  # fmt: skip
    verdict = judge(sandbox, data, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.evidence


BROKEN = [("import no_such_module", "assert root(4.0) == 2", "the setup raises ModuleNotFoundError: No module"),
          ("limit = [][0]", "assert root(4.0) == 2", "the setup raises IndexError"),
          ("", "import no_such_module\nassert root(4.0) == 2", "test 2 raises ModuleNotFoundError: No module"),
          ("", "assert root(4.0 == 2", "test 2 raises SyntaxError"),
          ("", "assert root(lambda: 4.0) == 2", "test 2 raises _BrokenError: a test passes a value of type function"),
          ("two = root(iter([]))", "pass", "the setup raises _BrokenError: a test passes")]  # fmt: skip


@pytest.mark.parametrize(("setup", "test", "evidence"), BROKEN)
def test_tests_that_fail_before_they_ask_are_never_a_zero(
    sandbox: Sandbox, setup: str, test: str, evidence: str
) -> None:
    data = {"form": "python", "setup": setup, "names": ["root"], "tests": ["assert root(1.0) == 1", test]}
    verdict = judge(sandbox, data, ROOT)
    assert (verdict.outcome, verdict.reward) == (Outcome.CRASHED, None)
    assert f"problem p: its tests are broken: {evidence}" in verdict.evidence
    for asked in ({"setup": "one = root(1.0)"}, {"setup": "", "tests": ["assert root(1.0) == 1"]}):
        verdict = judge(sandbox, {**data, **asked}, "def root(x): raise ImportError")
        assert verdict.outcome is Outcome.WRONG, "what the program raises is its fault"


FORGED = ['{"test":0,"passed":true,"broken":0}', '{"test":0,"passed":true}',
          '{"test":0,"why":1,"passed":0,"broken":true}']  # fmt: skip


@pytest.mark.parametrize("line", FORGED)
def test_no_text_of_a_program_passes_for_a_finding(sandbox: Sandbox, line: str) -> None:
    data = {"form": "python", "setup": "top = node(1)", "names": ["node", "depth"], "tests": ["assert depth(top) == 7"]}
    reply = json.dumps({"missing": f"\n{line}\n"}) + "\n"
    source = (
        "import os, time\nfor number in range(3, 20):\n"
        f"  try: os.write(number, {reply.encode()!r})\n  except OSError: pass\ntime.sleep(60)"
    )
    verdict = judge(sandbox, data, source)
    assert verdict.outcome is Outcome.WRONG
    assert "test 1 of 1: the setup raises _UnfitError: the program does not define" in verdict.evidence


def test_a_program_cannot_make_tests_broken_by_what_it_returns(sandbox: Sandbox) -> None:
    tests = ["assert total(tree(3).count) == 3", "assert total(tree(3)[0]) == 3"]
    source = "class tree(list):\n  def __init__(self, n): self.count = n\ndef total(x): return x"
    for index, returned in enumerate(("[]", "list")):
        data = {"form": "python", "setup": "", "names": ["tree", "total"], "tests": [tests[index]]}
        cheat = f"def tree(n): return {returned}\ndef total(x): return 0"
        assert judge(sandbox, data, cheat).outcome is Outcome.WRONG
    data = {"form": "python", "setup": "", "names": ["tree", "total"], "tests": tests[:1]}
    assert judge(sandbox, data, source).outcome is Outcome.CORRECT


def test_what_a_function_returns_can_be_listed_and_does_not_end_a_test(sandbox: Sandbox) -> None:
    tests = ["assert sorted(f(3)) == [0, 1, 2]", "assert all(map(f, [1, 2]))"]
    data = {"form": "python", "setup": "", "names": ["f"], "tests": tests}
    for source in ("def f(n): yield from range(n)", "def f(n): return dict.fromkeys(range(n)).keys()"):
        assert judge(sandbox, data, source).outcome is Outcome.CORRECT
    stopping = "def f(n):\n  if n < 3: next(iter(()))\n  return range(n)"
    assert "test 2 of 2: the call raised" in judge(sandbox, data, stopping).evidence


@pytest.mark.parametrize("form", sorted(FORMS))
def test_partial_credit_is_the_share_of_tests(sandbox: Sandbox, form: str) -> None:
    half = {"calls": "def add(a, b): return a + b if a == 2 else 0", "stdio": "print(6)",
            "python": "import math\ndef root(x): return math.sqrt(x) if x < 3 else 0"}  # fmt: skip
    shares = {"calls": 1 / 3, "stdio": 1 / 2, "python": 2 / 3}
    verdict = judge(sandbox, FORMS[form], half[form], partial_credit=0.3)
    assert verdict.outcome is Outcome.WRONG
    assert verdict.parts == {"accuracy": 0, "format": 0, "partial": pytest.approx(0.3 * shares[form])}
    assert verdict.measures == {"tests_passed": pytest.approx(shares[form])}
    assert "partial" not in judge(sandbox, FORMS[form], half[form]).parts


def test_all_parts_of_a_right_program(sandbox: Sandbox) -> None:
    verdict = judge(sandbox, ADD, RIGHT, partial_credit=0.3, format_reward=0.1, correct_reward=2.0)
    assert verdict.parts == {"accuracy": 2.0, "format": 0.1, "partial": 0.3}


def test_requests_are_answered_in_order_and_equal_ones_run_once(sandbox: Sandbox, monkeypatch: Any) -> None:
    runs = []
    run_all = type(sandbox).run_all

    def count(self: Sandbox, asked: Any) -> list[list[RunResult]]:
        runs.extend(asked)
        return run_all(self, asked)

    monkeypatch.setattr(type(sandbox), "run_all", count)
    problems = [Problem(f"p{n}", "q", "", data={**SUM, "tests": [{"input": "", "output": str(n)}]}) for n in range(3)]
    texts = [fenced(f"print({n})") for n in (0, 1, 9)] + ["none"]
    requests = [Request(problem, text) for problem in problems for text in texts] * 2
    verdicts = CodeVerifier(CodeVerifier.Config(kind="code"), sandbox).verify_many(requests)
    right, wrong, none = Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSABLE
    assert [verdict.outcome for verdict in verdicts] == [
        right, wrong, wrong, none, wrong, right, wrong, none, wrong, wrong, wrong, none
    ] * 2  # fmt: skip
    assert len(runs) == 9


@pytest.fixture
def broken(fake_sandbox: Any) -> Any:
    return fake_sandbox(lambda _: RunResult(Status.FAILED, None, b"", b"", 0.0, "gone"))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_no_expected_value_enters_the_sandbox_of_the_program(broken: Any, form: str) -> None:
    verdict = judge(broken, FORMS[form], RIGHT)
    # nothing is known about the program, which is never a zero
    assert (verdict.outcome, verdict.reward) == (Outcome.CRASHED, None)
    assert "gone" in verdict.evidence
    expected = {"calls": b"7918.5", "stdio": b"7919", "python": b"isclose"}[form]
    assert broken.programs
    assert all(expected not in program.stdin + program.source.encode() for program in broken.programs)


@pytest.mark.parametrize(
    "data",
    [{}, {"form": "x"}, {"form": "calls"}, {**ADD, "calls": []}, {**ADD, "calls": [{"args": "(", "expected": "1"}]},
     {**SUM, "tests": []}, {**SUM, "tests": [{"input": ["3"], "output": "6"}]},
     {**SUM, "tests": [{"input": "3", "output": 6}]}, {"form": "python", "setup": "", "names": [], "tests": []}],
)  # fmt: skip
def test_tests_that_cannot_be_read_are_never_a_zero(broken: Any, data: dict[str, Any]) -> None:
    verdict = judge(broken, data, RIGHT)
    assert (verdict.outcome, verdict.reward) == (Outcome.CRASHED, None)
    assert "problem p" in verdict.evidence


def test_without_a_sandbox_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with make_verifier("code") as verifier:
        assert verifier.verify(Problem("p", "q", "", data=ADD), "no program").outcome is Outcome.UNPARSABLE
        with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
            verifier.verify(Problem("p", "q", "", data=ADD), fenced(RIGHT))


def test_it_opens_and_closes_a_sandbox_of_its_own(sandbox: Sandbox) -> None:
    with make_verifier({"kind": "code", "sandbox": LIMITS}) as verifier:
        assert verifier.verify(Problem("p", "q", "", data=ADD), fenced(RIGHT)).outcome is Outcome.CORRECT
        verifier.close()
        assert verifier.verify(Problem("p", "q", "", data=ADD), fenced(RIGHT)).outcome is Outcome.CORRECT


@pytest.mark.skipif(not PROBES.exists(), reason="the attack probes are not here")
def test_collected_attacks_on_verdicts_fail(sandbox: Sandbox) -> None:
    rows = [row for row in map(json.loads, PROBES.read_text().splitlines()) if row["id"].startswith("af-")]
    assert len(rows) == 10
    calls = {"form": "calls", "entry_point": "F", "calls": [{"args": "([3, 1, 2],)", "expected": "[1, 2, 3]"}]}
    python = {"form": "python", "setup": "", "names": ["F"], "tests": ["assert F([3, 1, 2]) == [1, 2, 3]"]}
    for row in rows:
        for data in (calls, python):
            verdict = judge(sandbox, data, row["code"])
            assert verdict.outcome is Outcome.WRONG, (row["id"], data["form"], verdict.evidence)


def rejected_references(sandbox: Sandbox, file: str, form: str, every: int) -> list[str]:
    task = Code(CodeConfig(kind="code", path=str(DATA / file), format=form, only_test=True))  # type: ignore[arg-type]
    problems = task.problems("test")[::every]
    requests = [Request(problem, task.template.gold_answer(problem)) for problem in problems]
    verdicts = CodeVerifier(CodeVerifier.Config(kind="code"), sandbox).verify_many(requests)
    pairs = zip(problems, verdicts, strict=True)
    return [problem.id for problem, verdict in pairs if verdict.outcome is not Outcome.CORRECT]


COLLECTIONS = [("mbpp_plus/MbppPlus.jsonl", "evalplus", 57),
               ("humaneval/HumanEval.jsonl.gz", "humaneval", 5), ("mbpp/mbpp.jsonl", "mbpp", 33),
               ("code_contests_small/code_contests_test.json", "stdio", 10)]  # fmt: skip
collections = pytest.mark.skipif(not DATA.is_dir(), reason="benchmark files are not beside the repository")


@collections
@pytest.mark.parametrize(("file", "form", "every"), COLLECTIONS)
def test_some_reference_programs_pass(sandbox: Sandbox, file: str, form: str, every: int) -> None:
    with open_sandbox(SandboxConfig(cpu_s=10, wall_s=60)) as roomy:  # much for a slow machine
        assert rejected_references(roomy, file, form, every) == []


@collections
@pytest.mark.slow
@pytest.mark.parametrize(("file", "form", "every"), COLLECTIONS)
def test_all_reference_programs_pass(file: str, form: str, every: int) -> None:
    roomy_config = SandboxConfig(cpu_s=30, wall_s=90, memory_mb=4096)  # a hundred inputs in one program
    with open_sandbox(roomy_config if form == "evalplus" else SandboxConfig()) as roomy:
        assert set(rejected_references(roomy, file, form, 1)) <= {"mbpp/123"}, "one needs more processor time"


@pytest.mark.parametrize(
    ("output", "expected", "tolerance", "same"),
    [("1 2\n", " 1\n2", 0, True), ("1.0", "1", 0, False), ("1.0", "1", 1e-6, True), ("1.0000001", "1", 1e-6, True),
     ("1.001", "1", 1e-6, False), ("1000001", "1000000", 1e-5, False), ("nan", "1", 0.5, False), ("inf", "1", 1, False),
     ("1_0", "10", 0.5, False), ("Yes", "yes", 0.5, False), ("", "", 0, True), ("1", "", 0, False),
     ("1e999", "5", 0.5, False), ("-1", "1", 0.5, False), ("1e999", "2e999", 1e-6, False), ("+5", "05", 1e-6, True),
     ("1000001.0", "1000000", 1e-5, True), ("0.30000000000000004", "0.3", 0, False), ("-0.0", "0", 1e-9, True),
     ("0.30000000000000004", "0.3", 1e-9, True), ("NaN", "nan", 1e-6, True), ("NaN", "nan", 0, False),
     ("-Infinity", "-inf", 1e-6, True), ("inf", "-inf", 1e-6, False), ("nan", "inf", 0.5, False),
     ("Yes", "YES", 1e-6, False), ("1\r\n2\r\n", "1\n2", 0, True), ("9" * 5000, "9" * 5000, 0, True),
     ("9" * 5000, "9" * 4999 + "8", 1e-6, False), ("9" * 5000 + ".5", "9" * 5000 + ".6", 1e-6, True)],
)  # fmt: skip
def test_tokens(output: str, expected: str, tolerance: float, same: bool) -> None:
    assert same_tokens(output, expected, tolerance) is same


@given(st.text(max_size=50), st.text(max_size=50))
def test_without_tolerance_texts_are_the_same_when_their_words_are(output: str, expected: str) -> None:
    assert same_tokens(output, expected, 0.0) == (" ".join(output.split()) == " ".join(expected.split()))


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "same"),
    [(math.nan, math.nan, 0, True), ([1, {2: math.nan}], [1, {2: math.nan}], 0, True), (math.nan, 1.0, 0.5, False),
     (0.1 + 0.2, 0.3, 0, False), (0.1 + 0.2, 0.3, 1e-9, True), ([0.1 + 0.2, "x"], [0.3, "x"], 1e-9, True),
     (10**9, 10**9 + 1, 1e-6, False), (1e9, 10**9 + 1, 1e-6, True), ((1.0,), [1.0], 1e-6, False), (3, 3.0, 0, True),
     (True, 1.0000001, 1e-3, False), (math.inf, -math.inf, 0.5, False), (math.inf, 1e308, 0.5, False),
     (Fraction(1, 3), 0.333333, 1e-5, True), (Fraction(1, 3), 0.333333, 0, False), (Fraction(2), True, 0.9, False),
     ({1, 2}, {1, 3}, 0.9, False), ("1", 1, 0.9, False), ([1.0], [1.0, 2.0], 0.5, False)],
)  # fmt: skip
def test_values(value: Any, expected: Any, tolerance: float, same: bool) -> None:
    assert same_value(value, expected, tolerance) is same


def test_integers_of_any_length(sandbox: Sandbox) -> None:
    number = {"form": "stdio", "tests": [{"input": "1" * 5000, "output": "1" * 4999 + "2"}]}
    assert judge(sandbox, number, "print(int(input()) + 1)").outcome is Outcome.CORRECT
    power = {"form": "python", "setup": "", "names": ["f"], "tests": ["assert f(10**9000) == 10**9001"]}
    assert judge(sandbox, power, "def f(n): return int(str(n)) * 10").outcome is Outcome.CORRECT


def test_methods_of_a_class_solution(sandbox: Sandbox) -> None:
    source = "class Solution:\n  seen = 0\n  def add(self, a, b):\n    self.seen += 1\n    return (a + b) * self.seen"
    assert judge(sandbox, ADD, source).outcome is Outcome.CORRECT  # each call has its own object
    assert "does not define add" in judge(sandbox, ADD, source.replace("add", "sub")).evidence
    made_of = "class Solution:\n  def __init__(self, a, b): self.sum = a + b\n  def add(self): return self.sum\n"
    assert judge(sandbox, ADD, f"{made_of}def add(a, b): return Solution(a, b).add()").outcome is Outcome.CORRECT
    count = {**ADD, "entry_point": "count"}
    assert judge(sandbox, count, "Solution = [5]\ndef count(a, b): return a + b").outcome is Outcome.CORRECT
    assert judge(sandbox, ADD, f"from operator import *\ndef add(a, b): return 0\n{source}").outcome is Outcome.CORRECT


def test_each_call_has_the_time_of_a_run(sandbox: Sandbox) -> None:
    busy = "import time\ndef add(a, b):\n  end = time.process_time() + 0.6\n" \
           "  while time.process_time() < end or a == {}: pass\n  return a + b"  # fmt: skip
    assert judge(sandbox, ADD, busy.format(0)).outcome is Outcome.CORRECT
    verdict = judge(sandbox, ADD, busy.format([1]), partial_credit=0.3)
    assert verdict.measures == {"tests_passed": pytest.approx(2 / 3)}
    assert "test 2 of 3: add([1], [2]): no answer: signal 24: its processor time was used up" in verdict.evidence


def test_calls_after_a_wrong_answer_get_no_run_of_their_own(sandbox: Sandbox) -> None:
    source = "import time\ndef add(a, b):\n  end = time.process_time() + 0.6\n" \
             "  while time.process_time() < end: pass\n  return 0"  # fmt: skip
    runs = []

    class Counted(Sandbox):
        config = LIMITS

        def run_all(self, programs: Any) -> list[list[RunResult]]:
            runs.append(programs)
            return sandbox.run_all(programs)

    verdict = judge(Counted(), ADD, source)
    assert (verdict.outcome, verdict.measures, len(runs)) == (Outcome.WRONG, {}, 1)
    assert judge(Counted(), ADD, source, partial_credit=0.3).measures == {"tests_passed": 0}
    assert len(runs) == 4


def test_a_call_that_exhausts_the_stack_leaves_the_others_their_answers(sandbox: Sandbox) -> None:
    calls = [{"args": f"[{n}]", "expected": str(n)} for n in range(1, 4)]
    data = {"form": "calls", "values": "json", "entry_point": "f", "calls": calls}
    source = "class Solution:\n  @cache\n  def f(self, n):\n    return self.f(n + 3) + 0 if n % 3 == 1 else n"
    assert judge(sandbox, data, source, partial_credit=0.5).measures == {"tests_passed": pytest.approx(2 / 3)}


def test_methods_have_the_library_at_hand_and_recurse_deeply(sandbox: Sandbox) -> None:
    calls = [{"args": json.dumps([[1] * 3000]), "expected": "3002"}]
    data = {"form": "calls", "entry_point": "gcd", "values": "json", "calls": calls}
    source = "class Solution:\n  def gcd(self, x: List[int]) -> Optional[int]:\n" \
             "    return 1 + self.gcd(x[1:]) if x else len(Counter(x)) + math.gcd(pow(3, 2, 7), 4)"  # fmt: skip
    assert judge(sandbox, data, source).outcome is Outcome.CORRECT
    assert "does not define gcd" in judge(sandbox, data, "class Solution: pass").evidence
    assert judge(sandbox, {**ADD, "entry_point": "gcd"}, source).outcome is Outcome.WRONG


def test_values_that_equal_plain_ones(sandbox: Sandbox) -> None:
    source = "from collections import namedtuple\nfrom decimal import Decimal\nfrom fractions import Fraction\n" \
             "P = namedtuple('P', 'x')\ndef add(a, b):\n" \
             "  return Fraction(5) if a == 2 else [Decimal(1), 2] if a == [1] else Decimal('7918.5')"  # fmt: skip
    assert judge(sandbox, ADD, source).outcome is Outcome.CORRECT
    pair = {**ADD, "calls": [{"args": "(1, 2)", "expected": "[(1,), 2]"}]}
    assert judge(sandbox, pair, source + "\ndef add(a, b): return [P(1), Decimal(2)]").outcome is Outcome.CORRECT
    assert judge(sandbox, pair, source + "\ndef add(a, b): return [P(2), Decimal(2)]").outcome is Outcome.WRONG


def test_calls_with_json_values(sandbox: Sandbox) -> None:
    calls = [{"args": "[[1, 2]]", "expected": "[[1, 2], null]"}, {"args": "[NaN]", "expected": '{"1": true}'},
             {"args": '["x"]', "expected": "[5]", "or": "5"}]  # fmt: skip
    data = {"form": "calls", "entry_point": "f", "values": "json", "calls": calls}
    source = "def f(x):\n  if x == 'x': return {}\n  return {{1: True}} if x != x else ((1, 2), None)"
    assert judge(sandbox, data, source.format(5)).outcome is Outcome.CORRECT
    assert judge(sandbox, data, source.format([5])).outcome is Outcome.CORRECT
    assert "test 3 of 3: f('x'): it returned (5, 5)" in judge(sandbox, data, source.format("5, 5")).evidence
    for key in ("b'1'", "10**5000", "(1, 2)"):
        assert judge(sandbox, data, f"def f(x): return {{{key}: 1}}").outcome is Outcome.WRONG
