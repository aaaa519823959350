"""Measure the cost of a sink: the same run with and without it, step by step in turns, in one process.

    python lab/benchmarks/sinks.py --sink tensorboard
    python lab/benchmarks/sinks.py --sink wandb --set mode=offline --steps 60

Both runs do the same steps, from the same weights with the same draws; who begins a pair alternates. While the run
without the sink has its turn, the sink's process is stopped, so all its work falls into the other's. Printed: the
ratio of the steps' times, paired, as geometric mean with its 95 % interval and as median, and the same of the first
steps alone, in which the sink's process starts; and the sink's processor time, which noise hardly
touches: what it needs per step, and as a share of the processor time that a step has on all threads. `--sink none`
shows what the method itself finds between equals.
"""

import argparse
import math
import os
import resource
import signal
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import describe

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.models.loading import quiet_transformers
from groupwise.runs import sinks as process
from groupwise.trainers import load_recipe, train
from groupwise.trainers.report import StepReport

QUIET = ("evaluation.every=1000000", "evaluation.num_problems=1", "evaluation.test_problems=0")
FIRST = 10
"""Steps at the beginning in which a sink's process starts."""


class Turns:
    """Lets one of two runs work at a time."""

    def __init__(self, order: list[int]) -> None:
        self._order, self._place, self._changed = order, 0, threading.Condition()

    def wait(self, which: int) -> None:
        """Until it is this one's turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._place >= len(self._order) or self._order[self._place] == which)

    def end(self) -> None:
        """Pass on to the next."""
        with self._changed:
            self._place += 1
            self._changed.notify_all()


def tell_sinks(number: int) -> None:
    """Send a signal to every sink's process and those that it started."""
    for feed in list(process._RUNNING.values()):
        os.killpg(feed.pid, number)


def processor_seconds() -> float:
    """Processor time so far of every sink's process and those that it started."""
    groups = {feed.pid for feed in process._RUNNING.values()}
    stats = [stat.read_text().rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat")]
    ticks = sum(int(stat[11]) + int(stat[12]) for stat in stats if int(stat[2]) in groups)
    return ticks / os.sysconf("SC_CLK_TCK")


def run(which: int, settings: list[str], turns: Turns, seconds: list[float], sink_seconds: list[float]) -> None:
    """Run a recipe, a step at each turn; `seconds` gets their times, `sink_seconds` the sink's processor time."""
    began = 0.0

    def on_report(report: Any) -> None:
        nonlocal began
        if isinstance(report, StepReport):
            seconds.append(time.perf_counter() - began)
            if which:
                sink_seconds.append(processor_seconds())
                tell_sinks(signal.SIGSTOP)
        turns.end()  # also after the evaluation of the start
        turns.wait(which)
        if which:
            tell_sinks(signal.SIGCONT)
        began = time.perf_counter()

    turns.wait(which)
    train(load_recipe(Path("recipes/arithmetic.toml"), settings), on_report=on_report)


def main() -> None:
    """Run both and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sink", default="tensorboard", help="kind of the sink, or `none`")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the sink")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--recipe-set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    options = parser.parse_args()
    quiet_transformers()
    sink = [] if options.sink == "none" else [f"sinks.it.{one}" for one in (f"kind={options.sink}", *options.set)]
    # the start's evaluation, the steps, and what follows the last of them; who begins a pair alternates
    order = [which for pair in range(options.steps + 2) for which in ((0, 1) if pair % 2 else (1, 0))]
    turns, seconds, sink_seconds = Turns(order), [list[float](), list[float]()], list[float]()
    with tempfile.TemporaryDirectory() as folder:
        common = [*QUIET, f"run.num_steps={options.steps}", "run.checkpoint_every=1000000", *options.recipe_set]
        threads = [
            threading.Thread(
                target=run,
                args=(which, [*common, f"run.directory={folder}/{which}", *more], turns, seconds[which], sink_seconds),
            )
            for which, more in enumerate(([], sink))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(describe())
    print(f"{options.sink}: {len(seconds[0])} pairs of steps, median {1000 * median(seconds[0]):.0f} ms without")
    print(f"  processor time of the sink, its start included: {children.ru_utime + children.ru_stime:.1f} s")
    if options.sink != "none" and options.steps > FIRST:
        each = (sink_seconds[-1] - sink_seconds[FIRST - 1]) / (options.steps - FIRST)
        share = each / (median(seconds[0]) * torch.get_num_threads())
        print(f"  after the first {FIRST} steps: {1000 * each:.1f} ms a step, {share:.2%} of what a step may use")
    logs = [math.log(shown / plain) for plain, shown in zip(*seconds, strict=True)]
    for name, part in (("all steps", logs), (f"first {FIRST}", logs[:FIRST]), ("the others", logs[FIRST:])):
        if part:
            value, low, high = (math.exp(x) for x in mean_over_seeds(part))
            print(f"  {name:12} ratio {value:.4f} [{low:.4f}, {high:.4f}], median {math.exp(median(part)):.4f}")


if __name__ == "__main__":
    main()
