"""`groupwise doctor --environment`: the machine and the versions, to be put into a bug report."""

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from groupwise.checks.surroundings import surroundings


def show_environment(console: Console, as_json: bool) -> None:
    """Print what `surroundings` found, a line for each fact."""
    facts = surroundings()
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        console.print(Text(f"{name:{width}}  {_said(value)}"), soft_wrap=True)


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return "-" if value is None else str(value)
