"""What holds in every update, whatever the data; cheap enough to check in every one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.algorithms.aggregation import BatchSize, token_weights
from groupwise.errors import InvariantError


def check_weights(parts: Sequence[Tensor], lengths: Sequence[int], batch: BatchSize, aggregation: str) -> None:
    """Every token counts, and all micro-batches together weigh what one batch would.

    Args:
        parts: token weights of each micro-batch.
        lengths: tokens of each completion in them, in any order.
        batch: the update's denominators.
        aggregation: a name in AGGREGATIONS.

    Raises:
        InvariantError: a micro-batch has its own denominator, or a token (such as the stop token) is left out.
    """
    if not parts:
        return
    expected = token_weights(torch.tensor(lengths), batch, aggregation).double().sum().item()
    weights = torch.cat(list(parts)).double()
    found, ignored = weights.sum().item(), int((weights <= 0).sum())
    if ignored or abs(found - expected) > 1e-4 * expected:
        raise InvariantError(
            f"the weights of an update's tokens sum to {found:.6g} over {len(parts)} micro-batches, but {expected:.6g} "
            f"is right; {ignored} of {len(weights)} tokens have no weight"
        )


def check_gradient(grad_norm: float, has_advantage: bool, is_bounded: bool) -> None:
    """Advantages that differ from zero have a gradient, unless a bound of the loss holds somewhere.

    Raises:
        InvariantError: the gradient is exactly zero.
    """
    if has_advantage and not is_bounded and grad_norm == 0:
        raise InvariantError(
            "there are advantages, but the gradient is exactly zero: the loss does not depend on the weights (a "
            "denominator of the ratio that is not detached, or nothing that can be trained)"
        )
