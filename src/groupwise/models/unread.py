"""What is known of a model whose weights are still in their files; `models.rows` reads them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class Place:
    """Where a weight is."""

    file: Path
    name: str
    """Its name in the file."""


@dataclass(slots=True)
class Unread:
    """A model whose weights are still to be read."""

    path: str
    """The recipe's."""
    device: torch.device
    """Where it will compute."""
    places: dict[str, Place]
    """Of every weight, by the name that it has without adapters."""
    same: list[tuple[Place, Place]]
    """Weights that the model has once and the files twice, which must be equal."""
    then: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done when its rows are there, by all ranks."""
