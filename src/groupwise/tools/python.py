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
import threading
from collections.abc import Sequence

from pydantic import Field

from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.tools.base import Call, Fault, Tool, ToolConfig, ToolResult
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
    """Whether a program finds what the completion's earlier ones defined: they are run again before it, unheard."""
    sandbox: SandboxConfig = Field(default=SandboxConfig(), validate_default=False)
    """Where programs run, and what they may use."""


class PythonTool(Tool):
    """Programs in the sandbox, which opens when first needed."""

    Config = PythonToolConfig
    opens = "`"
    closes = "`\n"
    parallel = 16  # the sandbox has its own number of workers
    config: PythonToolConfig

    def __init__(self, config: PythonToolConfig | None = None, sandbox: Sandbox | None = None) -> None:
        super().__init__(config or PythonToolConfig())
        self._sandbox, self._opening = sandbox, threading.Lock()

    def look(self, text: str) -> Call | Fault | None:
        """A call ends with the fence that closes its block; only white space may follow in the same token."""
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

    def stops(self, text: str) -> tuple[str, ...]:
        """A fence, whichever it is."""
        return ("```",)

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        """What the program prints; the last line of the traceback where it raises."""
        with self._opening:
            sandbox = self._sandbox = self._sandbox or open_sandbox(self.config.sandbox)
        source = _after(earlier, call) if self.config.persistent and earlier else call
        if "\0" in source:
            return ToolResult("ValueError: a program cannot hold null bytes", CallOutcome.ERROR)
        result = sandbox.run(Program(source=source))
        outcome = CallOutcome.DONE if result.exit_code == 0 else _OUTCOMES.get(result.status, CallOutcome.ERROR)
        return ToolResult(_said(result, self.config), outcome, result.seconds, result.evidence)

    def close(self) -> None:
        """End the sandbox; it is opened again when needed."""
        with self._opening:
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None


def _said(result: RunResult, config: PythonToolConfig) -> str:
    """What the policy reads."""
    printed = result.stdout.decode("utf-8", "replace").strip("\n")
    if result.status is Status.EXITED and result.exit_code == 0:
        return printed
    if result.status is Status.EXITED:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"SystemExit: {result.exit_code}"
    if result.status is Status.TIMEOUT:
        return f"TimeoutError: the program took more than {config.sandbox.wall_s:g} s"
    if result.status is Status.FLOODED:
        return f"OverflowError: the program printed more than {config.sandbox.output_kb} KiB"
    return "Killed: the program used more than it may"


_UNHEARD = """\
def _run_again(programs):
    import contextlib, io
    for program in programs:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with contextlib.suppress(BaseException):
                exec(compile(program, "program.py", "exec"), globals())
_run_again({programs!r})
del _run_again
exec(compile({program!r}, "program.py", "exec"), globals())
"""


def _after(earlier: Sequence[str], program: str) -> str:
    """A program behind those before it; one that raised or ended early left what it had defined by then."""
    return _UNHEARD.format(programs=list(earlier), program=program)
