"""The interpreter: what is a call, what it says, and that nothing a program does harms anybody but itself."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.errors import SandboxError
from groupwise.rollout.tools import Fault, put_in_spans
from groupwise.rollout.tools.base import without_answers, without_controls
from groupwise.rollout.tools.calculator import Calculator
from groupwise.rollout.tools.python import PythonTool, PythonToolConfig
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import CallOutcome
from groupwise.verifiers.extraction import extract

BLOCK = "So\n```python\nprint(6*7)\n```"


def test_a_call_ends_with_its_fence() -> None:
    tool = PythonTool()
    for text in ("", "```", "```python\n", "```python\nprint('```')", "``` python\n1\n```", "```js\n1\n```\n"):
        assert tool.look(text) is None, text
    call = tool.look(BLOCK)
    assert call is not None
    assert not isinstance(call, Fault)
    assert (call.content, call.begin, call.opening, call.closing) == ("print(6*7)", 3, "\n```output\n", "\n```\n")
    ended = tool.look(BLOCK + "\n")
    assert ended is not None
    assert not isinstance(ended, Fault)
    assert ended.opening == "```output\n"
    assert tool.look("```python\n```").content == ""  # type: ignore[union-attr]


def test_an_output_of_the_policys_own_is_a_fault() -> None:
    assert PythonTool().look("so ```output") is None  # within a line it is no fence
    assert PythonTool().look("so\n```output") == Fault("an output that the interpreter did not write")
    assert PythonTool().look(BLOCK + "```output\n42") == Fault("text behind a program that had not been run")


def test_outputs_in_a_written_text() -> None:
    text = f"{BLOCK}\n```output\n42\n```\nThen\n```python\nprint(1)\n```\n```output\n1\n```\nDone"
    found = [text[begin:end] for begin, end in put_in_spans(text, {"python": PythonTool()})]
    assert found == ["\n```output\n42\n```\n", "\n```output\n1\n```\n"]


class Sandboxed(Sandbox):
    """Says what it is told to."""

    def __init__(self, result: RunResult) -> None:
        self.result, self.sources = result, list[str]()

    def run_all(self, runs: Any) -> list[list[RunResult]]:
        self.sources += [program.source for (program,) in runs]
        return [[self.result] for _ in runs]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("result", "text", "outcome"),
    [
        (RunResult(Status.EXITED, 0, b"42\n\n", b"warned", 0.1), "42", CallOutcome.DONE),
        (RunResult(Status.EXITED, 0, b"\xff", b"", 0.1), "\ufffd", CallOutcome.DONE),
        (RunResult(Status.EXITED, 1, b"1", b"Trace\nValueError: no\n", 0.1), "ValueError: no", CallOutcome.ERROR),
        (RunResult(Status.EXITED, 3, b"", b"", 0.1), "SystemExit: 3", CallOutcome.ERROR),
        (RunResult(Status.TIMEOUT, None, b"", b"", 0.1), "TimeoutError", CallOutcome.TIMEOUT),
        (RunResult(Status.FLOODED, None, b"1", b"", 0.1), "OverflowError", CallOutcome.ERROR),
        (RunResult(Status.SIGNALLED, -9, b"", b"", 0.1), "Killed", CallOutcome.ERROR),
    ],
)  # fmt: skip
def test_what_it_says(result: RunResult, text: str, outcome: CallOutcome) -> None:
    found = PythonTool(None, Sandboxed(result)).run("x")
    assert found.outcome is outcome
    assert found.text == text if outcome is CallOutcome.DONE else found.text.startswith(text)


def test_a_sandbox_that_fails_is_a_failure_of_the_tool() -> None:
    failed = RunResult(Status.FAILED, None, b"", b"", 0.1, "it broke")
    assert PythonTool(None, Sandboxed(failed)).run("x").outcome is CallOutcome.FAILED


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = open_sandbox(SandboxConfig(tier="landlock", cpu_s=1))
    except SandboxError as error:
        pytest.skip(str(error))
    with opened as sandbox:
        yield sandbox


def test_programs_run_in_processes_of_their_own(sandbox: Sandbox) -> None:
    tool = PythonTool(None, sandbox)
    assert tool.run("x = 3\nprint(x)").text == "3"
    assert tool.run("print(x)").text == "NameError: name 'x' is not defined"
    assert tool.run("1/0").text == "ZeroDivisionError: division by zero"
    assert tool.run("x = ").text == "SyntaxError: invalid syntax"
    assert tool.run("print(1)\0").outcome is CallOutcome.ERROR
    assert tool.run("print(10**9999)").text.startswith("1000")


def test_persistent_ones_find_what_was_defined_before(sandbox: Sandbox) -> None:
    tool = PythonTool(PythonToolConfig(persistent=True), sandbox)
    earlier = ["x = 3\nprint('heard once')", "y = x + 1\nraise ValueError", "import sys\nz = 2\nsys.exit(1)"]
    assert tool.run("print(x, y, z, __name__)", earlier).text == "3 4 2 __main__"
    assert tool.run("print(w)", earlier).text == "NameError: name 'w' is not defined"
    assert PythonTool(PythonToolConfig(), sandbox).run("print(x)", earlier).outcome is CallOutcome.ERROR


KEPT = ["x = 3"]
BAD = {
    "os._exit": "import os\nos._exit(0)",
    "its descriptors": "import os\nos.write(1, b'heard')\nos.write(2, b'heard')",
    "its streams": "import sys\nsys.stdout.buffer.write(b'heard')\nsys.__stdout__.write('heard')\nsys.stdout = None",
    "its globals": "globals().clear()\nx = 3",
    "its builtins": "import builtins\ndel builtins.exec, builtins.compile",
    "its end": "import atexit\natexit.register(print, 'heard')",
    "its functions": "import os\nos.write = os.dup2 = None",
    "a flood": "print('heard' * 100_000)",
}


@pytest.mark.parametrize("bad", BAD)
def test_an_earlier_program_is_never_heard(sandbox: Sandbox, bad: str) -> None:
    tool = PythonTool(PythonToolConfig(persistent=True), sandbox)
    found = tool.run("print(x)", [*KEPT, BAD[bad]])
    assert (found.text, found.outcome) == ("3", CallOutcome.DONE)
    assert tool.run("raise SystemExit(5)", [*KEPT, BAD[bad]]).text == "SystemExit: 5"
    assert tool.run("1/0", [*KEPT, BAD[bad]]).text == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("bad", "outcome"),
    [
        ("import posix\nposix._exit(0)", CallOutcome.ERROR),
        ("import os\nos.kill(os.getpid(), 9)", CallOutcome.ERROR),
        ("import os\nos.closerange(0, 99)", CallOutcome.ERROR),
        ("while True: pass", CallOutcome.ERROR),
    ],
)
def test_what_cannot_be_run_again_is_said(sandbox: Sandbox, bad: str, outcome: CallOutcome) -> None:
    found = PythonTool(PythonToolConfig(persistent=True), sandbox).run("print(1)", [bad])
    assert (found.outcome, found.repeatable) == (outcome, False)
    assert found.text.startswith("RuntimeError: the earlier programs could not be run again, so this one was not run (")


def test_programs_that_were_killed_are_not_run_again(sandbox: Sandbox) -> None:
    """What the rollout leaves out (`repeatable`); one that raised or exited left what it had defined."""
    tool = PythonTool(PythonToolConfig(persistent=True), sandbox)
    ended = ["while True: pass", "import os\nos.kill(os.getpid(), 9)", "while True: print('x' * 1000)"]
    assert [tool.run(program).repeatable for program in ended] == [False] * 3
    assert [tool.run(program).repeatable for program in ("x = 1", "1/0", "import sys\nsys.exit(1)")] == [True] * 3


def test_a_program_ends_before_the_tool_gives_up() -> None:
    with pytest.raises(
        ValidationError, match=r"timeout_s = 6 ends the tool before sandbox.wall_s = 6 ends the program"
    ):
        PythonToolConfig(timeout_s=6, sandbox=SandboxConfig(wall_s=6))
    tool = PythonTool(PythonToolConfig(timeout_s=6, sandbox=SandboxConfig(wall_s=5, num_workers=3)))
    assert tool.parallel == 3  # those that wait for a worker have not begun


def test_spans_of_a_program_that_shifts() -> None:
    text = "```python\nx = 1 << 3\ny = x\nprint(y)\n```\n```output\n8\n```\n<<8+1=9>> \\boxed{9}"
    for tools in ({"c": Calculator(), "p": PythonTool()}, {"p": PythonTool(), "c": Calculator()}):
        found = [text[begin:end] for begin, end in put_in_spans(text, tools)]
        assert found == ["\n```output\n8\n```\n", "9>>"]
    with pytest.raises(ValueError, match="a call within a call"):
        put_in_spans("<<1<<2=", {"c": Calculator(), "p": PythonTool()})


def test_nothing_of_the_host_can_be_read(sandbox: Sandbox) -> None:
    """Neither a problem's answer nor anything else of this machine."""
    assert PythonTool(None, sandbox).run("print(open('/etc/passwd').read())").outcome is CallOutcome.ERROR
    assert isinstance(sandbox.run(Program(source="import os; os.fork()")), RunResult)


PIECES = st.lists(
    st.sampled_from(["\\boxed{5}", "\\", "\\fbox{5}", "<answer>", "</answer>", "</think>", "<think>", "<", "/", "`",
                     "```", "#", "####", "think>", "boxed{7}", "answer>", " ", "5"]),
    max_size=12,
).map("".join)  # fmt: skip


@given(PIECES)
def test_a_tool_cannot_answer(printed: str) -> None:
    text = without_answers(printed)
    assert extract("<think>1</think>" + text, "boxed").answer is None
    assert extract("<think>1</think>" + text, "tag").answer is None
    assert "</think>" not in text
    assert "```" not in text
    assert "####" not in text


@pytest.mark.parametrize("text", ["3465", "a < b", "3.5\n[1, 2]", "`x`", "# 1", "\\frac{1}{2}", "<b>"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_answers(text) == text


@given(st.lists(st.sampled_from(["<|end|>", "<|", "end|>", "|", "a"]), max_size=8).map("".join))
def test_no_control_token_is_spelt(text: str) -> None:
    found = without_controls(text, ["<|end|>", ""])
    assert "<|end|>" not in found
    assert len(found) == len(text)
