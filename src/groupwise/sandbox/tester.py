"""The tester's side: it runs tests that need Python against functions that are only reachable by messages.

It holds the expected values and never runs a line of the solver's: a name of the solver's program is a proxy here that
writes a call to standard output and reads the reply from standard input, bounded plain data. What the tests found goes
to standard error, one JSON a line: {"test": index, "passed": bool, "why": str, "broken": bool}; nothing else does, so
that no text of the solver's passes for a finding. Broken is what fails before anything was asked, or asks what cannot
be sent, hence fails whatever the program is. Standard library only.
"""

import builtins
import json
import os
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

from groupwise.sandbox.plain import PlainError, decode, encode

MAX_REPLY = 1 << 20
_INPUT, _OUTPUT, _FINDINGS = 3, 4, 5  # descriptors of the pipes, out of the way of tests that print or read
_OF_TESTS = (types.FunctionType, types.GeneratorType, range)  # what tests alone make, not from what a program returned
_asked = list[str]()  # names of all calls


class _Handle:
    """An object that stays with the solver: it can be handed back and listed, has attributes, equals only itself."""

    def __init__(self, number: Any) -> None:
        if type(number) is not int:
            raise PlainError("an object without a number")
        self.__dict__["number"] = number

    def __getattr__(self, name: str) -> Any:
        return _ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask("setattr", self, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(_ask("iter", self))


class _UnfitError(Exception):
    """The solver's program is gone, lacks a name, or broke the protocol."""


class _BrokenError(Exception):
    """The test cannot be run against any program."""


def main(setup: str, names: list[str], tests: list[str]) -> None:
    """Run the tests in order, in one namespace, each to its end or first failure."""
    null = os.open(os.devnull, os.O_RDWR)
    for pipe, copy in ((0, _INPUT), (1, _OUTPUT), (2, _FINDINGS)):
        os.dup2(pipe, copy)
        os.dup2(null, pipe)
    proxies = {name: partial(_ask, name) for name in names}
    namespace: dict[str, Any] = {"__name__": "tests", **proxies}
    try:
        exec(compile(setup, "setup.py", "exec"), namespace)
    except Exception as error:
        for index in range(len(tests)):
            why = f"the setup raises {type(error).__name__}: {error}"
            _report(index, why, is_broken=not _asked or isinstance(error, _BrokenError))
        return
    namespace |= proxies  # the setup may define stubs of the same names
    for index, test in enumerate(tests):
        why, is_broken, num_before = "", False, len(_asked)
        try:
            code = compile(test, "test.py", "exec")
        except (SyntaxError, ValueError) as error:
            _report(index, f"test {index + 1} raises {type(error).__name__}: {error}", is_broken=True)
            continue
        try:
            exec(code, namespace)
        except AssertionError:
            why = "an assertion does not hold"
        except _UnfitError as error:
            why = str(error)
        except Exception as error:  # of the solver's function, or of a test that could not use what it returned
            why = type(error).__name__
            is_broken = isinstance(error, _BrokenError) or (
                isinstance(error, ImportError) and len(_asked) == num_before
            )
            why = f"test {index + 1} raises {why}: {error}" if is_broken else why
        _report(index, why, is_broken)


def _report(index: int, why: str, is_broken: bool) -> None:
    finding = {"test": index, "passed": not why, "why": why, "broken": is_broken}
    os.write(_FINDINGS, json.dumps(finding).encode("ascii") + b"\n")


def _number(value: Any) -> int:
    if isinstance(value, _Handle):
        return int(value.__dict__["number"])
    # `f(g(x).count)` may be a method of a list because the program returned a list: that is no fault of the test
    kind = _BrokenError if isinstance(value, _OF_TESTS) or len(_asked) == 1 else _UnfitError
    raise kind(f"a test passes a value of type {type(value).__name__}, which is not plain data")


def _ask(name: str, /, *args: Any, **kwargs: Any) -> Any:
    _asked.append(name)
    packed_kwargs = {key: encode(value, _number) for key, value in kwargs.items()}
    call = {"name": name, "args": [encode(value, _number) for value in args], "kwargs": packed_kwargs}
    line = b""
    try:
        os.write(_OUTPUT, json.dumps(call).encode("ascii") + b"\n")
        while not line.endswith(b"\n"):
            chunk = os.read(_INPUT, 1 << 16)
            line += chunk
            if not chunk or len(line) > MAX_REPLY:
                raise ValueError("no whole answer")
        reply = json.loads(line)
    except (OSError, ValueError, RecursionError):
        raise _UnfitError("the program ended before it answered, or its answer is not plain data") from None
    if type(reply) is dict and "value" in reply:
        try:
            return decode(reply["value"], _Handle)
        except PlainError as error:
            raise _UnfitError(f"the answer is not plain data: {error}") from None
    if type(reply) is dict and type(reply.get("missing")) is str:
        raise _UnfitError(f"the program does not define {reply['missing'][:80]}")
    raised = reply.get("raised") if type(reply) is dict else None
    kind = getattr(builtins, raised, None) if type(raised) is str else None
    # a built-in exception, which tests may expect; one that stops an iteration would end `all(map(f, ...))` as held
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, AssertionError | StopIteration):
        raise kind()
    raise _UnfitError("the call raised an exception" if raised else "the answer is none")
