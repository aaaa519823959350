"""Something per token of every completion, without gradient: log-probabilities of a reference, values of a critic."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.models.packed import Pack, Sequences, pack
from groupwise.training.micro_batches import micro_batches
from groupwise.types import Group

Arrays = list[NDArray[np.float32]]
"""One array (T,) per completion of a group."""


def sequences_of(group: Group) -> Sequences:
    """A group as the model reads it; only what was sampled is predicted."""
    completions = group.completions
    return Sequences(group.prompt.token_ids, [c.token_ids for c in completions], [c.sampled for c in completions])


@torch.no_grad()
def per_token(
    groups: Sequence[Group], compute: Callable[[Pack], Tensor], budget: int, device: torch.device
) -> list[Arrays]:
    """Run `compute`, which gives (M,) for the M sampled tokens of a pack, over all completions of the groups.

    Arrays are (T,), 0 at the tokens that were put in.

    Args:
        groups: whose completions.
        compute: one forward.
        budget: most tokens in one forward; a larger group stands alone.
        device: where the packs go.
    """
    sequences = [sequences_of(group) for group in groups]
    sizes = [sequence.num_read for sequence in sequences]
    found: list[Arrays] = []
    for chunk in micro_batches(sizes, budget):
        values = compute(pack([sequences[i] for i in chunk], device)).float().cpu().numpy()
        lengths = [one.num_tokens for i in chunk for one in groups[i].completions]
        pieces = iter(np.split(values, np.cumsum(lengths)[:-1]))
        found += [[one.spread(next(pieces)) for one in groups[i].completions] for i in chunk]
    return found
