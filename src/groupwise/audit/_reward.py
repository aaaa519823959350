"""Runs in the worker process: the user's reward function on one completion."""

import importlib.util
import math
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any


def reward(request: dict[str, Any]) -> float | None:
    """The function's value for the texts under `arguments`; without arguments it is only loaded.

    Raises:
        ValueError: there is no such function, or it returned no number.
    """
    module = _module(request["file"])
    function = getattr(module, request["function"], None)
    if not callable(function):
        known = ", ".join(name for name, value in vars(module).items() if callable(value) and name[0] != "_")
        raise ValueError(f"there is no function {request['function']!r} in it; there are {known or 'none'}")
    if "arguments" not in request:
        return None
    value = function(*request["arguments"])
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"it returned {value!r:.100}; a finite number was expected")
    return number


@lru_cache(maxsize=1)
def _module(file: str) -> ModuleType:
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ValueError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
