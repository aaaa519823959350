"""Tool `python`: a fenced program is a call, and a fenced block of its output is put in after it (as in ToRA).

    ```python
    print(45 * 77)
    ```
    ```output
    3465
    ```

Every program runs in the sandbox, in a process of its own.
"""

import re
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Self

from pydantic import Field, model_validator

from groupwise.errors import SandboxError
from groupwise.rollout.tools.base import Call, Fault, Tool, ToolConfig, ToolResult
from groupwise.sandbox.base import OUTPUT_KB, Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import CallOutcome

BEGIN = re.compile(r"(?:^|(?<=\n))```python[ \t]*\n")
END = re.compile(r"(?:^|(?<=\n))```")
OUTPUT = re.compile(r"(?:^|(?<=\n))```output")
_OUTCOMES = {Status.TIMEOUT: CallOutcome.TIMEOUT, Status.FAILED: CallOutcome.FAILED}


class PythonToolConfig(ToolConfig):
    """Settings of the interpreter."""

    kind: str = "python"
    """`python`"""
    max_calls: int = 4
    """Most calls in one completion (ToRA: 4). One more ends it (`tool_limit`)."""
    max_result_tokens: int = 200
    """Most tokens of one result, its fences included; of a longer output, head and tail are kept."""
    persistent: bool = False
    """Let a program find what the completion's earlier ones defined: they are run again before it, unheard. Those
    that were killed are left out."""
    sandbox: SandboxConfig = Field(default=SandboxConfig(), validate_default=False)
    """The sandbox of programs, and its limits."""

    @model_validator(mode="after")
    def _ends_before(self) -> Self:
        if self.timeout_s <= self.sandbox.wall_s:
            raise ValueError(
                f"timeout_s = {self.timeout_s:g} ends the tool before sandbox.wall_s = {self.sandbox.wall_s:g} ends "
                "the program, so that a program that waits is a failure of the tool; allowed is a timeout_s above "
                "sandbox.wall_s"
            )
        return self


class PythonTool(Tool):
    """Programs in the sandbox, which opens when first needed."""

    Config = PythonToolConfig
    opens = "`"
    closes = "`\n"
    config: PythonToolConfig

    def __init__(self, config: PythonToolConfig | None = None, sandbox: Sandbox | None = None) -> None:
        super().__init__(config or PythonToolConfig())
        self._sandbox, self._opening = sandbox, threading.Lock()
        self.parallel = self.config.sandbox.num_workers  # what waits for a worker has not begun

    def look(self, text: str) -> Call | Fault | None:
        if OUTPUT.search(text):
            return Fault("an output that the interpreter did not write")
        begin = BEGIN.search(text)
        if begin is None:
            return None
        program = text[begin.end() :]
        end = END.search(program)
        if end is None:
            return None
        rest = program[end.end() :]
        if rest.strip():
            return Fault("text behind a program that had not been run")
        return Call(
            program[: end.start()].removesuffix("\n"),
            begin.start(),
            opening=("" if rest.endswith("\n") else "\n") + "```output\n",
            closing="\n```\n",
        )

    def begins(self, text: str) -> int | None:
        return min((found.start() for fence in (BEGIN, OUTPUT) if (found := fence.search(text))), default=None)

    def start(self) -> None:
        self._opened()

    def stops(self, text: str) -> tuple[str, ...]:
        return ("```",)

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        if "\0" in call:
            return ToolResult("ValueError: a program cannot hold null bytes", CallOutcome.ERROR, repeatable=False)
        again = earlier if self.config.persistent else ()
        mark = f"{secrets.token_hex(16)}\n" if again else ""
        source = _UNHEARD.format(programs=list(again), program=call, mark=mark.encode()) if again else call
        result = self._opened().run(Program(source=source))
        outcome = CallOutcome.DONE if result.exit_code == 0 else _OUTCOMES.get(result.status, CallOutcome.ERROR)
        was_run, ended_itself = mark.encode() in result.stdout, result.status is Status.EXITED
        if again:  # the output of the earlier programs stands before the mark
            _, _, stdout = result.stdout.partition(mark.encode())
            result = replace(result, stdout=stdout, stderr=result.stderr.rpartition(mark.encode())[2])
        text = _said(result, self.config)
        if was_run or outcome is CallOutcome.FAILED:
            return ToolResult(text, outcome, result.seconds, result.evidence, ended_itself)
        # an earlier program ended the process, or took all the time, when it ran again
        outcome = CallOutcome.TIMEOUT if outcome is CallOutcome.TIMEOUT else CallOutcome.ERROR
        why = text or "the process ended"
        text = f"RuntimeError: the earlier programs could not be run again, so this one was not run ({why})"
        return ToolResult(text, outcome, result.seconds, result.evidence, repeatable=False)

    def _opened(self) -> Sandbox:
        with self._opening:
            self._sandbox = self._sandbox or open_sandbox(self.config.sandbox)
            return self._sandbox

    def close(self) -> None:
        with self._opening:
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None


def _said(result: RunResult, config: PythonToolConfig) -> str:
    printed = result.stdout.decode("utf-8", "replace").strip("\n")
    if result.status is Status.EXITED and result.exit_code == 0:
        return printed
    if result.status is Status.EXITED:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"SystemExit: {result.exit_code}"
    if result.status is Status.TIMEOUT:
        return f"TimeoutError: the program took more than {config.sandbox.wall_s:g} s"
    if result.status is Status.FLOODED:
        return f"OverflowError: the program printed more than {OUTPUT_KB} KiB"
    return "Killed: the program used more than it may"


_INTERPRETER = cache(PythonTool)


def python(code: str) -> str:
    """Run a Python program on its own and return what it prints.

    Args:
        code: the program; it prints its results
    """
    result = _INTERPRETER().run(code)
    if result.outcome is CallOutcome.FAILED:
        raise SandboxError(f"the interpreter failed: {result.evidence}")
    return result.text


_UNHEARD = """\
def _begin(programs, program, mark):
    import atexit, builtins, os, sys, types
    run, build, write, copy = builtins.exec, builtins.compile, os.write, os.dup2
    leave, end, at_exit = os._exit, SystemExit, atexit._run_exitfuncs
    out, err, heard, whole = sys.stdout, sys.stderr, (os.dup(1), os.dup(2)), BaseException
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    space = module.__dict__

    def ended(status):
        raise end

    def flushed():
        for stream in (out, err):
            try:
                stream.flush()
            except whole:
                pass

    os._exit = ended
    copy(nowhere, 1), copy(nowhere, 2)
    for one in programs:
        try:
            run(build(one, "program.py", "exec"), space)
        except whole:
            pass
        try:
            at_exit()
        except whole:
            pass
        flushed()
        sys.stdout, sys.stderr = out, err
    os._exit = leave
    copy(heard[0], 1), copy(heard[1], 2)
    write(1, mark), write(2, mark)
    return run, build(program, "program.py", "exec"), space
_run, _program, _space = _begin({programs!r}, {program!r}, {mark!r})
_run(_program, _space)
"""
"""Programs that nobody hears, then one that is heard behind the mark, each run as a module."""
