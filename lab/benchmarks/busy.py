"""Measure the cost of other programs: steps of a run on a quiet machine and beside others, in turns, in one process.

    python lab/benchmarks/busy.py                                         # the demo's steps
    python lab/benchmarks/busy.py --recipe recipes/reward_model.toml
    python lab/benchmarks/busy.py --recipe recipes/base/second-1.toml --set model.compute_dtype=float32

Beside each step there is nothing, one busy loop, two busy loops, or two programs that multiply matrices on as many
threads as there are cores; the order changes from round to round. Printed: the time over that of the quiet step of the
same round, as median with the least and the most, beside a fair share: T threads of ours and n of others on C cores
slow us down by (T + n) / C where that is above 1, if every thread gets the same.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import describe

from groupwise.models.loading import quiet_transformers
from groupwise.trainers import load_recipe, train
from groupwise.trainers.report import DevReport

LOOP = "while True: pass"
PRODUCTS = "import torch\nx = torch.randn(1500, 1500)\nwhile True: x @ x"
OTHERS = {"quiet": [], "one loop": [LOOP], "two loops": [LOOP] * 2, "two programs": [PRODUCTS] * 2}
QUIET = ("evaluation.every=1000000", "evaluation.num_problems=1", "evaluation.test_problems=0")
STARTED_AFTER_S = 6.0
"""Seconds in which the others have begun their work."""


@contextmanager
def others() -> Iterator[dict[str, list[int]]]:
    """Process ids by name; all are stopped, and go on while they are wanted."""
    ids = {name: [start(code) for code in programs] for name, programs in OTHERS.items()}
    try:
        time.sleep(STARTED_AFTER_S)
        for name in ids:
            tell(ids[name], signal.SIGSTOP)
        yield ids
    finally:
        for name in ids:
            tell(ids[name], signal.SIGKILL)


def start(code: str) -> int:
    """The process id of a program that is no child of ours: what a run starts itself is not another program to it."""
    command = ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable, code]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def tell(ids: list[int], number: int) -> None:
    """Send a signal to processes."""
    for each in ids:
        os.kill(each, number)


def fair_share(name: str) -> float:
    """Return the factor by which a step takes longer if every thread gets the same share of the cores."""
    cores, ours = len(os.sched_getaffinity(0)), torch.get_num_threads()
    theirs = sum(cores if code == PRODUCTS else 1 for code in OTHERS[name])
    return max(1.0, (ours + theirs) / cores)


def measure(recipe: str, settings: list[str], rounds: int, ids: dict[str, list[int]]) -> dict[str, list[float]]:
    """Seconds of the steps by what was beside them."""
    names = list(OTHERS)
    order = [names[(turn + i) % len(names)] for turn in range(rounds + 1) for i in range(len(names))]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    beside: str | None = None
    began = 0.0

    def on_report(report: Any) -> None:
        nonlocal beside, began
        if beside is not None and not isinstance(report, DevReport):
            seconds[beside].append(time.perf_counter() - began)
            tell(ids[beside], signal.SIGSTOP)
            beside = None
        done = sum(map(len, seconds.values()))
        if beside is None and done < len(order):
            beside = order[done]
            tell(ids[beside], signal.SIGCONT)
            began = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        common = [f"run.directory={folder}/run", "run.checkpoint_every=1000000", f"run.num_steps={len(order) + 1}"]
        train(load_recipe(Path(recipe), [*common, *settings]), on_report=on_report)
    return {name: times[1:] for name, times in seconds.items()}  # the first round is a warm-up


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="recipes/arithmetic.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    quiet_transformers()
    settings = [*(QUIET if options.recipe == parser.get_default("recipe") else ()), *options.set]
    with others() as ids:
        seconds = measure(options.recipe, settings, options.rounds, ids)
    print(describe())
    print(f"{options.recipe}: {options.rounds} rounds, quiet {median(seconds['quiet']):.2f} s a step")
    for name, times in seconds.items():
        ratios = [beside / quiet for beside, quiet in zip(times, seconds["quiet"], strict=True)]
        spread = f"[{min(ratios):.2f}, {max(ratios):.2f}]"
        share = f"fair share {fair_share(name):.2f}"
        print(f"  {name:12} {median(times):6.2f} s  {median(ratios):5.2f} x {spread:13} {share}")


if __name__ == "__main__":
    main()
