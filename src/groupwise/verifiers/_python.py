"""Runs in the worker process: the user's own function, on one completion or on a list of them.

A request names the `place`; without `arguments` the function is only loaded, and the answer is its signature. Otherwise
the answer holds `found`, one entry per completion, or `fault`: what the function did. A fault that is not a
completion's says so (`of_function`). What the function logged is in `metrics` and `columns`.
"""

import asyncio
import contextlib
import inspect
import math
import os
import signal
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

from groupwise.config.places import Place
from groupwise.errors import ConfigError
from groupwise.types import Outcome, StepReward, Verdict

MAX_PARTS = 32
ALLOWED = "; a finite number, a dict of them by name, a Verdict, or None for no verdict is allowed"
ADDED_LATER = ("cap", "kl")  # names of parts that training adds itself


class NotSampledError(Exception):
    """The function reads the tokens of a text that was not sampled and has none."""


class NoTokens:
    """Stands for `completion_ids` where texts were not sampled."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotSampledError

    __iter__ = __len__ = __getitem__ = __bool__ = _refuse


class TrainerState:
    """The part of TRL's `trainer_state` that is known here."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self.__dict__ |= known

    def __getattr__(self, name: str) -> NoReturn:
        known = ", ".join(self.__dict__) or "nothing"
        raise AttributeError(f"trainer_state.{name} is not known here; known is {known}")


class Log:
    """Record of what a function logs in one call: metrics, and columns with one value per completion."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.columns: dict[str, list[Any]] = defaultdict(list)

    def metric(self, name: str, value: Any) -> None:
        self.metrics[str(name)].append(_number(value, value))

    def extra(self, column: str, values: Iterable[Any]) -> None:
        """Keep texts, None and finite numbers as they are, anything else as text."""
        logged = self.columns[str(column)]
        for value in values:
            try:
                logged.append(None if value is None else _number(value, value))
            except ValueError:
                logged.append(str(value))


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
    worker, folder = os.getpid(), os.getcwd()
    try:
        return _call(function, request, Path(file))
    finally:
        if os.getpid() != worker:  # the function forked, and this is the child: its answer is not wanted
            os._exit(0)
        signal.alarm(0)
        with contextlib.suppress(OSError):  # the next call begins where this one did
            os.chdir(folder)


@cache
def _function(place: Place) -> Callable[..., Any]:
    target: Any = place.load()
    function: Callable[..., Any] = target() if isinstance(target, type) else target
    if not callable(function):
        raise ConfigError(f"{place} is {type(target).__name__}; a function is needed")
    return function


def _call(function: Callable[..., Any], request: Mapping[str, Any], file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError):  # drops what earlier calls printed
        os.ftruncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)
    log, count = Log(), request["count"]
    beside = {
        "trainer_state": TrainerState(request["state"]), "log_extra": log.extra, "log_metric": log.metric,
    }  # fmt: skip
    arguments = request["arguments"] | {name: beside[name] for name in request["beside"]}
    if request["without_tokens"]:
        arguments["completion_ids"] = NoTokens()
    try:
        value = _awaited(function(**arguments))
        values: list[Any] | None = [value] if count is None else None
        if count is not None and hasattr(value, "__iter__") and not isinstance(value, Mapping | Set | str | bytes):
            values = list(value) if getattr(value, "shape", None) != () else None  # a tensor of no dimension is no list
    except NotSampledError:
        return {"abstains": "reads completion_ids, and no model sampled this text"}
    except SystemExit as error:
        return {"fault": f"called exit({error.code!r})"}
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).name == file.name]
        place = f" ({file.name}, line {lines[-1]})" if lines else ""  # in the user's file
        return {"fault": f"raised {type(error).__name__}: {' '.join(str(error).split())}"[:400] + place}
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
    if values is None:
        return {"fault": f"returned {_quote(value)} (a list of {count} values is needed)",
                "of_function": True}  # fmt: skip
    logged = {f"values of {name!r}": len(column) for name, column in log.columns.items()}
    for name, length in {"values": len(values), **logged}.items():
        if length != (count or 1):
            verb = "returned" if name == "values" else "logged"
            return {"fault": f"{verb} {length} {name} (exactly one per completion is needed)",
                    "of_function": True}  # fmt: skip
    metrics = {name: fmean(numbers) for name, numbers in log.metrics.items()}
    return {"found": [_as_json(item) for item in values], "metrics": metrics, "columns": log.columns}


def _awaited(value: Any) -> Any:
    """Wait for what an `async` function returned, in the one loop of this process: its clients may be kept there."""
    if hasattr(value, "__aiter__"):
        generator = value

        async def collect() -> list[Any]:
            return [item async for item in generator]

        value = collect()
    return _loop().run_until_complete(value) if inspect.isawaitable(value) else value


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _as_json(value: Any) -> dict[str, Any]:
    try:
        if isinstance(value, Verdict):
            try:
                outcome = Outcome(value.outcome)
                steps = [StepReward(int(end), _number(reward, value)) for end, reward in value.steps]
                parts = _parts(value.parts) if outcome.judged else {}
                measures = {str(name): _number(measure, value) for name, measure in value.measures.items()}
            except (TypeError, AttributeError) as error:
                raise ValueError(f"an incomplete Verdict ({error})") from None
            answer = None if value.answer is None else str(value.answer)
            return {"parts": parts, "outcome": outcome, "evidence": str(value.evidence), "answer": answer,
                    "measures": measures, "steps": steps}  # fmt: skip
        if not isinstance(value, Mapping):
            return {} if value is None else {"parts": {"reward": _number(value, value)}}
        if not 1 <= len(value) <= MAX_PARTS:
            raise ValueError(f"a dict of {len(value)} parts (1 to {MAX_PARTS} are allowed)")
        return {"parts": _parts(value)}
    except ValueError as error:
        return {"fault": f"returned {error}", "allowed": ALLOWED}


def _parts(values: Mapping[Any, Any]) -> dict[str, float]:
    for name in values:
        if not (isinstance(name, str) and name.isidentifier()) or name in ADDED_LATER:
            raise ValueError(f"a part named {name!r:.100} (a name has letters, digits and _, and is not cap or kl)")
    return {name: _number(value, values) for name, value in values.items()}


def _number(value: Any, result: Any) -> float:
    """A scalar of Python, numpy or torch as a number (ValueError: it is none, or is not finite; quotes the result)."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # numpy turns texts, times and complex numbers into any
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if kind not in "cSUOMm" and hasattr(value, "__float__") and getattr(value, "shape", ()) == ():
            number = float(value)
            if math.isfinite(number):
                return number
    raise ValueError(_quote(result))


def _quote(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # of an object of the user's, or of an integer with more digits than Python prints
        text = "something"
    return f"{text:.100} (a {type(value).__name__})"
