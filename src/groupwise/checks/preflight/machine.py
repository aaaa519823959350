"""The machine: memory and disk that the recipe will need, and who else uses the processor."""

import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.memory import MIB, MemoryPlan, plan
from groupwise.checks.preflight.bench import Bench, Check, Checked, finding
from groupwise.models.activations import available_memory
from groupwise.models.cores import CoreMeter
from groupwise.models.loading import SLOW, bfloat16_cost, device_of
from groupwise.runs.directory import environment
from groupwise.trainers import trainer_of
from groupwise.trainers.rl_recipe import RlRecipe

TIGHT = 0.8  # share of what is free from which on a need is worth a warning
BUSY = 0.5  # cores in use by other programs that are worth a warning
CHARACTERS_PER_TOKEN = 4  # for a guess at a prompt's length before a tokenizer is loaded
BYTES_PER_TOKEN = {"all": 48, "sampled": 32, "none": 26}
"""Bytes per token of recorded completions, by record.tokens: the demo's files have 34 to 44, and texts."""
LOOK_S = 0.3


def machine(bench: Bench) -> Checked:
    """Plan memory and disk from the recipe and the model's configuration, without loading it."""
    recipe, template, host = bench.recipe, bench.task.template, environment()
    longest = max(len(template.render(problem) + template.prefill) for problem in bench.problems("train"))
    memory = plan(recipe, max(1, -(-longest // CHARACTERS_PER_TOKEN)))
    free = available_memory(torch.device(device_of(recipe.model)))
    folder = Path(recipe.run.directory).resolve()
    disk, room = _disk(bench), shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.is_dir())).free
    meter = CoreMeter()
    time.sleep(LOOK_S)
    others, cores = meter.others(), meter.num_cores or os.cpu_count() or 1
    figures: dict[str, Any] = {
        "processor": host["processor"], "cores": cores, "threads": recipe.model.num_threads or torch.get_num_threads(),
        "gpu": host["gpu"], "torch": host["versions"]["torch"], "cores in use by others": round(others, 1),
        "planned memory MiB": round(memory.peak / MIB),
        "free memory MiB": round(free / MIB) if math.isfinite(free) else None,
        "planned disk MiB": round(disk / MIB), "free disk MiB": round(room / MIB),
    }  # fmt: skip
    findings = [*_memory(recipe, memory, free)]
    if disk > TIGHT * room:
        findings.append(finding(
            Severity.CRITICAL if disk > room else Severity.WARNING,
            f"completions and checkpoints take up to {disk / MIB:,.0f} MiB, {room / MIB:,.0f} MiB are free where "
            f"{recipe.run.directory} will be",
            "The disk is full before the run's end; what was done until then resumes." if disk > room
            else "Little is left for others.",
            Advice("run.directory", "a larger disk; or record.tokens = 'none', or fewer run.keep_checkpoints"),
        ))  # fmt: skip
    if others >= BUSY and device_of(recipe.model) == "cpu":
        findings.append(finding(
            Severity.NOTE, f"other programs use {others:.1f} cores", "Steps take longer than the figures below say of "
            "a machine of one's own.", Advice("", "wait for them, or end them"),
        ))  # fmt: skip
    is_rounded = recipe.model.compute_dtype == "bfloat16" and device_of(recipe.model) == "cpu"
    if is_rounded and (cost := bfloat16_cost()) > SLOW:
        findings.append(finding(
            Severity.WARNING, f"a product in bfloat16 takes {cost:.1f} times as long as in float32 here",
            "Every step takes longer than it must.", Advice("model.compute_dtype", "'float32'"),
        ))  # fmt: skip
    return Checked(figures, tuple(findings))


def _disk(bench: Bench) -> int:
    """Return the bytes of all completions at their longest, and of the checkpoints that are there at one time."""
    recipe = bench.recipe
    run, batch, evaluation, record = recipe.run, recipe.batch, recipe.evaluation, recipe.record
    of_weight = torch.finfo(getattr(torch, recipe.model.weights_dtype)).bits // 8
    models = 1 + len(trainer_of(recipe).trained_beside(recipe))
    checkpoint = bench.size.total * (of_weight + 2 * 4 + (4 if of_weight < 4 else 0)) * models
    kept = min(run.keep_checkpoints, 1 + run.num_steps // run.checkpoint_every) + 2
    groups = min(record.groups or batch.prompts_per_step, batch.prompts_per_step)
    steps = -(-run.num_steps // record.every) if record.every else 0
    trained = steps * groups * batch.group_size
    dev = (2 + run.num_steps // evaluation.every) * evaluation.num_problems * evaluation.num_samples
    test = 2 * evaluation.test_problems * evaluation.test_samples
    tokens = (trained + dev + test) * recipe.sampling.max_tokens
    return int(kept * checkpoint + tokens * BYTES_PER_TOKEN[record.tokens])


def _memory(recipe: RlRecipe, memory: MemoryPlan, free: float) -> Iterator[Finding]:
    level = Severity.CRITICAL if memory.peak > free else Severity.WARNING if memory.peak > TIGHT * free else None
    if level is None:
        return
    phase = memory.sampling if sum(memory.sampling.values()) > sum(memory.training.values()) else memory.training
    parts = {**memory.weights, **phase}
    largest = max(parts, key=lambda name: parts[name])
    change = {
        "keys and values": Advice("sampling.max_live_completions", f"{recipe.sampling.max_live_completions // 2}"),
        "activations": Advice("model.activation_checkpointing", "on; or a smaller loss.tokens_per_micro_batch"),
    }.get(largest, Advice("model.path", "a smaller model, or model.weights_dtype = 'bfloat16'"))
    yield finding(
        level,
        f"a step needs about {memory.peak / MIB:,.0f} MiB, {free / MIB:,.0f} MiB are free; the largest part is "
        f"{largest} with {parts[largest] / MIB:,.0f} MiB",
        "The system ends the run, or pages it to a crawl." if level is Severity.CRITICAL
        else "Little is left for others.",
        change,
    )  # fmt: skip


MACHINE = Check(
    name="machine", says="memory and disk against what is free, and who else uses the processor", cost="free",
    run=machine, source="`--memory`, whose error lab/benchmarks/memory.py measures; bytes of the demo's files",
)  # fmt: skip
