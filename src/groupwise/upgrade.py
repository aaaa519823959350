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
    """Its default then; an old value equal to it is left out where the new section does not read it."""
    kinds: tuple[str, ...] = ()
    """Kinds of its new section that read it; empty: all of them, and none reads the old default."""


_CLIPPING = ("clipped_ratio", "sequence_ratio", "clipped_weight")

MOVES: tuple[Move, ...] = (
    Move("loss.policy_loss", "loss.policy.kind"),
    Move("loss.clip_low", "loss.policy.clip_low", 0.2, _CLIPPING),
    Move("loss.clip_high", "loss.policy.clip_high", 0.2, _CLIPPING),
    Move("loss.dual_clip", "loss.policy.dual_clip", 0.0, _CLIPPING[:2]),
    Move("loss.tau_pos", "loss.policy.tau_pos", 1.0, ("soft_gate",)),
    Move("loss.tau_neg", "loss.policy.tau_neg", 1.05, ("soft_gate",)),
    Move("loss.max_logprob_difference", "loss.max_logprob_difference", 0.0),
    Move("grpo.advantage", "advantage.kind"),
)


def upgraded(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables in today's keys, and for each key that moved a sentence that says where it stands."""
    found: dict[str, Any] = _copied(tables)
    said: list[str] = []
    for move in MOVES:
        value = _taken(found, move.old.split("."))
        if value is None:
            continue
        *path, key = move.new.split(".")
        if value == move.default and _kind(found, path) not in move.kinds:
            continue
        _section(found, path).setdefault(key, value)
        if move.new != move.old:
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


def _kind(tables: Any, path: list[str]) -> Any:
    for name in path:
        tables = tables.get(name, {}) if isinstance(tables, dict) else {}
    return tables.get("kind") if isinstance(tables, dict) else tables


def _section(tables: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for name in path:
        if isinstance(tables.get(name), str):  # the kind alone
            tables[name] = {"kind": tables[name]}
        tables = tables.setdefault(name, {})
    return tables
