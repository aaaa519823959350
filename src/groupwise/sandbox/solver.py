"""The solver's side of function calls: it runs a program's source, then answers calls as plain data, one JSON a line.

A name is that of a function, or of a method of a class `Solution`, which is made for each call.
A call is {"name": str, "args": [...]} with optional "kwargs"; the reply is {"value": ...}, or {"raised": type}, or
{"missing": name}. All of this shares a process with the program, so nothing here is trusted: whatever comes out is
what the program claims, and only that. Standard library only: the text of this file runs in sandboxes.
"""

import json
import os
import sys
import types
from typing import Any

from groupwise.sandbox.plain import PlainError, decode, encode

MODULE = "solution"
_ATTRIBUTES = {"getattr": getattr, "setattr": setattr}  # operations of tests on objects that stay here


def main(source: str) -> None:
    """Serve calls to the functions of a source until there are no more. What it prints is thrown away."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    sys.modules[MODULE] = module = types.ModuleType(MODULE)
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

    function = names.get(call["name"], _ATTRIBUTES.get(call["name"]))
    solution: Any = names.get("Solution")
    if function is None and not hasattr(solution, call["name"]):
        return {"missing": call["name"]}
    try:
        if function is None:
            function = getattr(solution(), call["name"])
        args = [decode(value, objects.__getitem__) for value in call["args"]]
        kwargs = {name: decode(value, objects.__getitem__) for name, value in call.get("kwargs", {}).items()}
        return {"value": encode(function(*args, **kwargs), keep)}
    except PlainError:
        return {"raised": "PlainError"}
    except BaseException as error:
        return {"raised": type(error).__name__}
