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


@torch.no_grad()
def per_token(
    groups: Sequence[Group], compute: Callable[[Pack], Tensor], budget: int, device: torch.device
) -> list[Arrays]:
    """Run `compute`, which gives (M,) for the M completion tokens of a pack, over all completions of the groups.

    Args:
        groups: whose completions.
        compute: one forward.
        budget: most tokens in one forward; a larger group stands alone.
        device: where the packs go.
    """
    sequences = [Sequences(g.prompt.token_ids, [one.token_ids for one in g.completions]) for g in groups]
    sizes = [len(g.prompt.token_ids) + sum(one.num_tokens for one in g.completions) for g in groups]
    found: list[Arrays] = []
    for chunk in micro_batches(sizes, budget):
        values = compute(pack([sequences[i] for i in chunk], device)).float().cpu().numpy()
        lengths = [one.num_tokens for i in chunk for one in groups[i].completions]
        pieces = iter(np.split(values, np.cumsum(lengths)[:-1]))
        found += [[next(pieces) for _ in groups[i].completions] for i in chunk]
    return found
