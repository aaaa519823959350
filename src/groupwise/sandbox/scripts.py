"""Texts of this package's modules as one script, for interpreters that do not have the package."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

_FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8")
_LOAD = """
import sys, types
def _load(name, text):
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
"""


@cache
def bundle(*names: str) -> str:
    """A script that defines these modules of `groupwise.sandbox`, each importing only those before it."""
    files = resources.files("groupwise.sandbox")
    texts = {name: files.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in names}
    loads = [f"_load({f'groupwise.sandbox.{name}'!r}, {text!r})" for name, text in texts.items()]
    return "\n".join([_LOAD, *loads, ""])


def zygote_command(python: str, boot: Mapping[str, Any]) -> list[str]:
    """An interpreter with the fork server's script; `boot` is the argument of `zygote.main`."""
    start = "from groupwise.sandbox.zygote import main; import json; main(json.loads(sys.argv[1]))"
    return [python, *_FLAGS, "-c", bundle("confine", "zygote") + start, json.dumps(boot)]


def zygote_environment(prefix: str) -> dict[str, str]:
    """What the interpreter below `prefix` finds when it starts; the fork server clears it.

    Sets have a fixed order, and threads reserve no address space in bulk.
    """
    return {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1", "LD_LIBRARY_PATH": f"{prefix}/lib"}
