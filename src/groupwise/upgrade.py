"""Recipes and run directories of earlier versions: their keys, read as today's.

Each entry of `MOVES` is a key that stands elsewhere today. A run directory's `config.toml` names every value, so one
that the chosen kind does not read today, and that is the default it had then, is left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Move(NamedTuple):
    """A key that moved."""

    old: str
    """Where it stood, dotted."""
    new: str
    """Where it stands."""
    default: Any = None
    """Its default then; `kinds` apart, an old value equal to it is left out."""
    kinds: tuple[str, ...] = ()
    """Kinds of its new section that read it; empty: all of them."""


MOVES: tuple[Move, ...] = ()


def upgraded(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables in today's keys, and for each key that moved a sentence that says where it stands."""
    found: dict[str, Any] = _copied(tables)
    said: list[str] = []
    for move in MOVES:
        value = _taken(found, move.old.split("."))
        if value is None:
            continue
        section = _section(found, move.new.split(".")[:-1])
        if move.kinds and section.get("kind") not in move.kinds and value == move.default:
            continue
        section.setdefault(move.new.split(".")[-1], value)
        said.append(f"{move.old} is {move.new} now")
    return found, said


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tables.items()}


def _taken(tables: dict[str, Any], path: list[str]) -> Any:
    for name in path[:-1]:
        tables = tables.get(name, {})
        if not isinstance(tables, dict):
            return None
    return tables.pop(path[-1], None)


def _section(tables: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for name in path:
        tables = tables.setdefault(name, {})
    return tables
