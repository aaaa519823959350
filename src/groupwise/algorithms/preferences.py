"""Learning from pairs of completions of which one was preferred: losses, accuracy, calibration.

Tensors are (B,) over the pairs. A pair's *scores* are a reward model's, or the implicit rewards of a policy; their
difference is the log-odds that the chosen completion is preferred (Bradley and Terry 1952).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: Tensor | float = 0.0) -> Tensor:
    """L = -log σ(r_c - r_r - m): InstructGPT (arXiv:2203.02155, eq. 1); margin m: Llama 2 (arXiv:2307.09288, eq. 2).

    >>> bradley_terry(Tensor([2.0]), Tensor([1.0]), margin=1.0)
    tensor([0.6931])
    """
    return -F.logsigmoid(chosen - rejected - margin)


def centring(chosen: Tensor, rejected: Tensor) -> Tensor:
    """L = (r_c + r_r)²: pulls the mean score to 0, which pairs leave open (Eisenstein et al., arXiv:2312.09244, eq. 2).

    >>> centring(Tensor([2.0]), Tensor([1.0]))
    tensor([9.])
    """
    return (chosen + rejected).square()


class PairLogprobs(NamedTuple):
    """Log-probabilities of the completions of B pairs; (B,)."""

    chosen: Tensor  # log π of the whole chosen completion; with gradient
    rejected: Tensor
    ref_chosen: Tensor
    """log π_ref of the whole chosen completion; not read by losses without a reference."""
    ref_rejected: Tensor
    chosen_lengths: Tensor
    rejected_lengths: Tensor


class Strength(NamedTuple):
    """Coefficients of a loss; each loss reads those that apply to it."""

    beta: float = 0.1  # β
    gamma: float = 0.0  # γ, the margin that SimPO aims at


class PreferenceLoss(NamedTuple):
    """Per-pair loss and the implicit rewards that it compares; all (B,)."""

    loss: Tensor  # To be minimised; with gradient
    chosen: Tensor  # Implicit reward of the chosen completion, detached
    rejected: Tensor


def dpo(pairs: PairLogprobs, strength: Strength) -> PreferenceLoss:
    """L = -log σ(β (log π/π_ref (y_c) - log π/π_ref (y_r))): DPO (Rafailov et al. 2023, arXiv:2305.18290, eq. 7).

    The implicit reward is β log π/π_ref.
    """
    chosen = strength.beta * (pairs.chosen - pairs.ref_chosen)
    rejected = strength.beta * (pairs.rejected - pairs.ref_rejected)
    return PreferenceLoss(-F.logsigmoid(chosen - rejected), chosen.detach(), rejected.detach())


def ipo(pairs: PairLogprobs, strength: Strength) -> PreferenceLoss:
    """L = (h - 1/(2β))², h the difference of log π/π_ref: IPO (Azar et al. 2023, arXiv:2310.12036, eq. 17, τ = β).

    The log-ratios are means per token, as in the reference implementation; the paper's are sums, and 1/(2β) then means
    something else for every length. The implicit reward is the mean log-ratio times β.
    """
    chosen = (pairs.chosen - pairs.ref_chosen) / pairs.chosen_lengths
    rejected = (pairs.rejected - pairs.ref_rejected) / pairs.rejected_lengths
    loss = (chosen - rejected - 1 / (2 * strength.beta)).square()
    return PreferenceLoss(loss, strength.beta * chosen.detach(), strength.beta * rejected.detach())


def simpo(pairs: PairLogprobs, strength: Strength) -> PreferenceLoss:
    """L = -log σ(β/|y_c| log π(y_c) - β/|y_r| log π(y_r) - γ): SimPO (Meng et al. 2024, arXiv:2405.14734, eq. 6).

    Without a reference. The implicit reward is β times the mean log-probability per token (paper: β 2 to 10).
    """
    chosen = strength.beta * pairs.chosen / pairs.chosen_lengths
    rejected = strength.beta * pairs.rejected / pairs.rejected_lengths
    loss = -F.logsigmoid(chosen - rejected - strength.gamma)
    return PreferenceLoss(loss, chosen.detach(), rejected.detach())


PREFERENCE_LOSSES: dict[str, Callable[[PairLogprobs, Strength], PreferenceLoss]] = {
    "dpo": dpo,
    "ipo": ipo,
    "simpo": simpo,
}

REFERENCE_FREE = frozenset({"simpo"})  # Losses that read no reference


def preferred(chosen: ArrayLike, rejected: ArrayLike) -> list[float]:
    """Return for each pair 1 where the chosen completion scores higher, 0 where it does not, 1/2 for equal scores.

    Their mean is the accuracy.

    >>> preferred([2.0, 0.0, 1.0], [1.0, 3.0, 1.0])
    [1.0, 0.0, 0.5]
    """
    shares: list[float] = ((np.sign(np.asarray(chosen) - np.asarray(rejected)) + 1) / 2).tolist()
    return shares


class ReliabilityBin(NamedTuple):
    """Pairs of similar confidence."""

    confidence: float  # Mean probability that the scores give to the completion they prefer; 0.5 to 1
    accuracy: float  # Share of pairs in which that one was indeed the chosen one
    num_pairs: int


def reliability(chosen: ArrayLike, rejected: ArrayLike, num_bins: int = 10) -> list[ReliabilityBin]:
    """Return confidence and accuracy in bins of equally many pairs, least confident first.

    The confidence is σ(|r_c - r_r|). Bins differ by one pair at most, and are as many as there are pairs at most.

    >>> reliability([0.0, 0.0], [0.0, 0.0], num_bins=1)
    [ReliabilityBin(confidence=0.5, accuracy=0.5, num_pairs=2)]
    """
    difference = np.asarray(chosen, np.float64) - np.asarray(rejected, np.float64)
    confidence = 1 / (1 + np.exp(-np.abs(difference)))
    right = np.array(preferred(chosen, rejected))
    order = np.argsort(confidence, kind="stable")
    bins = np.array_split(order, min(num_bins, len(order)) or 1)
    return [
        ReliabilityBin(float(confidence[members].mean()), float(right[members].mean()), len(members))
        for members in bins
        if len(members)
    ]


def calibration_error(bins: list[ReliabilityBin]) -> float:
    """Expected calibration error Σ n_k/N |accuracy_k - confidence_k| (Guo et al. 2017, arXiv:1706.04599, eq. 3).

    Over bins of equal mass (Nixon et al. 2019, arXiv:1904.01685). With few pairs per bin chance alone keeps it above 0;
    nan without any pair.
    """
    total = sum(bucket.num_pairs for bucket in bins)
    error = sum(bucket.num_pairs * abs(bucket.accuracy - bucket.confidence) for bucket in bins)
    return error / total if total else float("nan")
