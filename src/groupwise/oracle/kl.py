"""What each KL estimator's gradient really is, summed over every sequence."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected
from groupwise.oracle.world import World


class Divergences(NamedTuple):
    """True values and gradients (K, V) of the divergences that an estimator may mean; means over prompts."""

    sequence: Tensor
    """∇ KL(π ‖ ref) of whole sequences: what a penalty is for."""
    token: Tensor
    """∇ Σₜ KL(π ‖ ref) of each token given the text before it, that text held fixed."""
    token_forward: Tensor
    """∇ Σₜ KL(ref ‖ π) of each token, the other direction, the text before it held fixed."""
    value: float
    """KL(π ‖ ref) of whole sequences, in nats."""


def divergences(world: World, theta: Tensor, reference: Tensor) -> Divergences:
    """The truth, by sums over sequences and states."""
    leaf = theta.detach().requires_grad_()
    chances = world.probabilities(leaf)
    log_ratios = (world.token_logprobs(leaf) - world.token_logprobs(reference)).sum(-1)
    sequence = (chances * log_ratios).sum(-1).mean()
    visits = _visits(world, theta)
    logprobs, ref = leaf.log_softmax(-1), reference.log_softmax(-1)
    token = (visits * (logprobs.exp() * (logprobs - ref)).sum(-1)).sum()
    forward = (visits * (ref.exp() * (ref - logprobs)).sum(-1)).sum()

    def gradient(divergence: Tensor) -> Tensor:
        return torch.autograd.grad(divergence, leaf, retain_graph=True)[0]

    return Divergences(gradient(sequence), gradient(token), gradient(forward), sequence.item())


def _visits(world: World, theta: Tensor) -> Tensor:
    """(K,) expected number of visits to each state, mean over prompts."""
    chances = world.probabilities(theta).detach()[..., None] * world.mask
    return torch.zeros(world.num_states, dtype=torch.float64).index_add(
        0, world.states.reshape(-1), chances.reshape(-1) / world.num_prompts
    )


class KlEstimate(NamedTuple):
    """What an estimator gives in expectation."""

    value: float
    """Σ of its token values over a sequence, in nats."""
    gradient: Tensor
    """(K, V) of what is added to the loss."""


def expected(
    world: World,
    theta: Tensor,
    reference: Tensor,
    estimator: str,
    where: Literal["loss", "corrected", "reward"],
    sampler: Tensor | None = None,
) -> KlEstimate:
    """Value and gradient in expectation over sequences of the sampler (the policy itself, if None).

    `loss`: the term stands in the loss as it is; `corrected`: times the ratio; `reward`: it is taken off the reward of
    the sequence, and the gradient is that of REINFORCE.
    """
    leaf = theta.detach().requires_grad_()
    drawn = theta if sampler is None else sampler
    chances = world.probabilities(drawn).detach()
    logprobs, ref, old = (world.token_logprobs(one) for one in (leaf, reference, drawn.detach()))
    terms = KL_ESTIMATORS[estimator](logprobs, ref)
    value = float((chances * (terms.detach() * world.mask).sum(-1)).sum(-1).mean())
    if where == "reward":
        loss = terms.detach().mul(world.mask).sum(-1) * logprobs.sum(-1)
    else:
        loss = (importance_corrected(terms, logprobs, old) if where == "corrected" else terms).mul(world.mask).sum(-1)
    gradient = torch.autograd.grad((chances * loss).sum(-1).mean(), leaf)[0]
    return KlEstimate(value, gradient)
