"""Where the boxes of the lineage stand: layers from left to right, neighbours near each other.

After Sugiyama, Tagawa and Toda (1981): layers by the longest way from a source, places kept free in every layer that
a long arrow crosses, heights by the mean of the neighbours. All long arrows of one source share their places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from groupwise.evaluation.lines import spread

Inputs = Mapping[str, Sequence[str]]
"""What each box is made of; inputs come before what is made of them."""

Place = tuple[str, int]
"""A box, or the arrow that starts at it, in a layer."""

SWEEPS = 10
STRAIGHT = 3
"""How much more a piece of a long arrow pulls for each of its ends that is no box, so that the arrow runs straight."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layers and heights of all boxes and of the places that long arrows cross."""

    layers: Mapping[str, int]
    heights: Mapping[Place, float]
    """From 0 (top) to `num_rows` - 1; at least 1 apart within a layer."""
    num_rows: int

    @property
    def num_layers(self) -> int:
        return max(self.layers.values()) + 1

    def way(self, source: str, target: str) -> list[Place]:
        """The places that the arrow from `source` to `target` passes, ends included."""
        between = range(self.layers[source], self.layers[target])
        return [*((source, layer) for layer in between), (target, self.layers[target])]


def layout(inputs: Inputs) -> Layout:
    """Place every box."""
    layers = layers_of(inputs)
    columns = [_column(inputs, layers, layer) for layer in range(max(layers.values()) + 1)]
    num_rows = max(len(column) for column in columns)
    bare = Layout(layers, {}, num_rows)
    ways = [bare.way(source, target) for target, sources in inputs.items() for source in sources]
    steps = {step for way in ways for step in pairwise(way)}
    return Layout(layers, _heights(columns, steps, set(layers.items())), num_rows)


def layers_of(inputs: Inputs) -> dict[str, int]:
    """The layer of each box: right of all its inputs, and as near to its users as to its inputs.

    >>> layers_of({"base": (), "pairs": (), "a": ("base",), "b": ("a", "pairs")})
    {'base': 0, 'pairs': 1, 'a': 1, 'b': 2}
    """
    layers: dict[str, int] = {}
    for name, sources in inputs.items():
        layers[name] = max((layers[source] + 1 for source in sources), default=0)
    for name in reversed(list(inputs)):
        users = [layers[user] for user, sources in inputs.items() if name in sources]
        if users and len(inputs[name]) <= len(users):  # more arrows become shorter than longer
            layers[name] = min(users) - 1
    return layers


def _column(inputs: Inputs, layers: Mapping[str, int], layer: int) -> list[Place]:
    """Everything in a layer: its boxes, and the long arrows that cross it."""
    last = {
        name: max((layers[user] for user, sources in inputs.items() if name in sources), default=0) for name in inputs
    }
    return [(name, layer) for name in inputs if layers[name] == layer or layers[name] < layer < last[name]]


def _heights(
    columns: Sequence[Sequence[Place]], steps: set[tuple[Place, Place]], boxes: set[Place]
) -> dict[Place, float]:
    """Heights by the mean of the neighbours, again and again, from left to right and back."""
    size = max(1, max(map(len, columns)) - 1)
    heights = {place: row / size for column in columns for row, place in enumerate(column)}
    near: dict[Place, list[Place]] = {place: [] for place in heights}
    for left, right in sorted(steps):
        weight = STRAIGHT ** sum(place not in boxes for place in (left, right))
        near[left] += [right] * weight
        near[right] += [left] * weight
    for _ in range(SWEEPS):
        for column in (*columns, *reversed(columns)):
            wanted = [_mean([heights[other] for other in near[place]] or [heights[place]]) for place in column]
            heights |= dict(zip(column, spread(wanted, 1 / size), strict=True))
    return {place: height * size for place, height in heights.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
