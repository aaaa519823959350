"""The gradient of each KL estimator, summed over every sequence."""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected
from groupwise_lab.oracle.report import Row, Section
from groupwise_lab.oracle.toys import Dials, toy
from groupwise_lab.oracle.world import World

COLUMNS = ("value", "std", "length", "to sequence", "to token", "to forward")
WHERE = {"loss": "in loss", "corrected": "× ratio", "reward": "in reward"}
"""Names of the places in the report."""
REFERENCE, STALE = 1.0, 0.3
"""Standard deviation of the difference in logits between the policy and its reference, and an older policy."""
Place = Literal["loss", "corrected", "reward"]
"""`loss`: the term stands in the loss as it is; `corrected`: times the ratio; `reward`: it is taken off the reward of
the sequence, and the gradient is that of REINFORCE."""


class Divergences(NamedTuple):
    """True values (nats per sequence) and gradients (K, V) of what an estimator may mean; means over prompts."""

    sequence: Tensor
    """∇ KL(π ‖ ref) of whole sequences: what a penalty is for."""
    token: Tensor
    """∇ Σₜ KL(π ‖ ref) of each token given the text before it, that text held fixed."""
    token_forward: Tensor
    """∇ Σₜ KL(ref ‖ π) of each token, the other direction, the text before it held fixed."""
    value: float
    """Σₜ KL(π ‖ ref) of each token; on-policy it is KL(π ‖ ref) of whole sequences."""


class KlEstimate(NamedTuple):
    """Figures of one estimator."""

    value: float
    """Expected sum of its token values over a sequence, in nats."""
    std: float
    """Standard deviation of that sum, from sequence to sequence (prompts are no part of it)."""
    gradient: Tensor
    """(K, V) expected gradient of what is added to the loss."""


def kl(dials: Dials) -> Section:
    """Every estimator in the loss, corrected, and in the reward."""
    world = toy(dials)
    reference = world.logits("reference", REFERENCE)
    samplers = {"": None, ", stale": world.logits("older", STALE)}
    rows = []
    for stale, sampler in samplers.items():
        truth = divergences(world.world, world.theta, reference, sampler)
        for place in get_args(Place):
            for estimator in KL_ESTIMATORS:
                estimated = expected(world.world, world.theta, reference, estimator, place, sampler)
                rows.append(Row(f"{estimator} {WHERE[place]}{stale}", _figures(estimated, truth)))
    return Section(
        "kl", "KL estimators",
        "`value` and `std` are in units of the true divergence, 1 is right; `length` is that of the expected gradient "
        "in units of the sequence divergence's. Then the distance (0 is right) to three true gradients: of KL(π ‖ ref) "
        "of whole sequences, of each token given the text before it, and of KL(ref ‖ π) of each token. `× ratio`: in "
        "the loss, times π/π_old; `stale`: samples of an older policy.",
        str(world), COLUMNS, tuple(rows),
    )  # fmt: skip


def _figures(estimated: KlEstimate, truth: Divergences) -> tuple[float, ...]:
    def distance(gradient: Tensor) -> float:
        return float((estimated.gradient - gradient).norm() / gradient.norm())

    length = float(estimated.gradient.norm() / truth.sequence.norm())
    value = (estimated.value / truth.value, estimated.std / truth.value)
    return (*value, length, distance(truth.sequence), distance(truth.token), distance(truth.token_forward))


def divergences(world: World, theta: Tensor, reference: Tensor, sampler: Tensor | None = None) -> Divergences:
    """The truth, by sums over sequences and states; the text before a token is the sampler's (None: the policy's)."""
    leaf = theta.detach().requires_grad_()
    log_ratios = (world.token_logprobs(leaf) - world.token_logprobs(reference)).sum(-1)
    sequence = (world.probabilities(leaf) * log_ratios).sum(-1).mean()
    visits = world.visits(theta if sampler is None else sampler) / world.num_prompts
    logprobs, ref = leaf.log_softmax(-1), reference.log_softmax(-1)
    token = (visits * (logprobs.exp() * (logprobs - ref)).sum(-1)).sum()
    forward = (visits * (ref.exp() * (ref - logprobs)).sum(-1)).sum()

    def gradient(divergence: Tensor) -> Tensor:
        return torch.autograd.grad(divergence, leaf, retain_graph=True)[0]

    return Divergences(gradient(sequence), gradient(token), gradient(forward), token.item())


def expected(
    world: World, theta: Tensor, reference: Tensor, estimator: str, place: Place, sampler: Tensor | None = None
) -> KlEstimate:
    """Value and gradient over all sequences of the sampler (the policy itself, if None)."""
    leaf = theta.detach().requires_grad_()
    sampling = (theta if sampler is None else sampler).detach()
    chances = world.probabilities(sampling)
    logprobs, ref, old = map(world.token_logprobs, (leaf, reference, sampling))
    terms = KL_ESTIMATORS[estimator](logprobs, ref)
    if place == "corrected":
        terms = importance_corrected(terms, logprobs, old)
    sums = (terms * world.mask).sum(-1)
    loss = sums.detach() * logprobs.sum(-1) if place == "reward" else sums
    gradient = torch.autograd.grad((chances * loss).sum(-1).mean(), leaf)[0]
    mean = (chances * sums.detach()).sum(-1, keepdim=True)
    variance = (chances * (sums.detach() - mean).square()).sum(-1).mean()
    return KlEstimate(float(mean.mean()), math.sqrt(variance), gradient)
