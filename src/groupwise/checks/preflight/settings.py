"""Settings that are allowed and still contradict each other, or what the recipe means."""

from collections.abc import Iterator

import torch

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.preflight.bench import Bench, Check, Checked, finding
from groupwise.config.places import Place
from groupwise.trainers.base import Recipe
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.rl_recipe import RlRecipe

MANY_EPOCHS = 20  # passes over the training problems from which on they are learnt by heart rather than from


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


SETTINGS = Check(
    name="settings", says="settings that contradict each other, or reward something else than is meant", cost="free",
    run=settings, source="DeepSeekMath §4.1.3 (arXiv:2402.03300) for padding; the rest is counted from the recipe",
)  # fmt: skip
