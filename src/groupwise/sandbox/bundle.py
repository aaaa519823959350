"""Texts of this package's modules as one script, for interpreters that do not have the package."""

from functools import cache
from importlib import resources

_LOAD = """
import sys, types
def _load(name, text):
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
"""


@cache
def bundle(*names: str) -> str:
    """A script that defines these modules of `groupwise.sandbox`, each importing only those before it."""
    loads = [f"_load({f'groupwise.sandbox.{name}'!r}, {_text(name)!r})" for name in names]
    return "\n".join([_LOAD, *loads, ""])


def _text(name: str) -> str:
    return resources.files("groupwise.sandbox").joinpath(f"{name}.py").read_text(encoding="utf-8")
