"""Planting a fault: the source of a function is changed in one place, and the running function takes the new code."""

import importlib
import inspect
import sys
import textwrap
from types import FunctionType
from typing import Any, NamedTuple

import pytest


class Edit(NamedTuple):
    """One slip in the code."""

    function: str
    """`module:name` below `groupwise`, for example `training.update:_Update.backward`."""
    before: str
    """What stands there once."""
    after: str
    """What the slip makes of it."""


def find(name: str) -> FunctionType:
    """The function of a `module:name`, without decorators."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(f"groupwise.{module}")
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType), name
    return function


def plant(edit: Edit, patch: pytest.MonkeyPatch) -> None:
    """Change the function itself, so that everyone who has imported it has the fault."""
    function = find(edit.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(edit.before) == 1, f"{edit.function} does not read {edit.before!r} once any more"
    names = dict(function.__globals__)
    file = sys.modules[function.__module__].__file__ or ""
    exec(compile(source.replace(edit.before, edit.after), file, "exec"), names)
    patch.setattr(function, "__code__", inspect.unwrap(names[function.__name__]).__code__)
