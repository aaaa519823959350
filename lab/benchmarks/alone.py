"""Time GRPO steps of one process with the layer of ranks and without it: whether a run of one process pays for it.

    python lab/benchmarks/alone.py --shape a --repeats 20

Two learners of one model take turns in this process, each with weights of its own. One is as it is. For the other every
question to the ranks, and every function that deals with rows of weights, is replaced by its answer for one process.
What counts is processor time, which goes on in this program alone; both must end with the same weights, bit by bit. The
first pair is a warm-up and not counted; every other pair begins with the other side. The ratio is with over without, as
the geometric mean over all pairs with Student's 95 % interval.
"""

import argparse
import contextlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from machine import describe
from sides import Ours
from torch import Tensor
from workload import SHAPES, Workload

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.ranks.group import RANKS, Ranks


class Nobody:
    """The answers of `Ranks` in one process, as constants."""

    rank, size, partial_sums = 0, 1, 1
    is_first, are_sums_fixed, offloads = True, False, False
    deadline_s = math.inf

    def to_all(self, own: Any) -> list[Any]:
        return [own]

    def by_first(self, work: Callable[[], Any]) -> Any:
        return work()

    def most(self, count: int) -> int:
        return count

    def total(self, numbers: Tensor) -> Tensor:
        return numbers

    def agree(self, what: str, fact: object) -> None:
        pass

    def shares(self, items: Sequence[Any]) -> list[Sequence[Any]]:
        return [items]

    def collect(self, own: Sequence[Sequence[Any]]) -> Sequence[Any]:
        return own[0]

    def portion(self, budget: int, num_tokens: int) -> int:
        return budget


def _nothing(*args: Any) -> None:
    pass


def _itself(tensor: Tensor, *args: Any) -> Tensor:
    return tensor


PLAIN: dict[str, Any] = {
    "settle": _nothing,
    "own_rows": _itself,
    "whole_tensor": _itself,
    "sharded_like": _itself,
    "first_row": lambda weight: 0,
    "is_sharded": lambda tensor: False,
}
"""Of `ranks.sharding`, what one process calls, as it would be if there were no ranks."""


@contextlib.contextmanager
def without_ranks() -> Iterator[int]:
    """No module asks the ranks anything; gives the number of places where one would."""
    with contextlib.ExitStack() as stack:
        places = 0
        for name, module in list(sys.modules.items()):
            if not name.startswith("groupwise.") or name.startswith("groupwise.ranks."):
                continue
            found = {key: plain for key, plain in PLAIN.items() if hasattr(module, key)}
            found |= {"RANKS": Nobody()} if getattr(module, "RANKS", None) is RANKS else {}
            for key, plain in found.items():
                stack.enter_context(mock.patch.object(module, key, plain))
                places += 1
        yield places


def calls(work: Callable[[], Any]) -> int:
    """Count the calls of a piece of work to the ranks, other than for a number that they hold."""
    count = 0

    def counted(name: str) -> Callable[..., Any]:
        plain = getattr(Ranks, name)

        def ask(*args: Any) -> Any:
            nonlocal count
            count += 1
            return plain(*args)

        return ask

    names = [name for name, found in vars(Ranks).items() if callable(found) and not name.startswith("_")]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(Ranks, name, counted(name)))
        work()
    return count


def main(arguments: list[str] | None = None) -> None:
    """Print every pair, then the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="a", help="as in grpo_step.py")
    parser.add_argument("--repeats", type=int, default=20, help="pairs")
    options = parser.parse_args(arguments)
    workload = Workload(SHAPES[options.shape])
    sides = [Ours(workload) for _ in range(2)]
    places, pairs = 0, []
    for step in range(options.repeats + 1):
        seconds = [0.0, 0.0]
        for side in (0, 1) if step % 2 else (1, 0):
            with without_ranks() if side else contextlib.nullcontext(0) as replaced:
                begin = time.process_time()
                sides[side].step(step)
                seconds[side] = time.process_time() - begin
            places = max(places, replaced)
        print(f"step {step}: {seconds[0]:.3f} s with, {seconds[1]:.3f} s without", file=sys.stderr)
        if step:
            pairs.append(seconds)
    if sides[0].policy.fingerprint() != sides[1].policy.fingerprint():
        raise SystemExit("the two sides have trained other weights")
    asked = calls(lambda: sides[0].step(options.repeats + 1))
    ratio = mean_over_seeds([math.log(having / lacking) for having, lacking in pairs])
    value, low, high = (math.exp(number) for number in ratio)
    medians = [statistics.median(pair[side] for pair in pairs) for side in range(2)]
    print(f"shape {options.shape}, {len(pairs)} pairs; {describe()}")
    print(f"{places} names replaced; a step asks the ranks {asked} times")
    print(
        f"processor time: {medians[0]:.3f} s with, {medians[1]:.3f} s without; "
        f"with / without {value:.4f} [{low:.4f}, {high:.4f}], median of pairs "
        f"{statistics.median(having / lacking for having, lacking in pairs):.4f}"
    )


if __name__ == "__main__":
    main()
