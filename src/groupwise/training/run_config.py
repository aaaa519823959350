"""What every trainer's recipe says: where its run is kept, how long it is, which seed it has."""

from typing import Self

from pydantic import Field

from groupwise.config import Changes, Section, parse
from groupwise.ranks.config import RanksConfig
from groupwise.runs.sinks import SinkSections


class RunConfig(Section):
    """Where a run is kept, how long it is and what makes it repeatable."""

    directory: str
    """Run directory; the same command resumes an interrupted run in it."""
    seed: int = 0
    """Seed of every random draw of the run."""
    num_steps: int = Field(ge=1)
    """Steps to do."""
    checkpoint_every: int = Field(20, ge=1)
    """Steps between two checkpoints; what came after the last one is done again on a resume."""
    keep_checkpoints: int = Field(2, ge=1)
    """Newest checkpoints to keep; the best by dev and the last are always kept."""


class Recipe(Section):
    """Base of every trainer's recipe."""

    algorithm: str
    """Which trainer runs this recipe: a built-in name, or `file.py:NAME` for your own."""
    run: RunConfig
    """Where, how long, which seed."""
    ranks: RanksConfig = RanksConfig()
    """Several processes that train one model together."""
    sinks: SinkSections = Field(default_factory=dict, exclude=True)
    """Where the run's metrics are shown, too, by a name of your own. They do not change the run, and it does not record
    them."""

    def with_changes(self, changes: Changes) -> Self:
        """A copy with other values, checked as a whole; the recipe itself stays as it is.

        Args:
            changes: values by dotted key, for example `{"grpo.group_size": 8}`, or `a.b=c` texts.

        Raises:
            ConfigError: a key is unknown, or a value is not allowed beside the others.
        """
        values = self.model_dump(mode="json", exclude_none=True)
        sinks = {name: sink.model_dump(mode="json", exclude_none=True) for name, sink in self.sinks.items()}
        return parse(type(self), {**values, "sinks": sinks}, changes)
