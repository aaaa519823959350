"""Invariants of every update, whatever the data; cheap enough to check each time."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.algorithms.objective import BatchSize, token_weights
from groupwise.errors import InvariantError


class Agreement(NamedTuple):
    """Distances between trainer and sampler on the same weights and tokens, in nats; or bounds on them."""

    bias: float
    """Mean of trainer - sampler, with its sign. Rounding goes either way and leaves about 0; a fault does not."""
    p99: float  # Bound of all differences but one in 100 (and always one)
    largest: float


def measure_agreement(differences: Tensor) -> Agreement:
    """Return the statistics of signed differences (n,), n > 0."""
    sizes = differences.abs()
    rank = max(1, len(sizes) - max(1, len(sizes) // 100))
    return Agreement(differences.double().mean().item(), sizes.kthvalue(rank).values.item(), sizes.max().item())


BOUNDS = {torch.float32: Agreement(2e-6, 1e-4, 1e-3), torch.bfloat16: Agreement(1e-2, 0.5, 3.0)}
"""At temperature 1, by the precision of the products. lab/benchmarks/agreement.py measures those of fp32.
Those of bf16 are set by hand: rare tokens lie far out without any fault. Of Qwen2.5-Coder-0.5B on an H200, 30 steps of
some 38,000 tokens, p99 was 0.10 to 0.11, the largest 0.36 to 1.5, and the mean at most 3e-4; of SmolLM2-135M with
adapters, in steps of some 500 tokens at temperature 0.7, p99 was up to 0.53, the largest 0.67, the mean 3.4e-3."""


def agreement_bounds(num_tokens: int, temperature: float, dtype: torch.dtype, stated: float | None) -> Agreement:
    """Return the bounds for this many tokens. A stated one holds for every token and replaces all others.

    Below temperature 1 dividing by it makes rounding errors of the logits larger, so the bounds grow alike. One token
    as far as is allowed must not move the mean beyond its bound, however few tokens there are.
    """
    if stated is not None:
        return Agreement(math.inf, math.inf, stated)
    bias, p99, largest = (bound * max(1.0, 1 / temperature) for bound in BOUNDS[dtype])
    return Agreement(bias + largest / num_tokens, p99, largest)


def check_agreement(
    differences: Tensor, temperature: float, dtype: torch.dtype, stated: float | None = None
) -> Agreement:
    """Check that sampler and trainer, as one policy, agree about the log-probabilities of an update's tokens.

    Args:
        differences: (n,) log-probability of the trainer - that of the sampler, on the same weights.
        temperature: at which the tokens were drawn.
        dtype: of the products.
        stated: bound for every token in place of the usual ones; infinite where the sampler may be another policy.

    Raises:
        InvariantError: they do not agree, or a difference is not finite.
    """
    agreement = measure_agreement(differences)
    allowed = agreement_bounds(len(differences), temperature, dtype, stated)
    names = ("mean difference", "difference that one token in 100 exceeds", "largest difference")
    for name, value, bound in zip(names, agreement, allowed, strict=True):
        if not math.isfinite(value) or abs(value) > bound:
            raise InvariantError(
                f"sampler and trainer disagree about log-probabilities: the {name} is {value:.3g} over "
                f"{len(differences)} tokens (allowed {bound:.3g}), so the completions do not come from the policy that "
                "is trained (wrong temperature, other weights, or a fault)"
            )
    return agreement


def check_weights(parts: Sequence[Tensor], lengths: Sequence[int], batch: BatchSize, aggregation: str) -> None:
    """Check that every token counts, and that all micro-batches together weigh what one batch would.

    `parts` are the token weights of each micro-batch, `lengths` the tokens of each completion in them, in any order.

    Raises:
        InvariantError: a micro-batch has its own denominator, or a token (such as the stop token) is left out.
    """
    if not parts:
        return
    expected = token_weights(torch.tensor(lengths), batch, aggregation).double().sum().item()
    weights = torch.cat(list(parts)).double()
    total, ignored = weights.sum().item(), int((weights <= 0).sum())
    if ignored or abs(total - expected) > 1e-4 * expected:
        raise InvariantError(
            f"the weights of an update's tokens sum to {total:.6g} over {len(parts)} micro-batches, but {expected:.6g} "
            f"is right; {ignored} of {len(weights)} tokens have no weight"
        )


def check_gradient(grad_norm: float, has_advantage: bool, is_bounded: bool) -> None:
    """Check that advantages other than zero have a gradient, unless a bound of the loss holds somewhere.

    Raises:
        InvariantError: the gradient is exactly zero.
    """
    if has_advantage and not is_bounded and grad_norm == 0:
        raise InvariantError(
            "there are advantages, but the gradient is exactly zero: the loss does not depend on the weights (a "
            "denominator of the ratio that is not detached, or nothing that can be trained)"
        )
