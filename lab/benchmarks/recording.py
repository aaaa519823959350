"""Measure the cost of recording a step: processor time of the record, beside that of the step that it describes.

    python lab/benchmarks/recording.py
    python lab/benchmarks/recording.py --steps 40 --set record.after_every=1

In one and the same step, so that both see the same machine: processor time of sampling, verdicts and update, and that
of the record (completions, index, statistics) of it. Printed: the share, with its 95 % interval over steps after the
first, and the bytes on disk for each token. `--set record.every=0` leaves the statistics alone.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from machine import describe

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.models.loading import quiet_transformers
from groupwise.trainers import load_recipe, rl, train
from groupwise.trainers.record import Recorder, distributions
from groupwise.trainers.report import StepReport, StepResult

QUIET = ("evaluation.every=1000000", "evaluation.num_problems=1", "evaluation.test_problems=0")


def main() -> None:
    """Run, and print what the record took of every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    options = parser.parse_args()
    quiet_transformers()
    spent: list[float] = []
    shares: list[float] = []
    original = Recorder.step, rl.distributions
    began = 0.0

    def recorded(self: Recorder, step: int, result: StepResult, budget: int) -> Any:
        nonlocal began
        began = time.process_time()
        return original[0](self, step, result, budget)

    def summarised(result: StepResult, after: Any) -> Any:
        found = distributions(result, after)
        spent.append(time.process_time() - began)
        return found

    def on_report(report: Any) -> None:
        if isinstance(report, StepReport):
            shares.append(spent[-1] / report.processor_s)

    Recorder.step, rl.distributions = recorded, summarised  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        changes = [*QUIET, f"run.num_steps={options.steps}", "run.checkpoint_every=1000000", *options.set]
        recipe = load_recipe(Path("recipes/arithmetic.toml"), [*changes, f"run.directory={folder}/run"])
        run = train(recipe, on_report=on_report)
        size = sum(path.stat().st_size for path in Path(folder).glob("run/rollouts/step-*"))
        tokens = sum(line["kept_tokens"] for line in run.metrics() if line["kind"] == "step")
    value, low, high = mean_over_seeds(shares[1:])
    print(describe())
    print(f"{len(spent)} steps, record {1000 * median(spent):.1f} ms of processor time a step (median)")
    print(f"  share of the step: mean {value:.2%} [{low:.2%}, {high:.2%}], median {median(shares[1:]):.2%}")
    print(f"  {size / tokens:.0f} bytes a token on disk")


if __name__ == "__main__":
    main()
