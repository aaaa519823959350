"""The three forms of tests, and running them. What is expected never enters the sandbox that holds the program.

`problem.data["form"]` says which:

- `calls`: `entry_point`, and `calls`, each with `args` (a tuple) and `expected` as Python literals. Only arguments
  enter the sandbox; answers leave it as plain data and are compared here, with ==.
- `stdio`: `tests`, each with `input` and `output`, and `tolerance` of numbers (0: tokens must be equal). Only the input
  enters; output is compared here, token by token.
- `python`: `setup`, `names` and `tests` (sources). They run in a second sandbox, the tester's, which asks the first.
"""

import ast
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.sandbox.base import Pair, Program, RunResult, Sandbox, Status
from groupwise.sandbox.functions import (
    Answer,
    describe_end,
    read_answers,
    read_findings,
    solver_program,
    tester_program,
)

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_MAX_SHOWN = 200


class SandboxFailedError(Exception):
    """The sandbox failed, so nothing is known about the program."""


class Tests(ABC):
    """The tests of one problem."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def faults(self, source: str, sandbox: Sandbox, *, stop_early: bool) -> list[str]:
        """Why each test failed, empty for one that passed; fewer than there are tests after an early stop.

        Raises:
            SandboxFailedError: the sandbox failed.
        """


@dataclass(frozen=True, slots=True)
class CallTests(Tests):
    """Calls of one function, with the values they must return."""

    entry_point: str
    calls: tuple[tuple[tuple[Any, ...], Any], ...]

    def __len__(self) -> int:
        return len(self.calls)

    def faults(self, source: str, sandbox: Sandbox, *, stop_early: bool) -> list[str]:
        """One run answers all calls."""
        program = solver_program(source, [(self.entry_point, args) for args, _ in self.calls])
        answers = read_answers(_require_run(sandbox.run(program)), len(self.calls))
        return [
            "" if not answer.fault and answer.value == expected else self._describe(args, answer)
            for (args, expected), answer in zip(self.calls, answers, strict=True)
        ]

    def _describe(self, args: tuple[Any, ...], answer: Answer) -> str:
        call = f"{self.entry_point}({', '.join(map(repr, args))})"[:_MAX_SHOWN]
        return f"{call}: {answer.fault or f'it returned {answer.value!r}'[:_MAX_SHOWN]}"


@dataclass(frozen=True, slots=True)
class StdioTests(Tests):
    """Inputs, with the outputs they must give."""

    tests: tuple[tuple[str, str], ...]
    tolerance: float

    def __len__(self) -> int:
        return len(self.tests)

    def faults(self, source: str, sandbox: Sandbox, *, stop_early: bool) -> list[str]:
        """One run per test."""
        faults = []
        for stdin, expected in self.tests:
            result = _require_run(sandbox.run(Program(source, stdin=stdin.encode())))
            faults.append(self._fault(result, expected))
            if stop_early and faults[-1]:
                break
        return faults

    def _fault(self, result: RunResult, expected: str) -> str:
        if result.status is not Status.EXITED or result.exit_code != 0:
            return describe_end(result)
        output = result.stdout.decode("utf-8", errors="replace")
        return "" if same_tokens(output, expected, self.tolerance) else f"it printed {output[:_MAX_SHOWN]!r}"


@dataclass(frozen=True, slots=True)
class PythonTests(Tests):
    """Tests that are Python themselves."""

    setup: str
    names: tuple[str, ...]
    tests: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tests)

    def faults(self, source: str, sandbox: Sandbox, *, stop_early: bool) -> list[str]:
        """Tester and solver, connected. A tester that does not end was kept busy by an answer."""
        tester, solver = sandbox.run_pairs(
            [Pair(tester_program(self.setup, self.names, self.tests), solver_program(source))]
        )[0]
        faults = read_findings(_require_run(tester), len(self.tests))
        return [fault and f"{fault}; {describe_end(_require_run(solver))}" for fault in faults]


def _require_run(result: RunResult) -> RunResult:
    if result.status is Status.FAILED:
        raise SandboxFailedError(result.evidence)
    return result


def read_tests(data: Mapping[str, Any]) -> Tests:
    """The tests of a problem.

    Raises:
        ValueError: there are none, or they cannot be read.
    """
    try:
        tests = _FORMS[data["form"]](data)
    except (KeyError, TypeError, SyntaxError, ValueError) as error:
        raise ValueError(f"its tests cannot be read: {error!r}") from None
    if len(tests) == 0:
        raise ValueError("it has no tests")
    return tests


def _calls(data: Mapping[str, Any]) -> Tests:
    pairs: Iterable[tuple[Any, Any]] = (
        (ast.literal_eval(call["args"]), ast.literal_eval(call["expected"])) for call in data["calls"]
    )
    return CallTests(data["entry_point"], tuple((tuple(args), expected) for args, expected in pairs))


def _stdio(data: Mapping[str, Any]) -> Tests:
    return StdioTests(tuple((test["input"], test["output"]) for test in data["tests"]), float(data["tolerance"]))


def _python(data: Mapping[str, Any]) -> Tests:
    return PythonTests(data["setup"], tuple(data["names"]), tuple(data["tests"]))


_FORMS = {"calls": _calls, "stdio": _stdio, "python": _python}


def same_tokens(output: str, expected: str, tolerance: float) -> bool:
    """Whether two texts have the same tokens; numbers may differ by the tolerance, relative above 1."""
    tokens, targets = output.split(), expected.split()
    return len(tokens) == len(targets) and all(map(lambda a, b: _same(a, b, tolerance), tokens, targets))


def _same(token: str, expected: str, tolerance: float) -> bool:
    if token == expected or not tolerance:
        return token == expected
    if not (_NUMBER.fullmatch(token) and _NUMBER.fullmatch(expected)):
        return False
    return math.isclose(float(token), float(expected), rel_tol=tolerance, abs_tol=tolerance)
