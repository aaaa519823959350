"""One score of a completion from the scores of its steps."""

import math
from collections.abc import Callable, Mapping, Sequence

Aggregate = Callable[[Sequence[float]], float]

AGGREGATES: Mapping[str, Aggregate] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda scores: math.fsum(scores) / len(scores),
}
"""`last` suits a model of values, which has learnt labels of rollouts (Snell et al. 2024, arXiv:2408.03314, §5.1);
`min` (Math-Shepherd, arXiv:2312.08935, §3.4) and `product` (Lightman et al. 2023, arXiv:2305.20050, §2.6) one of
correctness. `mean` is there to compare: steps that do nothing raise it."""


def aggregated(scores: Sequence[float], how: str) -> float:
    """The score of a completion from those of its steps; 0, the lowest that there is, without steps.

    >>> [aggregated([0.5, 1.0, 0.75], how) for how in AGGREGATES]
    [0.75, 0.5, 0.375, 0.75]

    Args:
        scores: of each step the chance that it is right, in [0, 1].
        how: `last`, `min`, `product` or `mean`.

    Raises:
        ValueError: a score is no chance, NaN for example, or `how` is unknown.
    """
    if how not in AGGREGATES:
        raise ValueError(f"the scores of steps are joined by {how!r}: allowed are {', '.join(AGGREGATES)}")
    bad = [index for index, score in enumerate(scores) if not 0 <= score <= 1]
    if bad:
        raise ValueError(f"the score of step {bad[0]} is {scores[bad[0]]}: a number from 0 to 1 is allowed")
    return float(AGGREGATES[how](scores)) if scores else 0.0
