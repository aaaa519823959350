"""Before a model is loaded: settings that contradict each other, and what the machine must bear."""

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
from groupwise.checks.preflight.bench import Bench, Checked, check, finding
from groupwise.config.places import Place
from groupwise.models.activations import available_memory
from groupwise.models.cores import CoreMeter
from groupwise.models.loading import SLOW, bfloat16_cost, device_of
from groupwise.runs.directory import environment
from groupwise.trainers import trainer_of
from groupwise.trainers.base import Recipe
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.rl_recipe import RlRecipe

MANY_EPOCHS = 20  # passes over the training problems from which on they are learnt by heart rather than from


@check("settings", "free", says="settings that contradict each other, or reward something else than is meant",
       source="DeepSeekMath §4.1.3 (arXiv:2402.03300) for padding; the rest is counted from the recipe")  # fmt: skip
def settings(bench: Bench) -> Checked:
    """Check the recipe alone."""
    recipe = bench.recipe
    problems = len(bench.problems("train"))
    passes = recipe.batch.prompts_per_step * recipe.run.num_steps / max(1, problems)
    findings = [*schedule(recipe), *_advantage(recipe)]
    config = recipe.verifier
    parts = {name: part.weight for name, part in config.parts.items() if part.gate == "always" and part.weight > 0}
    if config.format_reward > 0:
        parts["format"] = config.format_reward
    total = min(sum(parts.values()), config.cap_wrong if config.cap_wrong is not None else float("inf"))
    if parts and total >= config.correct_reward:
        findings.append(finding(
            Severity.WARNING,
            f"parts that are paid without a correct answer earn up to {total:g} "
            f"({', '.join(f'{name} {weight:g}' for name, weight in parts.items())}), a correct answer earns "
            f"{config.correct_reward:g}",
            "A wrong answer in good style is worth as much as a right one: style may be all that is learnt.",
            Advice("verifier.cap_wrong", f"below {config.correct_reward:g}, or gate = 'correct' for the parts"),
        ))  # fmt: skip
    findings += _rhythm(recipe)
    if passes > MANY_EPOCHS:
        findings.append(finding(
            Severity.WARNING, f"{problems} training problems are seen {passes:.0f} times each",
            "The policy will learn these problems by heart: training rises, dev does not.",
            Advice("run.num_steps", f"at most {max(1, round(recipe.run.num_steps * MANY_EPOCHS / passes))}, or more "
                   "problems"),
        ))  # fmt: skip
    return Checked({"algorithm": recipe.algorithm, "passes over the problems": round(passes, 2)}, tuple(findings))


def schedule(recipe: Recipe) -> Iterator[Finding]:
    """Yield learning rates under which nothing is learnt."""
    rate, steps = getattr(recipe, "optimizer", None), recipe.run.num_steps
    if rate is not None and rate.lr == 0:
        yield finding(
            Severity.CRITICAL, "optimizer.lr = 0", "No weight will change.", Advice("optimizer.lr", "above 0")
        )
    if rate is not None and rate.warmup_steps >= steps > 1:
        yield finding(
            Severity.WARNING, f"optimizer.warmup_steps = {rate.warmup_steps} of run.num_steps = {steps}",
            f"The learning rate never reaches optimizer.lr = {rate.lr:g}.",
            Advice("optimizer.warmup_steps", f"about {max(1, steps // 20)}"),
        )  # fmt: skip


PADDED = (torch.ones(4), torch.tensor([1.0, 0, 1, 0]), torch.tensor([1.0, 0, 1, 0]), torch.tensor([1.0] * 10 + [0]))
"""Rewards of steps, the outcome last: three right steps, twice a slip, a wrong answer behind ten true idle steps."""


def _advantage(recipe: RlRecipe) -> Iterator[Finding]:
    if not isinstance(recipe, GrpoRecipe):
        return
    kind = recipe.advantage.kind
    if recipe.advantage.reads == "steps":  # DeepSeekMath §4.1.3 pays a sum, so true steps that lead nowhere may earn
        ends = [torch.arange(1, len(rewards) + 1) for rewards in PADDED]
        advantages = recipe.advantage.of_steps(PADDED, ends, [len(rewards) for rewards in PADDED])
        right, padded = float(advantages[0][0]), float(advantages[-1][0])
        if padded > right:
            yield finding(
                Severity.CRITICAL,
                f"with advantage.kind = '{kind}', in a group with one right working of three steps, two "
                f"with a slip, and a wrong answer behind ten true idle steps, the first token of the right one has the "
                f"advantage {right:+.2f} and that of the padded wrong one {padded:+.2f}",
                "Idle true steps such as 1 + 1 = 2 are paid more than a right answer: the policy will learn to pad.",
                Advice("advantage.kind", "'process_min' or 'process_gae', which pay nothing for padding; or "
                       "verifier.steps = 'none' with 'group_mean'"),
            )  # fmt: skip
    is_user_verifier = Place.of(recipe.verifier.kind) is not None
    if recipe.advantage.needs_decided_ends and not recipe.step_rewards.path and is_user_verifier:
        yield finding(
            Severity.WARNING,
            f"advantage.kind = '{kind}' reads its baselines at the ends of steps that {recipe.verifier.kind} says",
            "The gradient is unbiased only if the text up to there decides where a step ends. One that ends where an "
            "equation does, 12=1 before 12=12, knows the next token.",
            Advice("step_rewards.path", "a process reward model, whose steps are read from left to right; or ends "
                   "after which no text can move them"),
        )  # fmt: skip


def _rhythm(recipe: RlRecipe) -> Iterator[Finding]:
    steps, size = recipe.run.num_steps, recipe.batch.group_size
    if recipe.evaluation.every > steps > 1:
        yield finding(
            Severity.NOTE, f"evaluation.every = {recipe.evaluation.every}, run.num_steps = {steps}",
            "Dev is measured before and after the run alone, so no checkpoint between can be the best.",
            Advice("evaluation.every", f"about {max(1, steps // 10)}"),
        )  # fmt: skip
    if recipe.run.checkpoint_every > steps > 20:
        yield finding(
            Severity.WARNING, f"run.checkpoint_every = {recipe.run.checkpoint_every}, run.num_steps = {steps}",
            "A run that is killed begins again from its start.", Advice("run.checkpoint_every", f"about {steps // 10}"),
        )  # fmt: skip
    if isinstance(recipe, GrpoRecipe) and recipe.advantage.needs_rivals and size < 4:
        yield finding(
            Severity.WARNING, f"{recipe.algorithm}.group_size = {size}",
            "A completion is compared with so few others that most groups are all right or all wrong, and the rest is "
            "noise.", Advice(f"{recipe.algorithm}.group_size", "8 or 16"),
        )  # fmt: skip


TIGHT = 0.8  # share of what is free from which on a need is worth a warning
BUSY = 0.5  # cores in use by other programs that are worth a warning
CHARACTERS_PER_TOKEN = 4  # for a guess at a prompt's length before a tokenizer is loaded
BYTES_PER_TOKEN = {"all": 48, "sampled": 32, "none": 26}
"""Bytes per token of recorded completions, by record.tokens: the demo's files have 34 to 44, and texts."""
LOOK_S = 0.3


@check("machine", "free", says="memory and disk against what is free, and who else uses the processor",
       source="`--memory`, whose error lab/benchmarks/memory.py measures; bytes of the demo's files")  # fmt: skip
def machine(bench: Bench) -> Checked:
    """Plan memory and disk from the recipe and the model's configuration, without loading it."""
    recipe, template, host = bench.recipe, bench.task.template, environment()
    longest = max(len(template.render(problem) + template.prefill) for problem in bench.problems("train"))
    memory = plan(recipe, max(1, -(-longest // CHARACTERS_PER_TOKEN)))
    free = available_memory(torch.device(device_of(recipe.model)))
    folder = Path(recipe.run.directory).resolve()
    disk, room = _disk(recipe, memory), shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.is_dir())).free
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


def _disk(recipe: RlRecipe, memory: MemoryPlan) -> int:
    """Return the bytes of all completions at their longest, and of the checkpoints that are there at one time."""
    run, batch, evaluation, record = recipe.run, recipe.batch, recipe.evaluation, recipe.record
    beside = trainer_of(recipe).trained_beside(recipe)
    frozen = {"process reward model"}.difference(beside) | ({"policy"} if recipe.lora else set())  # beside adapters
    checkpoint = sum(part for name, part in memory.weights.items()
                     if name not in frozen and not name.startswith(("reward model ", "servers' ")))  # fmt: skip
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
