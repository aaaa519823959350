"""The worth of a choice among k samples, exactly, from one pool of n samples of a problem.

Every figure is the mean over all subsets of k samples: drawing with replacement would be biased. Majority votes are in
`statistics.majority_at_k`.

The best method for each difficulty is chosen on other problems than those it is measured on (Snell et al. 2024,
arXiv:2408.03314, §3.2): in every bin of difficulty each half of the problems gets the method that is best on the other
half. Without the two halves the best of several noisy figures would be reported, which is too good.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import key, permutation, uniforms

MAX_SUBSETS = 12_870  # Up to this many subsets, C(16, 8), a weighted vote is counted over all of them
NUM_DRAWN = 4_096  # Subsets drawn where there are more


class Expected(NamedTuple):
    """An expected accuracy."""

    value: float
    standard_error: float  # From drawing subsets; 0 where all were counted


def best_of_k(scores: Sequence[float], correct: Sequence[bool], k: int) -> float:
    """Return the expected accuracy of the best-scored of k of n samples, over all subsets of k; ties are drawn.

    With groups of equal scores from the top, a_g samples above group g, m_g in it and p_g of these correct, it is
    sum_g p_g [C(n - a_g, k) - C(n - a_g - m_g, k)] / C(n, k). The score "is correct" gives pass@k, a constant c / n.

    >>> best_of_k([0.9, 0.1, 0.1], [False, True, False], k=2), best_of_k([1, 1], [True, False], k=2)
    (0.16666666666666666, 0.5)

    Raises:
        ValueError: k is not in 1 .. n, the lengths differ, or a score is not finite.
    """
    n = _checked(scores, len(correct), k)
    groups: dict[float, list[bool]] = defaultdict(list)
    for score, right in zip(scores, correct, strict=True):
        groups[float(score)].append(bool(right))
    above, total = 0, Fraction(0)
    for score in sorted(groups, reverse=True):
        size = len(groups[score])
        chosen = math.comb(n - above, k) - math.comb(n - above - size, k)
        total += Fraction(sum(groups[score]), size) * chosen
        above += size
    return float(total / math.comb(n, k))


def weighted_vote(
    answers: Sequence[str | None], scores: Sequence[float], correct: Sequence[bool], k: int, seed: int = 0
) -> Expected:
    """Return the expected accuracy of the answer with the largest sum of scores among k of n samples; ties are drawn.

    Math-Shepherd (arXiv:2312.08935) and best-of-N weighted (Snell et al. 2024, arXiv:2408.03314). There is no closed
    form for real scores: all subsets are counted up to C(16, 8) of them, else `NUM_DRAWN` are drawn, by the seed alone.

    >>> weighted_vote(["4", "4", "5"], [0.4, 0.4, 0.7], [True, True, False], k=3)
    Expected(value=1.0, standard_error=0.0)

    Args:
        answers: canonical answer of each sample, None where there is none: it does not vote.
        scores: weight of each sample's vote.
        correct: whether each was judged right; an answer is right if any of its samples is.
        k: votes.
        seed: of the drawn subsets.

    Raises:
        ValueError: k is not in 1 .. n, the lengths differ, or a score is not finite.
    """
    n = _checked(scores, len(correct), k)
    if len(answers) != n:
        raise ValueError(f"{len(answers)} answers for {n} scores: exactly one answer per score is allowed")
    if not (names := sorted({answer for answer in answers if answer is not None})):
        return Expected(0.0, 0.0)
    right = {answer for answer, is_right in zip(answers, correct, strict=True) if is_right}
    votes = np.zeros((n, len(names)))
    # in whole units of 2^-44 of the largest: what differs by less ties, and all sums are exact
    largest = max(map(abs, scores), default=0.0)
    whole: NDArray[np.float64] = np.rint(np.ldexp(np.asarray(scores, float), 44 - math.frexp(largest)[1]))
    for row, (answer, score) in enumerate(zip(answers, whole, strict=True)):
        if answer is not None:
            votes[row, names.index(answer)] = score
    voted = np.array([[answer == name for name in names] for answer in answers], float)
    subsets = _subsets(n, k, seed)
    sums = np.where(subsets @ voted > 0, subsets @ votes, -np.inf)
    winners = (sums == sums.max(1, keepdims=True)) & np.isfinite(sums)
    shares = winners[:, [name in right for name in names]].sum(1) / np.maximum(winners.sum(1), 1)
    error = 0.0 if math.comb(n, k) <= MAX_SUBSETS else float(shares.std(ddof=1)) / math.sqrt(len(shares))
    return Expected(math.fsum(shares) / len(shares), error)


@lru_cache(maxsize=16)
def _subsets(n: int, k: int, seed: int) -> NDArray[np.float64]:
    """(subsets, n) which samples each subset has: every one of them, or those that are drawn."""
    if math.comb(n, k) <= MAX_SUBSETS:
        chosen = np.array(list(combinations(range(n), k)))
    else:
        numbers = uniforms(key("weighted vote", seed, n, k), np.arange(NUM_DRAWN * n)).reshape(NUM_DRAWN, n)
        chosen = np.argsort(numbers, axis=1, kind="stable")[:, :k]
    members = np.zeros((len(chosen), n))
    np.put_along_axis(members, chosen, 1.0, axis=1)
    return members


def _checked(scores: Sequence[float], num_verdicts: int, k: int) -> int:
    n = len(scores)
    if num_verdicts != n:
        raise ValueError(f"{num_verdicts} verdicts for {n} scores: exactly one verdict per score is allowed")
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} of a pool of {n} samples: 1 to {n} is allowed")
    if bad := [i for i, score in enumerate(scores) if not math.isfinite(score)]:
        raise ValueError(f"the score of sample {bad[0]} is {scores[bad[0]]}: only finite scores can be compared")
    return n


Ints = NDArray[np.int64]


def folds(num_problems: int, seed: int = 0) -> Ints:
    """Return (P,) 0 or 1: two random halves of the problems; their sizes differ by at most one."""
    result = np.zeros(num_problems, np.int64)
    result[permutation(num_problems, "folds", seed)[num_problems // 2 :]] = 1
    return result


def quantile_bins(values: Sequence[float], num_bins: int = 5) -> Ints:
    """Return the (P,) bin of each problem, about equally many in each, lowest values first; equal ones share a bin.

    >>> quantile_bins([0.1, 0.9, 0.5, 0.1], num_bins=2).tolist()
    [0, 1, 1, 0]
    """
    ordered = np.sort(np.asarray(values, float))
    rank = np.searchsorted(ordered, np.asarray(values, float), side="left")
    return np.asarray(rank * num_bins // max(1, len(ordered)), np.int64)


def absolute_bins(values: Sequence[float], num_bins: int = 5) -> Ints:
    """Return the (P,) bin of each share in [0, 1] by equally wide bounds; 1 belongs to the last bin.

    >>> absolute_bins([0.0, 0.2, 0.55, 1.0]).tolist()
    [0, 1, 2, 4]
    """
    return np.minimum((np.asarray(values, float) * num_bins + 1e-12).astype(np.int64), num_bins - 1)


def cross_fitted(accuracy: NDArray[np.float64], bins: Ints, fold: Ints) -> Ints:
    """Return the (P,) index of the method that every problem gets.

    In a bin a half of the problems gets the method with the highest mean accuracy over the other half's problems of
    this bin; where it has none there, the one that is best on the whole other half. The first of equal ones.

    Args:
        accuracy: (M, P) expected accuracy of each method on each problem, the cheapest method first.
        bins: (P,) difficulty of each problem.
        fold: (P,) half of each problem, 0 or 1.

    Raises:
        ValueError: the shapes differ, or one half is empty.
    """
    if accuracy.ndim != 2 or accuracy.shape[1:] != bins.shape or bins.shape != fold.shape:
        raise ValueError(f"accuracies of shape {accuracy.shape} for {bins.shape} bins and {fold.shape} halves")
    if not {0, 1} <= set(fold.tolist()):
        raise ValueError("both halves must have problems: at least 2 problems are needed")
    chosen = np.zeros(len(bins), np.int64)
    for half in (0, 1):
        for label in np.unique(bins[fold == half]):
            others = (fold != half) & (bins == label)
            if not others.any():
                others = fold != half
            chosen[(fold == half) & (bins == label)] = int(accuracy[:, others].mean(1).argmax())
    return chosen
