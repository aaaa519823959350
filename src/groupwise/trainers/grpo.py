"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300).

`grpo_step` is the whole algorithm; `train_grpo` puts the run directory, evaluation and checkpoints around it.
"""

import time
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.algorithms.advantages import ADVANTAGES, group_advantages
from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.models.checkpoint import weight_fingerprint
from groupwise.models.policy import ModelConfig, Policy, load_policy
from groupwise.randomness import permutation
from groupwise.rollout.collect import collect
from groupwise.rollout.evaluate import Evaluation, evaluate
from groupwise.rollout.sampling import SamplingConfig, refuse_for_training
from groupwise.runs.rollouts import write_rollouts
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import Task
from groupwise.trainers.grpo_report import (
    SILENT,
    DevReport,
    Observer,
    Seconds,
    StepResult,
    hash_tokens,
    ledger_group,
    step_report,
)
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.training.session import RunConfig, Session
from groupwise.training.update import LossConfig, update_policy
from groupwise.types import AdvantagedGroup, Problem
from groupwise.verifiers import Verifier, VerifierConfig, check_failures, make_verifier, score


class GrpoConfig(Section):
    """The batch and the baseline."""

    prompts_per_step: int = Field(16, ge=1)
    """Problems per step (DeepSeek-R1-Zero: 32)."""
    group_size: int = Field(16, ge=2)
    """Completions per problem, G (DeepSeekMath: 64; DeepSeek-R1-Zero: 16)."""
    advantage: str = "group_mean"
    """`group_mean` (Dr. GRPO) or `group_normalised` (GRPO: also divides by the group's standard deviation)."""

    @field_validator("advantage")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in ADVANTAGES:
            raise ValueError(f"allowed are {', '.join(ADVANTAGES)}")
        return name


class EvaluationConfig(Section):
    """Evaluation on held-out problems during the run, and once on the test split at its end."""

    every: int = Field(20, ge=1)
    """Steps between two evaluations on the dev split."""
    num_problems: int = Field(100, ge=1)
    """Dev problems (the first of the split)."""
    num_samples: int = Field(4, ge=1)
    """Completions per dev problem."""
    test_problems: int = Field(200, ge=0)
    """Test problems; the test split is opened once, after training, for the start and the best checkpoint. 0: never."""
    test_samples: int = Field(4, ge=1)
    """Completions per test problem."""


class GrpoRecipe(Section):
    """A whole GRPO run."""

    algorithm: Literal["grpo"] = "grpo"
    """Which trainer runs this recipe."""
    run: RunConfig
    """Where, how long, which seed."""
    model: ModelConfig = ModelConfig()
    """The model to start from; also the KL reference."""
    task: TaskOptions
    """Where problems come from."""
    verifier: VerifierConfig = VerifierConfig()
    """How completions are judged."""
    grpo: GrpoConfig = GrpoConfig()
    """The batch and the baseline."""
    sampling: SamplingConfig = SamplingConfig()
    """How completions are drawn, in training and in evaluation."""
    loss: LossConfig = LossConfig()
    """The policy loss."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Dev and test."""

    @field_validator("sampling")
    @classmethod
    def _whole_distribution(cls, sampling: SamplingConfig) -> SamplingConfig:
        return refuse_for_training(sampling)

    @model_validator(mode="after")
    def _enough_groups(self) -> "GrpoRecipe":
        if self.loss.mini_batches > self.grpo.prompts_per_step:
            raise ValueError(
                f"loss.mini_batches = {self.loss.mini_batches} is more than grpo.prompts_per_step = "
                f"{self.grpo.prompts_per_step}: every update needs at least one group"
            )
        return self


def grpo_step(
    step: int,
    problems: Sequence[Problem],
    policy: Policy,
    reference: Policy | None,
    verifier: Verifier,
    optimizer: Optimizer,
    recipe: GrpoRecipe,
) -> StepResult:
    """One step of GRPO: sample groups, verify, compare within the group, update."""
    began = time.perf_counter()
    groups = collect(
        policy, recipe.task.template, problems, recipe.grpo.group_size, recipe.sampling,
        seed=recipe.run.seed, purpose="train", step=step, policy_version=optimizer.updates_done,
    )  # fmt: skip
    sampled = time.perf_counter()
    scored = score(groups, verifier)
    check_failures(scored, recipe.verifier.max_failure_share)
    verified = time.perf_counter()
    advantaged = [AdvantagedGroup(s, group_advantages(s.rewards, recipe.grpo.advantage)) for s in scored]
    update = update_policy(
        policy, optimizer, advantaged, recipe.loss, step=step,
        temperature=recipe.sampling.temperature, max_tokens=recipe.sampling.max_tokens, reference=reference,
    )  # fmt: skip
    seconds = Seconds(sampled - began, verified - sampled, time.perf_counter() - verified)
    return StepResult(advantaged, update, seconds)


def train_grpo(recipe: GrpoRecipe, restart: bool = False, observer: Observer = SILENT) -> Session:
    """Run a GRPO recipe, or go on with an interrupted run; returns the session, whose policy is the trained one."""
    task = make_task(recipe.task)
    with make_verifier(task.verifier, recipe.verifier) as verifier:
        task.validate(verifier.verify)
        problems = _problems(task, "train", None)
        if recipe.grpo.prompts_per_step > len(problems):
            raise ConfigError(
                f"grpo.prompts_per_step = {recipe.grpo.prompts_per_step} is more than the {len(problems)} "
                "training problems"
            )
        session = Session(recipe, recipe.run, restart)
        policy = load_policy(recipe.model.model_copy(update={"path": session.model_path(recipe.model.path)}))
        reference = load_policy(recipe.model).freeze() if recipe.loss.kl_coef > 0 else None
        optimizer = Optimizer(policy.model, recipe.optimizer, recipe.run.num_steps)
        session.attach(policy, optimizer)
        run = _Run(recipe, task, verifier, session, policy, observer)
        run.evaluate_start()
        for step in session.steps():
            chosen = [problems[index] for index in problem_order(len(problems), recipe, step)]
            run.record(step, grpo_step(step, chosen, policy, reference, verifier, optimizer, recipe))
            if (step + 1) % recipe.evaluation.every == 0 or step + 1 == recipe.run.num_steps:
                run.evaluate_dev(step + 1)
        if not session.stopping and recipe.evaluation.test_problems:
            run.evaluate_test()
        session.finish()
    return session


def problem_order(num_problems: int, recipe: GrpoRecipe, step: int) -> list[int]:
    """Problems of a step: each epoch is a keyed shuffle cut into steps.

    The shuffle's remainder is left out of its epoch, so no problem occurs twice in a step.
    """
    size = recipe.grpo.prompts_per_step
    epoch, place = divmod(step, num_problems // size)
    order = permutation(num_problems, recipe.run.seed, "problem order", epoch)
    return [int(index) for index in order[place * size : (place + 1) * size]]


def _problems(task: Task, split: Literal["train", "dev", "test"], most: int | None) -> Sequence[Problem]:
    problems = task.problems(split)
    if not problems:
        raise ConfigError(f"task {task.name} has no {split} problems")
    return problems if most is None else problems[:most]


class _Run:
    """Recording and evaluation around the step."""

    def __init__(
        self, recipe: GrpoRecipe, task: Task, verifier: Verifier, session: Session, policy: Policy, observer: Observer
    ) -> None:
        self.recipe, self.task, self.verifier = recipe, task, verifier
        self.session, self.policy, self.observer = session, policy, observer

    def record(self, step: int, result: StepResult) -> None:
        """Rollouts first, then ledger and metrics, then the display."""
        write_rollouts(self.session.directory.rollouts(step), result.groups)
        report = step_report(step, self.recipe.run.num_steps, result, self.session.optimizer.lr(step))
        facts = {
            "step": step,
            "groups": [ledger_group(group) for group in result.groups],
            "surrogate": result.update.surrogate,
            "grad_norm": result.update.grad_norm,
            "updates": self.session.optimizer.updates_done,
            "weights": weight_fingerprint(self.policy.model),
        }
        self.session.record(facts, {"kind": "step", **report._asdict()})
        self.observer.on_step(report)

    def evaluate_start(self) -> None:
        """Evaluate the starting point, or take up the best result of an interrupted run."""
        best = self.session.facts.get("best")
        if best is None:
            self.evaluate_dev(0)
        else:  # the process may have been killed between a checkpoint and its mark
            self.session.directory.mark_best(best["step"])

    def evaluate_dev(self, done: int) -> None:
        """Evaluate on dev; a new best is checkpointed and marked."""
        config = self.recipe.evaluation
        evaluation = self._evaluate("dev", self.policy, config.num_problems, config.num_samples, f"dev-step-{done:06d}")
        estimate = evaluation.pass_at_1
        best = self.session.facts.get("best")
        is_best = best is None or estimate.value > best["pass_at_1"]
        if is_best:
            self.session.facts["best"] = {"step": done, "pass_at_1": estimate.value}
        self._record_evaluation("dev", done, evaluation, {"best": is_best})
        if is_best:
            self.session.checkpoint(done)
            self.session.directory.mark_best(done)
        self.observer.on_dev(DevReport(done, estimate, is_best))

    def evaluate_test(self) -> None:
        """Open the test split once: the start and the best checkpoint, on the same random numbers."""
        config = self.recipe.evaluation
        paths = {"test-before": self.recipe.model.path, "test-after": str(self.session.directory.best.resolve())}
        for name, path in paths.items():
            policy = load_policy(self.recipe.model.model_copy(update={"path": path}))
            evaluation = self._evaluate("test", policy, config.test_problems, config.test_samples, name)
            self._record_evaluation(name, self.recipe.run.num_steps, evaluation, {})

    def _evaluate(
        self, split: Literal["dev", "test"], policy: Policy, num_problems: int, num_samples: int, name: str
    ) -> Evaluation:
        problems = _problems(self.task, split, num_problems)
        evaluation = evaluate(
            policy, self.task.template, problems, self.verifier, self.recipe.sampling,
            num_samples=num_samples, seed=self.recipe.run.seed, purpose=split,
        )  # fmt: skip
        write_rollouts(self.session.directory.evaluations(name), evaluation.scored)
        return evaluation

    def _record_evaluation(self, kind: str, done: int, evaluation: Evaluation, more: dict[str, Any]) -> None:
        facts = {
            "evaluation": kind,
            "step": done,
            "pass_at_1": list(evaluation.pass_at_1),
            "length": evaluation.mean_length,
            "truncated": evaluation.truncated,
            "tokens": hash_tokens(evaluation.scored),
            **more,
        }
        self.session.record(facts, {"kind": kind, **{k: v for k, v in facts.items() if k != "tokens"}})
