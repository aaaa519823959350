"""The solver's side of function calls: it runs a program's source, then answers calls as plain data, one JSON a line.

A name is that of a method of a class `Solution`, which is made for each call, or else of a function.
A call is {"name": str, "args": [...]}, of a tester with "kwargs"; the reply is {"value": ...}, or {"raised": type}, or
{"missing": name}. All of this shares a process with the program, so nothing here is trusted: whatever comes out is
what the program claims, and only that. Standard library only: the text of this file runs in sandboxes.
"""

import builtins
import importlib
import json
import os
import sys
import types
from typing import Any

from groupwise.sandbox.plain import PlainError, decode, encode

MODULE = "solution"
LIBRARY = ("collections", "functools", "heapq", "bisect", "itertools", "math", "typing")
"""Modules whose names judges of methods import for every program, as LeetCode and LiveCodeBench do."""
_MODULES = (*LIBRARY, "copy", "datetime", "operator", "random", "re", "string", "sys")
_MAX_DEPTH = 50_000  # calls within one another that LiveCodeBench allows
_ATTRIBUTES: dict[str, Any] = {"getattr": getattr, "setattr": setattr, "iter": list}
"""Operations of tests on objects that stay here."""


def main(source: str, with_library: bool = False) -> None:
    """Serve calls to the functions of a source until there are no more. What it prints is thrown away.

    `with_library`: as judges of methods run them, with names of the library that nothing imports, and deep recursion.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    sys.modules[MODULE] = module = types.ModuleType(MODULE)
    if with_library:
        sys.setrecursionlimit(_MAX_DEPTH)
        homes = {name: importlib.import_module(name) for name in _MODULES}
        parts = [homes[name] for name in reversed(LIBRARY)]  # of two Counters that of collections
        names = {name: getattr(part, name) for part in parts for name in getattr(part, "__all__", dir(part))}
        # behind the program's own and the built-in names: none of them answers a call, and `pow` is not that of math
        vars(module)["__builtins__"] = names | homes | vars(builtins)
    exec(compile(source, "solution.py", "exec"), module.__dict__)
    objects: list[Any] = []
    for line in requests:
        reply = json.dumps(_answer(module.__dict__, json.loads(line), objects)).encode("ascii") + b"\n"
        while reply:
            reply = reply[os.write(replies, reply) :]


def _answer(names: dict[str, Any], call: dict[str, Any], objects: list[Any]) -> dict[str, Any]:
    def keep(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    solution: Any = names.get("Solution")
    is_method = isinstance(solution, type) and hasattr(solution, call["name"])
    function: Any = names.get(call["name"], _ATTRIBUTES.get(call["name"]))
    if function is None and not is_method:
        return {"missing": call["name"]}
    try:
        if is_method:
            function = _method(solution, call["name"], function)
        args = [decode(value, objects.__getitem__) for value in call["args"]]
        kwargs = {name: decode(value, objects.__getitem__) for name, value in call.get("kwargs", {}).items()}
        is_of_tester = "kwargs" in call  # which holds objects that stay here
        return {"value": encode(function(*args, **kwargs), keep if is_of_tester else None)}
    except PlainError as error:
        return {"raised": f"PlainError: {error}"}
    except BaseException as error:
        return {"raised": type(error).__name__}


def _method(solution: Any, name: str, function: Any) -> Any:
    try:
        return getattr(solution(), name)
    except TypeError:
        if function is None:
            raise
        return function  # which makes an object of its arguments
