"""Runs in the worker process: the user's own function, on one completion or on a list of them.

A request names the `place`; without `arguments` the function is only loaded, and the answer is its signature. Otherwise
the answer holds `found`, one entry per completion, or `fault` and `allowed`: what the function did, and what it may do.
"""

import contextlib
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.config.places import Place
from groupwise.errors import ConfigError
from groupwise.types import Outcome, StepReward, Verdict

MAX_PARTS = 32
ALLOWED = "; a finite number, a dict of them by name, a Verdict, or None for no verdict is allowed"
ADDED_LATER = ("cap", "kl")  # names of parts that training adds itself


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """Load the function, or call it (ConfigError: there is none, or it needs an argument by position)."""
    file, name, module = request["place"]
    function = _function(Place(Path(file), name, module))
    if "arguments" not in request:
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
                raise ConfigError(
                    f"its argument {parameter.name!r} can only be given by position; arguments are given by name"
                )
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {
            "needs": {each.name: each.default is each.empty for each in parameters if each.kind in by_name},
            "takes_any": any(each.kind is each.VAR_KEYWORD for each in parameters),
        }
    worker = os.getpid()
    try:
        return _call(function, request["arguments"], request["count"], Path(file))
    finally:
        if os.getpid() != worker:  # the function forked, and this is the child: its answer is not wanted
            os._exit(0)


@cache
def _function(place: Place) -> Callable[..., Any]:
    target: Any = place.load()
    function: Callable[..., Any] = target() if isinstance(target, type) else target
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"{place} is {type(target).__name__}; a function is needed, defined with `def`")
    return function


def _call(function: Callable[..., Any], arguments: Mapping[str, Any], count: int | None, file: Path) -> dict[str, Any]:
    drop_output()
    try:
        value = function(**arguments)
    except SystemExit as error:
        return {"fault": f"called exit({error.code!r})", "allowed": ""}
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).name == file.name]
        place = f" ({file.name}, line {lines[-1]})" if lines else ""  # in the user's file
        return {"fault": f"raised {type(error).__name__}: {error}"[:400] + place, "allowed": ""}
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
    values = [value] if count is None else value
    if count is not None and not (isinstance(values, list | tuple) and len(values) == count):
        return {"fault": f"returned {_quote(value)}", "allowed": f"; a list of {count} is needed, one per completion"}
    try:
        return {"found": [_as_json(item) for item in values]}
    except ValueError as error:
        return {"fault": f"returned {error}", "allowed": ALLOWED}


def drop_output() -> None:
    """Drop what earlier calls printed."""
    with contextlib.suppress(OSError):
        os.ftruncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)


def _as_json(value: Any) -> dict[str, Any]:
    """A returned value as JSON (ValueError: it is not an allowed value; says what it is)."""
    if value is None:
        return {}
    if isinstance(value, Verdict):
        try:
            outcome = Outcome(value.outcome)
            steps = [StepReward(int(end), _number(reward, value)) for end, reward in value.steps]
            parts = _parts(value.parts) if outcome.judged else {}
            measures = {str(name): _number(measure, value) for name, measure in value.measures.items()}
        except (TypeError, AttributeError) as error:
            raise ValueError(f"an incomplete Verdict ({error})") from None
        answer = None if value.answer is None else str(value.answer)
        return {
            "parts": parts, "outcome": outcome, "evidence": str(value.evidence), "answer": answer,
            "measures": measures, "steps": steps,
        }  # fmt: skip
    if not isinstance(value, Mapping):
        return {"parts": {"reward": _number(value, value)}}
    if not 1 <= len(value) <= MAX_PARTS:
        raise ValueError(f"a dict of {len(value)} parts (1 to {MAX_PARTS} are allowed)")
    return {"parts": _parts(value)}


def _parts(values: Mapping[Any, Any]) -> dict[str, float]:
    for name in values:
        if not (isinstance(name, str) and name.isidentifier()) or name in ADDED_LATER:
            raise ValueError(f"a part named {name!r:.100} (a name has letters, digits and _, and is not cap or kl)")
    return {name: _number(value, values) for name, value in values.items()}


def _number(value: Any, result: Any) -> float:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if hasattr(value, "__float__") and getattr(value, "shape", ()) == () and math.isfinite(float(value)):
            return float(value)
    raise ValueError(_quote(result))


def _quote(value: Any) -> str:
    return f"{value!r:.100} (a {type(value).__name__})"
