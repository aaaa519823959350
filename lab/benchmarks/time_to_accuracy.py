r"""From the same weights: how long do Groupwise and TRL's GRPOTrainer take to a held-out result?

    python lab/benchmarks/time_to_accuracy.py                      # both sides, three seeds; needs TRL
    python lab/benchmarks/time_to_accuracy.py --picture docs/time_to_accuracy.png --json curves.json
    python lab/benchmarks/time_to_accuracy.py --recipe recipes/real/json_short.toml --measure valid --target 0.8 \\
        --whole --every 5 --problems 40                            # a real model with adapters, in bf16

Both sides train the recipe's model: the same problems in the same order, as many prompts and completions a step and
tokens a completion, Dr. GRPO, the same AdamW, rate and schedule, one strictly on-policy update. Where ours computes in
bf16, TRL does by autocast; its adapters are peft's, of the same rank and targets. TRL's reward function asks our
verifier, and its micro-batch is the fastest of `grpo_step.py`. For each seed one side runs after the other; which one
begins alternates. Every few steps the clock stops, the weights are copied, and the same code measures the same held-out
problems, so the time is that of training alone. The draws differ, so the curves do. Compared are the time and the steps
at which the mean of two evaluations in a row has reached the target.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from machine import describe

import groupwise as gw
from groupwise.models.loading import quiet_transformers
from groupwise.models.located import locate
from groupwise.models.policy import start_policy
from groupwise.models.prompts import encode_prompt


@dataclass
class Curve:
    """The accuracy of one side over time."""

    side: str
    seed: int
    seconds: list[float] = field(default_factory=list)
    """Of training alone, at each evaluation."""
    steps: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Sampled until then, for training."""
    accuracy: list[float] = field(default_factory=list)

    def reached(self, target: float) -> int | None:
        """The first evaluation whose mean with the one before is at the target."""
        pairs = zip(self.accuracy, self.accuracy[1:], strict=False)
        return next((i + 1 for i, pair in enumerate(pairs) if sum(pair) / 2 >= target), None)


class Examiner:
    """Measures any weights of the model on the same held-out problems."""

    def __init__(self, recipe: gw.GrpoRecipe, options: argparse.Namespace) -> None:
        self.recipe, self.options = recipe, options
        self.policy = start_policy(recipe.model, recipe.lora, recipe.run.seed)
        self.task = gw.make_task(recipe.task)
        self.problems = self.task.problems("test")[: options.problems]
        self.verifier = gw.make_verifier(recipe.verifier)

    def measure(self, model: Any) -> float:
        """Mean over all problems and two samples each."""
        with torch.no_grad():
            for ours, theirs in zip(trained(self.policy.model), trained(model), strict=True):
                ours.copy_(theirs)
        actors = gw.Actors.of(self.policy, self.task.template, self.verifier, self.recipe.engine)
        draws = gw.Draws(0, gw.Purpose.TEST, 0)
        groups = gw.sample_and_score(actors, self.problems, 2, self.recipe.sampling, draws)
        verdicts = [verdict for group in groups for verdict in group.verdicts if verdict.outcome.judged]
        name = self.options.measure
        return statistics.mean(v.measures[name] if name else float(v.outcome == "correct") for v in verdicts)


def trained(model: Any) -> list[torch.nn.Parameter]:
    """Return the parameters that are trained, in the order of the layers."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class Clock:
    """Adds up training time, and stops it for evaluations."""

    def __init__(self, curve: Curve, examiner: Examiner) -> None:
        self.curve, self.examiner, self.spent, self.tokens, self.began = curve, examiner, 0.0, 0, time.perf_counter()

    def start(self) -> None:
        self.began = time.perf_counter()

    def stop(self, steps: int, model: Any) -> None:
        """After so many steps; evaluates when it is time to."""
        self.spent += time.perf_counter() - self.began
        if steps % self.examiner.options.every == 0:
            accuracy = self.examiner.measure(model)
            self.curve.seconds.append(self.spent)
            self.curve.steps.append(steps)
            self.curve.tokens.append(self.tokens)
            self.curve.accuracy.append(accuracy)
            line = f"seed {self.curve.seed} {self.curve.side:9} step {steps:2d} {self.spent:7.1f} s  {accuracy:.3f}"
            print(line, file=sys.stderr, flush=True)
        self.start()

    @property
    def done(self) -> bool:
        options = self.examiner.options
        return not options.whole and self.curve.reached(options.target) is not None


def ours(recipe: gw.GrpoRecipe, examiner: Examiner) -> Curve:
    """Groupwise's own loop, as `examples/own_loop.py` writes it out."""
    from groupwise.trainers.grpo import grpo_learner, grpo_step

    curve = Curve("Groupwise", recipe.run.seed)
    clock, policy = Clock(curve, examiner), start_policy(recipe.model, recipe.lora, recipe.run.seed)
    problems = _ordered(examiner, recipe)
    with gw.make_verifier(recipe.verifier) as verifier:
        learner = grpo_learner(recipe, policy, verifier)
        clock.start()
        clock.stop(0, policy.model)
        for step in range(recipe.run.num_steps):
            size = recipe.grpo.prompts_per_step
            result = grpo_step(learner, step, problems[step * size : (step + 1) * size])
            clock.tokens += sum(int(c.sampled.sum()) for group in result.groups for c in group.scored.group.completions)
            clock.stop(step + 1, policy.model)
            if clock.done:
                break
    return curve


def _ordered(examiner: Examiner, recipe: gw.GrpoRecipe) -> list[Any]:
    """The problems of all steps, in order."""
    everything, size = examiner.task.problems("train"), recipe.grpo.prompts_per_step
    orders = (gw.problem_order(len(everything), size, recipe.run.seed, n)[:size] for n in range(recipe.run.num_steps))
    return [everything[index] for order in orders for index in order]


def trl(recipe: gw.GrpoRecipe, examiner: Examiner) -> Curve:
    """TRL's trainer on the same problems."""
    import datasets
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from groupwise.verifiers import Request

    curve = Curve("TRL", recipe.run.seed)
    clock, tokenizer = Clock(curve, examiner), examiner.policy.tokenizer
    problems = _ordered(examiner, recipe)
    prompts = [encode_prompt(examiner.policy, examiner.task.template, problem) for problem in problems]
    assert all(tokenizer(prompt.text).input_ids == list(prompt.token_ids) for prompt in prompts)
    by_prompt = {prompt.text: prompt.problem for prompt in prompts}
    model = AutoModelForCausalLM.from_pretrained(locate(recipe.model.path).weights, dtype=torch.float32)
    in_bf16 = examiner.policy.compute_dtype is torch.bfloat16
    peft_config = LoraConfig(
        r=recipe.lora.rank, lora_alpha=recipe.lora.alpha, target_modules=recipe.lora.targets, task_type="CAUSAL_LM"
    ) if recipe.lora else None  # fmt: skip

    def reward(prompts: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
        stop = tokenizer.eos_token_id
        clock.tokens += sum(map(len, completion_ids))
        texts = tokenizer.batch_decode([[token for token in ids if token != stop] for ids in completion_ids])
        limit = recipe.sampling.max_tokens
        requests = [
            Request(by_prompt[prompt], text, truncated=len(ids) >= limit and ids[-1] != stop)
            for prompt, text, ids in zip(prompts, texts, completion_ids, strict=True)
        ]
        return [float(verdict.reward or 0.0) for verdict in examiner.verifier.verify_many(requests)]

    class Timer(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.start()
            if state.global_step == 0:
                clock.stop(0, kwargs["model"])

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.stop(state.global_step, kwargs["model"])
            control.should_training_stop = clock.done

    size, micro_batch = recipe.grpo.prompts_per_step * recipe.grpo.group_size, examiner.options.trl_micro_batch
    with tempfile.TemporaryDirectory() as directory:
        config = GRPOConfig(
            output_dir=directory, use_cpu=True, bf16=in_bf16, fp16=False, gradient_checkpointing=False,
            per_device_train_batch_size=micro_batch, gradient_accumulation_steps=size // micro_batch,
            num_generations=recipe.grpo.group_size, max_completion_length=recipe.sampling.max_tokens,
            max_steps=recipe.run.num_steps, shuffle_dataset=False, temperature=recipe.sampling.temperature,
            beta=0.0, num_iterations=1, loss_type="dr_grpo", scale_rewards="none", seed=recipe.run.seed,
            learning_rate=recipe.optimizer.lr, lr_scheduler_type=recipe.optimizer.schedule,
            warmup_steps=recipe.optimizer.warmup_steps, adam_beta1=recipe.optimizer.betas[0],
            adam_beta2=recipe.optimizer.betas[1], weight_decay=0.0, max_grad_norm=recipe.optimizer.max_grad_norm,
            save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": [prompt.text for prompt in prompts]}),
            processing_class=tokenizer,
            callbacks=[Timer()],
            peft_config=peft_config,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return curve


def summary(curves: Sequence[Curve], target: float) -> str:
    """Seconds and steps to the target of each seed and side, and the ratio per seed."""
    lines, ratios = [], []
    for seed in dict.fromkeys(curve.seed for curve in curves):
        seconds = {}
        for curve in (curve for curve in curves if curve.seed == seed):
            if (place := curve.reached(target)) is None:
                lines.append(f"seed {seed} {curve.side}: not reached, {curve.accuracy[-1]:.3f} at the end")
                continue
            seconds[curve.side] = curve.seconds[place]
            lines.append(
                f"seed {seed} {curve.side}: {curve.seconds[place]:.1f} s, {curve.steps[place]} steps, "
                f"{curve.tokens[place]} tokens"
            )
        if len(seconds) == 2:
            ratios.append(seconds["TRL"] / seconds["Groupwise"])
    if ratios:
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(f"TRL's time over ours: median {statistics.median(ratios):.2f} ({each})")
    return "\n".join(lines)


def draw(curves: Sequence[Curve], path: Path, measure: str, target: float) -> None:
    """Draw what was measured over training time, a line per seed and side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.8))
    for curve in curves:
        color = "#0b5394" if curve.side == "Groupwise" else "#b45f06"
        label = curve.side if curve.seed == curves[0].seed else None
        axes.plot(curve.seconds, curve.accuracy, ".-", color=color, label=label, linewidth=1.2)
    axes.axhline(target, color="#999999", linewidth=0.8)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel(f"held-out {measure or 'pass@1'}")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run both sides, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="recipes/arithmetic.toml", help="a recipe of GRPO")
    parser.add_argument("--measure", default="", help="measure of the verifier; default: the share that is right")
    parser.add_argument("--target", type=float, default=0.85, help="value of it that is to be reached")
    parser.add_argument("--whole", action="store_true", help="train all steps, not only to the target")
    parser.add_argument("--every", type=int, default=2, help="steps between two evaluations")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--problems", type=int, default=128, help="held-out problems of an evaluation, two samples each"
    )
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="TRL's completions per forward")
    parser.add_argument("--ours-only", action="store_true", help="leave TRL out")
    parser.add_argument("--picture", type=Path, help="write a picture to this file")
    parser.add_argument("--json", type=Path, help="write curves to this file as they come; those in it are kept")
    options = parser.parse_args()
    quiet_transformers()
    warnings.filterwarnings("ignore")
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    curves = [Curve(**each) for each in kept]
    for seed in options.seeds:
        recipe = gw.load_recipe(options.recipe, {"run.seed": seed})
        assert isinstance(recipe, gw.GrpoRecipe)
        sides = {"Groupwise": ours} if options.ours_only else {"Groupwise": ours, "TRL": trl}
        for side in sorted(sides, reverse=seed % 2 == 1):
            if all((curve.side, curve.seed) != (side, seed) for curve in curves):
                curves.append(sides[side](recipe, Examiner(recipe, options)))
            if options.json:
                options.json.write_text(json.dumps([asdict(curve) for curve in curves], indent=1) + "\n")
    print(f"{describe()}\n{summary(curves, options.target)}")
    if options.picture:
        draw(curves, options.picture, options.measure, options.target)


if __name__ == "__main__":
    main()
