"""Measure the growth of a GRPO step in time and memory, along one dial at a time: a table and a picture.

    python lab/benchmarks/growth.py                                # all dials; ten minutes on two cores
    python lab/benchmarks/growth.py --dial completion --most 2048
    python lab/benchmarks/growth.py --picture docs/growth.png --json growth.json

The model is that of shape (a) of `grpo_step.py`: width 192, 4 layers, one token per byte; one dial takes that of (g).
Every point has its own process: a step that warms up, then the faster of two; a step that takes longer than LONG_S is
run once. The exponent of a dial is the slope of
log seconds over log dial in its upper half. Beside it is that of the arithmetic: products with weights as
`workload.necessary_work` counts them, and products of attention, 4 d operations for each token and each one that it
sees when sampled, 12 d when trained.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from machine import describe, forget_peak, peak_bytes, resident_bytes
from sides import Ours
from workload import SHAPES, Shape, StepPlan, Workload, count_parameters, necessary_work

from groupwise.models.loading import quiet_transformers

BASE = replace(SHAPES["a"], name="growth", num_prompts=8, group_size=8)
DIALS: dict[str, dict[int, Shape]] = {
    "group": {n: replace(BASE, group_size=n) for n in (4, 8, 16, 32, 64)},
    "prompts": {n: replace(BASE, num_prompts=n) for n in (4, 8, 16, 32, 64)},
    "completion": {n: replace(BASE, num_prompts=1, max_tokens=n) for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192)},
    "vocabulary": {n: replace(BASE, vocabulary=n) for n in (263, 1024, 4096, 16384, 65536, 151936)},
    "width": {n: replace(BASE, width=n, intermediate=3 * n) for n in (64, 128, 256, 512, 1024)},
    "completion, large": {n: replace(SHAPES["g"], max_tokens=n) for n in (256, 512, 1024)},
}
MEANINGS = {
    "group": "completions per prompt, 8 prompts",
    "prompts": "prompts, 8 completions each",
    "completion": "most tokens per completion, 1 prompt × 8",
    "vocabulary": "tokens in the vocabulary",
    "width": "width of the model",
    "completion, large": "most tokens, 2 prompts × 8, 42 M",
}
LONG_S = 20.0
"""Seconds of a step beside which what the first one has to set up is small."""
REFERENCE = 256
"""Tokens of the completions that longer ones are compared with."""


@dataclass(frozen=True)
class Point:
    """A step at one place of a dial."""

    dial: str
    value: int
    generate: float
    """Seconds."""
    train: float
    """Seconds."""
    tokens: int
    """Completion tokens."""
    work: float
    """Floating point operations that a step cannot do without, attention included."""
    memory_mb: float
    """Growth of the resident memory at its peak."""

    @property
    def seconds(self) -> float:
        return self.generate + self.train


def measure(dial: str, value: int) -> Point:
    """Run a point here."""
    workload = Workload(DIALS[dial][value])
    ours = Ours(workload)
    forget_peak()
    before = resident_bytes()
    times = {0: ours.step(0)}
    if times[0].total < LONG_S:
        times = {step: ours.step(step) for step in (1, 2)}
    step, best = min(times.items(), key=lambda item: item[1].total)
    plan = workload.plan(step)
    parameters, layers = count_parameters(ours.policy.model), workload.shape.layers
    work = necessary_work(plan, parameters) + attention_work(plan, workload.shape.width) * layers
    memory = (peak_bytes() - before) / 1e6
    return Point(dial, value, best.generate, best.train, int(plan.lengths.sum()), work, memory)


def attention_work(plan: StepPlan, width: int) -> float:
    """Operations of one layer's attention: sampling reads each pair once, training once forward and twice backward."""
    pairs = sum(
        length * len(prompt) + length * (length + 1) / 2
        for prompt, lengths in zip(plan.prompts, plan.lengths.tolist(), strict=True)
        for length in lengths
    )
    return float(pairs * 4 * width * 4)


def exponent(points: list[Point], what: str) -> float:
    """Slope of log `what` over log value, over the upper half of the dial."""
    upper = points[len(points) // 2 :]
    values = np.log([point.value for point in upper])
    return float(np.polyfit(values, np.log([getattr(point, what) for point in upper]), 1)[0])


def table(points: list[Point]) -> str:
    """Markdown: every point, and the exponents of each dial."""
    lines = [
        "| dial | value | step, s | sampling | training | µs per token | memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for p in points:
        per_token = f"{p.seconds / p.tokens * 1e6:,.0f}"
        cells = (p.dial, f"{p.value:,}", f"{p.seconds:.2f}", f"{p.generate:.2f}", f"{p.train:.2f}", per_token)
        lines.append(f"| {' | '.join(cells)} | {p.memory_mb:,.0f} |")
    lines += ["", "| dial | | time grows with exponent | arithmetic | memory |", "|---|---|---|---|---|"]
    for dial in dict.fromkeys(point.dial for point in points):
        of_dial = [point for point in points if point.dial == dial]
        if len(of_dial) > 2:
            slopes = (f"{exponent(of_dial, what):.2f}" for what in ("seconds", "work", "memory_mb"))
            lines.append(f"| {dial} | {MEANINGS[dial]} | {' | '.join(slopes)} |")
    return "\n".join([*lines, *lengths(points)])


def lengths(points: list[Point]) -> list[str]:
    """Markdown: time per token over that at REFERENCE tokens, and what the operations do not explain of it."""
    lines = []
    for dial in ("completion", "completion, large"):
        by_length = {point.value: point for point in points if point.dial == dial}
        for value in (value for value in by_length if value > REFERENCE and REFERENCE in by_length):
            point, short = by_length[value], by_length[REFERENCE]
            time = point.seconds / point.tokens / (short.seconds / short.tokens)
            work = point.work / point.tokens / (short.work / short.tokens)
            lines.append(f"| {dial} | {value:,} | {time:.2f} | {work:.2f} | {time / work:.2f} |")
    heads = ["", f"| dial | tokens | time per token over {REFERENCE} | operations | beyond |", "|---|---|---|---|---|"]
    return heads + lines if lines else []


def draw(points: list[Point], path: Path) -> None:
    """Seconds and memory over each dial, with what the arithmetic alone would do from the last point down."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    dials = list(dict.fromkeys(point.dial for point in points))
    figure, axes = pyplot.subplots(2, len(dials), figsize=(3.2 * len(dials), 5.2), squeeze=False, sharex="col")
    for column, dial in enumerate(dials):
        of_dial = [point for point in points if point.dial == dial]
        values = [point.value for point in of_dial]
        time, memory = axes[0][column], axes[1][column]
        last = of_dial[-1]
        time.loglog(values, [p.seconds for p in of_dial], "o-", color="#0b5394", label="step")
        time.loglog(values, [p.generate for p in of_dial], ".--", color="#b45f06", label="sampling")
        time.loglog(values, [p.train for p in of_dial], ".--", color="#38761d", label="training")
        ideal = [last.seconds * p.work / last.work for p in of_dial]
        time.loglog(values, ideal, ":", color="#777777", label="arithmetic")
        memory.loglog(values, [p.memory_mb for p in of_dial], "o-", color="#741b47")
        time.set_title(dial, fontsize=11)
        memory.set_xlabel(MEANINGS[dial], fontsize=8)
        for axis in (time.yaxis, memory.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        memory.set_xticks(values[:: -(-len(values) // 5)], minor=False)
        memory.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        memory.xaxis.set_minor_formatter(NullFormatter())
    axes[0][0].set_ylabel("seconds")
    axes[1][0].set_ylabel("memory, MB")
    axes[0][0].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dial", choices=[*DIALS], action="append", help="only this one; repeatable")
    parser.add_argument("--most", type=int, default=1 << 62, help="leave larger values out")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's own choice)")
    parser.add_argument("--picture", type=Path, help="write a picture to this file")
    parser.add_argument("--json", type=Path, help="write the points to this file")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    quiet_transformers()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.point:
        print(json.dumps(asdict(measure(options.point[0], int(options.point[1])))))
        return
    points = []
    for dial in options.dial or DIALS:
        for value in (value for value in DIALS[dial] if value <= options.most):
            command = [sys.executable, __file__, "--point", dial, str(value)]
            command += ["--threads", str(torch.get_num_threads())]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{dial} {value}: left out, {done.stderr.splitlines()[-1]}", file=sys.stderr)
                continue
            points.append(Point(**json.loads(done.stdout.splitlines()[-1])))
            seconds = points[-1].seconds
            print(f"{dial} {value}: {seconds:.2f} s, {points[-1].memory_mb:.0f} MB", file=sys.stderr, flush=True)
    print(f"{describe()}\n\n{table(points)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")
    if options.picture:
        draw(points, options.picture)


if __name__ == "__main__":
    main()
