"""Two models on the same problems: the difference between them, with its interval."""

from collections.abc import Mapping

from groupwise.algorithms.statistics import Estimate, paired_difference
from groupwise.errors import DataError


def compare(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> Estimate:
    """Mean of b - a over problems (by id), with a 95 % interval; pairing removes what makes some problems harder.

    >>> compare({"1+1": 0.5, "2+2": 0.0}, {"2+2": 0.5, "1+1": 1.0})
    Estimate(value=0.5, low=0.5, high=0.5)

    Raises:
        DataError: the two sides do not hold the same problems; restrict them to `common` ones first.
    """
    different = sorted(shares_a.keys() ^ shares_b.keys())
    if different:
        raise DataError(
            f"a paired difference needs the same problems on both sides; {len(different)} are on one side only, "
            f"for example {different[0]}"
        )
    return paired_difference(list(shares_a.values()), [shares_b[problem] for problem in shares_a])


def common(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Both sides restricted to the problems that both hold, in the order of the first."""
    shared = [problem for problem in shares_a if problem in shares_b]
    return {problem: shares_a[problem] for problem in shared}, {problem: shares_b[problem] for problem in shared}
