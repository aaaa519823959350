"""Time of the exact estimators of test-time compute: a pool of 64 samples, choices among 32 of them.

    python lab/benchmarks/pools.py
    python lab/benchmarks/pools.py --samples 256 --chosen 128

Printed: processor time of each estimator, the median of several pools with 2 to 12 different answers. No result is
kept from one pool to the next. The goal is 50 ms for 64 and 32.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from machine import describe

from groupwise.algorithms.pools import best_of_k, weighted_vote
from groupwise.algorithms.statistics import majority_at_k, pass_at_k

ANSWERS = (2, 3, 4, 6, 8, 12)


def main(arguments: list[str] | None = None) -> None:
    """Time every estimator, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--chosen", type=int, default=32)
    options = parser.parse_args(arguments)
    print(describe())
    for name, times in measured(options.samples, options.chosen).items():
        print(f"{name:14} median {1000 * median(times):8.2f} ms, longest {1000 * max(times):8.2f} ms")


def measured(n: int, k: int) -> dict[str, list[float]]:
    """Processor seconds of each estimator for each number of answers."""
    found: dict[str, list[float]] = {"pass@k": [], "majority": [], "best of k": [], "weighted vote": []}
    for number in ANSWERS:
        draw = np.random.default_rng(number)
        answers = draw.integers(0, number, n)
        sizes = [int(size) for size in np.bincount(answers, minlength=number) if size]
        correct, scores = (answers == 0).tolist(), draw.random(n).tolist()
        names: list[str | None] = [str(answer) for answer in answers]
        found["pass@k"].append(_seconds(lambda c=correct: pass_at_k(n, sum(c), k)))
        found["majority"].append(_seconds(lambda s=sizes: majority_at_k(s[:1], s[1:], 0, k)))
        found["best of k"].append(_seconds(lambda s=scores, c=correct: best_of_k(s, c, k)))
        found["weighted vote"].append(_seconds(lambda a=names, s=scores, c=correct: weighted_vote(a, s, c, k)))
    return found


def _seconds(compute: Callable[[], object]) -> float:
    began = time.process_time()
    compute()
    return time.process_time() - began


if __name__ == "__main__":
    main()
