"""Functions of an untrusted program, called from outside: programs for the sandbox, and readers of their answers."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from groupwise.sandbox.base import Program, RunResult
from groupwise.sandbox.host import bundle
from groupwise.sandbox.plain import PlainError, decode, encode


class Answer(NamedTuple):
    """Value of a call, or the reason for having none."""

    value: Any
    fault: str = ""


def solver_program(source: str, calls: Sequence[tuple[str, Sequence[Any]]] = (), with_library: bool = False) -> Program:
    """Return a program that runs a source, then answers these calls (name, plain arguments) or those of a tester."""
    lines = [json.dumps({"name": name, "args": [encode(value) for value in args]}) + "\n" for name, args in calls]
    start = f"from groupwise.sandbox.solver import main; main({source!r}, {with_library})"
    return Program(bundle("plain", "solver") + start, stdin="".join(lines).encode("ascii"))


def tester_program(setup: str, names: Sequence[str], tests: Sequence[str]) -> Program:
    """Return a program that runs trusted tests; the names are functions of the solver, called over the pipe."""
    start = f"from groupwise.sandbox.tester import main; main({setup!r}, {list(names)!r}, {list(tests)!r})"
    return Program(bundle("plain", "tester") + start)


def read_answers(result: RunResult, num_calls: int) -> list[Answer]:
    """Return one answer per call, whatever the program wrote; output beyond the last answer spoils them all."""
    *lines, rest = result.stdout.split(b"\n")
    if len(lines) + bool(rest) > num_calls:
        return [Answer(None, "it wrote something other than its answers")] * num_calls
    missing = Answer(None, f"no answer: {result.ending}")
    return [_read_answer(line) for line in lines] + [missing] * (num_calls - len(lines))


def _read_answer(line: bytes) -> Answer:
    try:
        match json.loads(line):
            case {"value": content, **others} if not others:
                return Answer(decode(content))
            case {"raised": name, **others} if not others:
                return Answer(None, f"it raised {str(name)[:80]}")
            case {"missing": name, **others} if not others:
                return Answer(None, f"it does not define {str(name)[:80]}")
    except PlainError as error:
        return Answer(None, f"its answer is not plain data: {error}")
    except (ValueError, RecursionError):
        pass
    return Answer(None, "its answer is not plain data")


def read_findings(result: RunResult, num_tests: int) -> list[str]:
    """Return the fault of each test, as the tester said it; empty for one that passed (ValueError: they are broken)."""
    faults = [f"not reached: {result.ending}"] * num_tests
    for line in result.stderr.splitlines():
        try:
            finding = json.loads(line)
            faults[finding["test"]] = "" if finding["passed"] is True else str(finding["why"]) or "it failed"
        except (ValueError, KeyError, TypeError, IndexError):
            continue  # a warning of the interpreter; a test without a finding counts as failed
        if finding["broken"] is True:
            raise ValueError(f"its tests are broken: {finding['why']}")
    return faults
