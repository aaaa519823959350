"""Time the same GRPO steps in two checkouts, taking turns: whether a change made a step slower.

    git worktree add ../before v0.1.0
    python lab/benchmarks/before_after.py ../before . --shape a --repeats 20

Each side is a process of its own with its own sources and its own `sides.py`; the one whose turn it is not
waits. A busy machine slows both sides of a pair, so only the ratio means something: after over before, as the geometric
mean over all pairs with Student's 95 % interval. The first pair is a warm-up and not counted.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

from machine import describe

from groupwise.algorithms.statistics import mean_over_seeds

PARTS = ("total", "generate", "train")
SIDE = """
import json, sys, time
from sides import Ours
from workload import SHAPES, Workload

shape, *parts = sys.argv[1:]
workload = Workload(SHAPES[shape])
begin = time.perf_counter()
ours = Ours(workload)
print(time.perf_counter() - begin, flush=True)
for line in sys.stdin:
    seconds = ours.step(int(line))
    print(json.dumps({part: getattr(seconds, part) for part in parts}), flush=True)
"""
"""A side's program: it writes the seconds of its start, then reads numbers of steps and writes each one's seconds."""


class Side:
    """A checkout in a process of its own."""

    def __init__(self, checkout: Path, shape: str) -> None:
        paths = os.pathsep.join(str((checkout / folder).resolve()) for folder in ("src", "lab/benchmarks"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", SIDE, shape, *PARTS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
        )
        self.checkout = checkout
        self.start = float(self._read())
        """Seconds that it took to make the model ready."""

    def step(self, number: int) -> dict[str, float]:
        """Seconds of each part of a step."""
        assert self.process.stdin is not None
        print(number, file=self.process.stdin, flush=True)
        seconds: dict[str, float] = json.loads(self._read())
        return seconds

    def close(self) -> None:
        """End the process."""
        with self.process:
            self.process.kill()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the side of {self.checkout} ended with exit code {self.process.wait()}; see above")
        return line


def main(arguments: list[str] | None = None) -> None:
    """Print every pair, then the medians and the ratio of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--shape", default="a", help="as in grpo_step.py")
    parser.add_argument("--repeats", type=int, default=20, help="pairs")
    options = parser.parse_args(arguments)
    sides = [Side(checkout, options.shape) for checkout in (options.before, options.after)]
    pairs = []
    for step in range(options.repeats + 1):
        pair = [side.step(step) for side in sides]
        print(f"step {step}: {pair[0]['total']:.2f} s before, {pair[1]['total']:.2f} s after", file=sys.stderr)
        if step:
            pairs.append(pair)
    for side in sides:
        side.close()
    print(f"shape {options.shape}, {len(pairs)} pairs; {describe()}")
    print(f"   start: {sides[0].start:.1f} s before, {sides[1].start:.1f} s after")
    for part in PARTS:
        before, after = ([pair[i][part] for pair in pairs] for i in range(2))
        ratio = mean_over_seeds([math.log(b / a) for a, b in zip(before, after, strict=True)])
        medians = f"{statistics.median(before):.3f} s before, {statistics.median(after):.3f} s after"
        value, low, high = (math.exp(number) for number in ratio)
        print(f"{part:>8}: {medians}; after / before {value:.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
