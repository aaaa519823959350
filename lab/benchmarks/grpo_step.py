"""Time one GRPO step of Groupwise and of TRL's GRPOTrainer, alternating, on the same model and the same work.

    python lab/benchmarks/grpo_step.py                          all shapes (TRL needs minutes per step on shape d)
    python lab/benchmarks/grpo_step.py --shape a --repeats 10
    python lab/benchmarks/grpo_step.py --shape d --ours-only    needs no TRL

A step is everything from rendered prompts to updated weights: sample a group per prompt, reward it, one AdamW update.
Both sides start from the same weights, read the same prompts, end every completion at the same token and earn the same
rewards; each checks that it did. After one warm-up step the two take turns in one process: TRL's step, then ours.

Printed per shape: the median of our and of TRL's seconds; the ratio of the two per pair of steps, as median and
[least..most]; our share of the rate at which this machine multiplies large fp32 matrices, measured just before (what is
counted as work is in `workload.necessary_work`); and the peak memory of each side, the growth of its resident memory
from just before its first step (model loaded, trainer built), each in a process of its own over two steps.

TRL runs in fp32 without gradient checkpointing, with transformers' `generate` on the whole batch (its continuous
batching, `--trl-generation continuous`, is the slower on a CPU) and with the micro-batch that trains fastest here: one
step is timed for each of several sizes, and the choice is printed; `--trl-micro-batch` sets it. TRL's own defaults are
slower: `--trl-checkpointing --trl-micro-batch 8` measures those.
"""

import argparse
import importlib.util
import json
import logging
import statistics
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from machine import describe, forget_peak, gemm_rate, peak_bytes, resident_bytes
from sides import Ours, StepTime, TrlSettings, train_trl
from workload import SHAPES, Parameters, Shape, Workload, count_parameters, necessary_work

from groupwise.models.loading import quiet_transformers

MEMORY_STEPS = 2
"""The optimizer's state exists from the end of the first step, so the second is the one that needs most."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one side's process."""

    before: int
    """Resident before its first step."""
    peak: int

    @property
    def growth_mb(self) -> float:
        return (self.peak - self.before) / 1e6


@dataclass(frozen=True)
class Result:
    """One shape, measured."""

    shape: str
    parameters: Parameters
    tokens: list[int]
    """Completion tokens of each step, equal on both sides."""
    work: list[float]
    """Floating point operations of each step."""
    gemm_rate: float
    ours: list[StepTime]
    trl: list[StepTime]
    """Empty without TRL."""
    trl_settings: TrlSettings | None
    ours_memory: Memory | None
    trl_memory: Memory | None

    @property
    def ratios(self) -> list[float]:
        """TRL's time over ours, per pair."""
        return [trl.total / ours.total for ours, trl in zip(self.ours, self.trl, strict=False)]

    @property
    def gemm_share(self) -> float:
        """Median share of the machine's rate."""
        pairs = zip(self.work, self.ours, strict=True)
        return statistics.median(work / ours.total / self.gemm_rate for work, ours in pairs)


def measure(shape: Shape, options: argparse.Namespace) -> Result:
    """Measure one shape."""
    workload = Workload(shape)
    repeats = options.repeats or shape.repeats
    settings = None if options.ours_only else fastest_settings(workload, options)
    sides = ("ours", "trl") if settings else ("ours",)
    memory = {side: _memory(side, shape, settings) for side in sides} if options.memory else {}
    ours, ours_times, trl_times = Ours(workload), [], []
    rate = gemm_rate()
    say(f"{shape.name}: fp32 matrix products at {rate / 1e9:.0f} GFLOP/s")

    def take_turn(step: int, trl: StepTime | None = None) -> None:
        seconds = ours.step(step)
        say(f"{shape.name}: step {step}: {_line('ours', seconds)}" + (f"; {_line('TRL', trl)}" if trl else ""))
        if step:  # step 0 warms up
            ours_times.append(seconds)
            trl_times.extend([trl] if trl else [])

    if settings is None:
        for step in range(repeats + 1):
            take_turn(step)
    else:
        train_trl(workload, repeats + 1, settings, after_step=take_turn)
    ours.check_trained()
    parameters = count_parameters(ours.policy.model)
    plans = [workload.plan(step) for step in range(1, repeats + 1)]
    return Result(
        shape=shape.name,
        parameters=parameters,
        tokens=[int(plan.lengths.sum()) for plan in plans],
        work=[necessary_work(plan, parameters) for plan in plans],
        gemm_rate=rate,
        ours=ours_times,
        trl=trl_times,
        trl_settings=settings,
        ours_memory=memory.get("ours"),
        trl_memory=memory.get("trl"),
    )


def fastest_settings(workload: Workload, options: argparse.Namespace) -> TrlSettings:
    """TRL's settings: the micro-batch given, or that with which training takes least time."""
    continuous, checkpointing = options.trl_generation == "continuous", options.trl_checkpointing
    if options.trl_micro_batch:
        return TrlSettings(options.trl_micro_batch, continuous, checkpointing)
    shape = workload.shape
    part = workload.with_prompts(shape.tuning_prompts)
    rows = part.shape.rows
    train_trl(part.with_prompts(1), 1, TrlSettings(shape.group_size, continuous))  # starts threads, loads code
    seconds: dict[TrlSettings, float] = {}
    for size in sorted({size for size in (8, 16, 32, 64, rows) if rows % size == 0}):
        settings = TrlSettings(size, continuous, checkpointing)
        seconds[settings] = train_trl(part, 1, settings)[0].train
        say(f"{shape.name}: TRL ({settings}): training on {rows} completions takes {seconds[settings]:.2f} s")
    return min(seconds, key=lambda one: seconds[one])


def _memory(side: str, shape: Shape, settings: TrlSettings | None) -> Memory:
    """Peak memory of one side, in a process of its own."""
    command = [sys.executable, __file__, "--shape", shape.name, "--memory-of", side]
    command += ["--threads", str(torch.get_num_threads()), "--ours-only" if side == "ours" else "--no-memory"]
    if settings:
        command += ["--trl-micro-batch", str(settings.micro_batch)]
        command += ["--trl-generation", "continuous" if settings.continuous else "generate"]
        command += ["--trl-checkpointing"] if settings.checkpointing else []
    say(f"{shape.name}: peak memory of {side}, {MEMORY_STEPS} steps")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def own_memory(options: argparse.Namespace) -> Memory:
    """Run a few steps of one side here and see how much memory they take."""
    workload = Workload(SHAPES[options.shape])
    before = 0

    def begin() -> None:
        nonlocal before
        forget_peak()
        before = resident_bytes()

    if options.memory_of == "trl":
        train_trl(workload, MEMORY_STEPS, fastest_settings(workload, options), before_first=begin)
    else:
        ours = Ours(workload)
        begin()
        for step in range(MEMORY_STEPS):
            ours.step(step)
    return Memory(before, peak_bytes())


def table(results: Sequence[Result]) -> str:
    """One line per shape."""
    head = ["shape", "params", "tokens/step", "ours s/step", "TRL s/step", "ratio [least..most]", "of GEMM"]
    return _aligned([[*head, "peak MB ours/TRL"], *(_cells(result) for result in results)])


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (zip(line, widths, strict=True) for line in lines)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in padded)


def _cells(result: Result) -> list[str]:
    ratio = trl = "-"
    if result.trl:
        ratio = f"{statistics.median(result.ratios):.2f} [{min(result.ratios):.2f}..{max(result.ratios):.2f}]"
        trl = f"{_median(result.trl):.3f}"
    memories = (result.ours_memory, result.trl_memory)
    return [
        result.shape,
        f"{result.parameters.total / 1e6:.2f} M",
        f"{statistics.mean(result.tokens):.0f}",
        f"{_median(result.ours):.3f}",
        trl,
        ratio,
        f"{result.gemm_share:.0%}",
        " / ".join(f"{memory.growth_mb:.0f}" if memory else "-" for memory in memories),
    ]


def split_table(results: Sequence[Result]) -> str:
    """Return the split of the time: median seconds per shape and side."""
    lines = [["shape", "side", "generate", "verify", "train"]]
    for result in results:
        for name, times in (("ours", result.ours), (f"TRL ({result.trl_settings})", result.trl)):
            if times:
                parts = [statistics.median(getattr(t, part) for t in times) for part in lines[0][2:]]
                lines.append([result.shape, name, *(f"{part:.3f}" for part in parts)])
    return _aligned(lines)


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Everything that was measured."""
    rows = []
    for result in results:
        row = asdict(result)
        for side in ("ours", "trl"):
            row[side] = [{**time._asdict(), "train": time.train} for time in getattr(result, side)]
        rows.append({**row, "ratios": result.ratios, "gemm_share": result.gemm_share})
    return {"machine": describe(), "results": rows}


def _median(times: Sequence[StepTime]) -> float:
    return statistics.median(time.total for time in times)


def _line(name: str, seconds: StepTime) -> str:
    return f"{name} {seconds.total:.2f} s (generate {seconds.generate:.2f}, train {seconds.train:.2f})"


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shape", choices=[*SHAPES, "all"], default="all", help="all: a, b, c and d; e, f and g have long completions"
    )
    parser.add_argument("--repeats", type=int, help="measured steps per side (default: 5, 3, 5, 1 for a, b, c, d)")
    parser.add_argument("--ours-only", action="store_true", help="leave TRL out")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure peak memory")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's own choice)")
    parser.add_argument("--trl-micro-batch", type=int, help="TRL's completions per forward (default: the fastest)")
    parser.add_argument(
        "--trl-generation", choices=["generate", "continuous"], default="generate", help="how TRL samples"
    )
    parser.add_argument("--trl-checkpointing", action="store_true", help="TRL's default: gradient checkpointing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to this file")
    parser.add_argument("--memory-of", choices=["ours", "trl"], help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse(arguments)
    if not options.ours_only and importlib.util.find_spec("trl") is None:
        sys.exit("TRL is not installed: `pip install -e .[peers]`, or leave it out with --ours-only")
    quiet_transformers()
    logging.getLogger("trl").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        memory = own_memory(options)
        print(json.dumps(asdict(memory)))
        return
    names = "abcd" if options.shape == "all" else [options.shape]
    results = [measure(SHAPES[name], options) for name in names]
    print(f"{table(results)}\n\n{split_table(results)}\n\n{describe()}")
    if options.json:
        options.json.write_text(json.dumps(as_json(results), indent=1) + "\n")


if __name__ == "__main__":
    main()
