"""Published algorithms: the recipes that are shipped for them, as settings of the oracle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.config import RECIPES, parse, read_toml
from groupwise.runs.directory import flattened
from groupwise.trainers.grpo import GrpoRecipe
from groupwise_lab.oracle.setting import Setting

_WHERE = {"run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}
"""Needs of a whole recipe beside an algorithm; the oracle reads nothing of it."""


class Published(NamedTuple):
    """An algorithm and the recipe keys that make it; what is not named keeps its default."""

    source: str
    note: str
    tables: Mapping[str, Any]

    @property
    def is_grpo(self) -> bool:
        """Return True if the trainer `grpo` runs it, so that its whole setting can be enumerated."""
        return bool(self.tables["algorithm"] == "grpo")

    @property
    def keys(self) -> dict[str, Any]:
        """Dotted keys and their values; the algorithm's name only where it is not the default."""
        return {key: value for key, value in flattened(self.tables).items() if (key, value) != ("algorithm", "grpo")}


def published_algorithms() -> dict[str, Published]:
    """Every shipped algorithm by its name."""
    return dict(_read(path) for path in sorted((RECIPES / "algorithms").glob("*.toml")))


def _read(path: Path) -> tuple[str, Published]:
    """A recipe begins with `# NAME: SOURCE` and perhaps comments that are the note."""
    lines = path.read_text(encoding="utf-8").splitlines()
    count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    head, *note = (line.removeprefix("#").strip() for line in lines[:count])
    name, _, source = head.partition(": ")
    return name, Published(source, " ".join(note), read_toml(path))


def as_setting(published: Published, group_size: int) -> Setting:
    """Return the setting that the oracle enumerates; KL terms are no part of it."""
    recipe = parse(GrpoRecipe, {**_WHERE, **published.tables}, source=published.source)
    return Setting(
        group_size,
        recipe.advantage,
        recipe.loss.policy,
        aggregation=recipe.loss.aggregation,
        truncated=recipe.loss.truncated,
        dead_groups="other" if recipe.grpo.refill_rounds else "keep",
    )
