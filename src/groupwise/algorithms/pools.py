"""What a choice among k samples is worth, exactly, from one pool of n samples of a problem.

Every figure is the mean over all subsets of k samples: drawing with replacement would be biased. Majority votes are in
`statistics.majority_at_k`.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np

from groupwise.randomness import Draw

MAX_SUBSETS = 12_870
"""Up to this many subsets, C(16, 8), a weighted vote is counted over all of them."""
NUM_DRAWN = 4_096
"""Subsets drawn where there are more."""


class Expected(NamedTuple):
    """An expected accuracy."""

    value: float
    standard_error: float
    """Of drawing subsets; 0 where all were counted."""


def best_of_k(scores: Sequence[float], correct: Sequence[bool], k: int) -> float:
    """Expected accuracy of the best-scored of k of a problem's n samples, over all subsets of k; ties are drawn.

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
    """Expected accuracy of the answer with the largest sum of scores among k of n samples; ties are drawn.

    Math-Shepherd (arXiv:2312.08935) and best-of-N weighted (Snell et al. 2024, arXiv:2408.03314). There is no closed
    form for real scores: all subsets are counted up to C(16, 8) of them, else `NUM_DRAWN` are drawn, by the seed alone.

    >>> weighted_vote(["4", "4", "5"], [0.4, 0.4, 0.7], [True, True, False], k=3)
    Expected(value=1.0, standard_error=0.0)

    Args:
        answers: canonical answer of each sample, None where there is none: it does not vote.
        scores: what each sample's vote counts.
        correct: whether each was judged right; an answer is right if any of its samples is.
        k: votes.
        seed: of the drawn subsets.

    Raises:
        ValueError: k is not in 1 .. n, the lengths differ, or a score is not finite.
    """
    n = _checked(scores, len(correct), k)
    if len(answers) != n:
        raise ValueError(f"{len(answers)} answers for {n} scores: exactly one answer per score is allowed")
    right = {answer for answer, is_right in zip(answers, correct, strict=True) if is_right and answer is not None}
    fractions = [Fraction(float(score)) for score in scores]
    scale = math.lcm(*(fraction.denominator for fraction in fractions))
    exact = [int(fraction * scale) for fraction in fractions]
    every = math.comb(n, k) <= MAX_SUBSETS
    subsets = combinations(range(n), k) if every else islice(_drawn(n, k, seed), NUM_DRAWN)
    values = [_vote([(answers[i], exact[i]) for i in subset], right) for subset in subsets]
    if every:
        return Expected(float(sum(values, Fraction(0)) / len(values)), 0.0)
    numbers = np.array(values, float)
    return Expected(float(numbers.mean()), float(numbers.std(ddof=1) / math.sqrt(len(numbers))))


def _vote(votes: Sequence[tuple[str | None, int]], right: set[str]) -> Fraction:
    """Probability that the winner is right; 0 where nobody votes."""
    sums: dict[str, int] = defaultdict(int)
    for answer, score in votes:
        if answer is not None:
            sums[answer] += score
    largest = max(sums.values(), default=0)
    winners = [answer for answer, total in sums.items() if total == largest]
    return Fraction(sum(answer in right for answer in winners), len(winners)) if winners else Fraction(0)


def _drawn(n: int, k: int, seed: int) -> Iterator[tuple[int, ...]]:
    index = 0
    while True:
        yield tuple(Draw("weighted vote", seed, n, k, index).shuffled(range(n))[:k])
        index += 1


def _checked(scores: Sequence[float], num_verdicts: int, k: int) -> int:
    n = len(scores)
    if num_verdicts != n:
        raise ValueError(f"{num_verdicts} verdicts for {n} scores: exactly one verdict per score is allowed")
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} of a pool of {n} samples: 1 to {n} is allowed")
    bad = [i for i, score in enumerate(scores) if not math.isfinite(score)]
    if bad:
        raise ValueError(f"the score of sample {bad[0]} is {scores[bad[0]]}: only finite scores can be compared")
    return n
