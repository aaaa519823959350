"""A trainer: a recipe, a function that runs it, and what the rest of the package must know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from groupwise.config.schema import Makes
from groupwise.training.config import Recipe
from groupwise.training.session import Session

__all__ = ["OnReport", "Recipe", "Trainer", "data_line"]

OnReport = Callable[[Any], None]
"""Called with every report of a run: its steps, and what was measured on the way."""


def data_line(report: Any) -> str:
    """One step of training on data as a line; what an algorithm measures of its own stands at the end."""
    values = report._asdict()
    head = f"step {values.pop('step'):5d}  loss {values.pop('loss'):.4f}  lr {values.pop('lr'):.1e}"
    rate = values.pop("num_tokens") / values.pop("seconds")
    own = [f"  {name} {_number(value)}" for name, value in values.items() if name != "grad_norm" and value is not None]
    return f"{head}  {rate:,.0f} tokens/s{''.join(own)}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


@dataclass(frozen=True, slots=True)
class Trainer:
    """One algorithm. Its module has it as `TRAINER`, and a line in `TRAINERS` names the module."""

    recipe: type[Recipe]
    """The class of its recipes."""
    run: Callable[[Any, bool, OnReport], Session]
    """(recipe, restart, called with every report): runs it, or resumes an interrupted run."""
    makes: Makes = "model"
    """What a run leaves: a policy, or a reward model."""
    line: Callable[[Any], str] = data_line
    """What the display shows of a step's report, which has `step`."""
    epochs: Callable[[Any], int] = lambda recipe: 1
    """(recipe): how often it learns from what it sampled."""
    trained_beside: Callable[[Any], tuple[str, ...]] = lambda recipe: ()
    """(recipe): models of the policy's size that a step trains beside it, by name; for the prediction of memory."""
