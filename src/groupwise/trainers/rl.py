"""Training by reinforcement: what an algorithm brings, its step, and the loop around it."""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from groupwise.checks.audit.verifier import quick_audit
from groupwise.errors import ConfigError
from groupwise.evaluation.evaluate import open_second
from groupwise.models.policy import Policy, start_policy
from groupwise.models.prompts import refuse_controls
from groupwise.models.reward_model import RewardModel
from groupwise.models.sharded import sharded
from groupwise.ranks.group import RANKS
from groupwise.rollout.engine import Recorded
from groupwise.rollout.sample_and_score import Actors
from groupwise.runs.directory import RunDirectory
from groupwise.runs.rollouts import read_columns
from groupwise.tasks import make_task
from groupwise.tasks.base import split_problems
from groupwise.trainers.base import OnReport, Trainer, load_reference
from groupwise.trainers.report import StepResult
from groupwise.trainers.reward_part import check_problems, load_reward_models, with_reward_model_parts
from groupwise.trainers.rl_recipe import RlRecipe
from groupwise.trainers.rl_run import RlRun
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Beside, Session, Start
from groupwise.training.update import CriticLoss, Updater
from groupwise.types import Problem, ScoredGroup, TurnRecord
from groupwise.verifiers import Verifier, make_verifier


@dataclass(frozen=True, slots=True)
class Learner(ABC):
    """The parts of a run; an algorithm adds its own, and its step."""

    actors: Actors
    reference: Policy | None
    reward_models: Mapping[str, RewardModel]
    optimizer: Optimizer
    recipe: RlRecipe

    @classmethod
    def of(cls, recipe: RlRecipe, policy: Policy, verifier: Verifier, optimizer: Optimizer, **own: Any) -> Self:
        """Load what the recipe names; the frozen reference where it has a KL term."""
        actors = Actors.of(policy, recipe.task.template, verifier, recipe.engine)
        reference = load_reference(recipe.model, recipe.lora, policy) if recipe.loss.kl_coef > 0 else None
        reward_models = load_reward_models(recipe.reward_models, recipe.model)
        return cls(actors, reference, reward_models, optimizer, recipe, **own)

    @property
    def policy(self) -> Policy:
        return self.actors.policy

    @property
    def critic_loss(self) -> CriticLoss | None:
        return None

    @property
    def beside(self) -> Beside | None:
        return self.critic_loss.critic if self.critic_loss else None

    @property
    def updater(self) -> Updater:
        sampling = self.recipe.sampling
        return Updater(
            self.policy, self.optimizer, self.recipe.loss, sampling.temperature, sampling.max_tokens, self.reference,
            self.critic_loss,
        )  # fmt: skip

    @abstractmethod
    def step(self, step: int, problems: Sequence[Problem], spare: Sequence[Problem] = ()) -> StepResult:
        """One step on these problems; `spare` ones may replace those whose groups have no signal."""

    def rewarded(self, scored: Sequence[ScoredGroup], step: int) -> list[ScoredGroup]:
        recipe = self.recipe
        if not self.reward_models:
            return list(scored)
        return with_reward_model_parts(scored, self.reward_models, recipe.reward_models, recipe.task.template, step)

    def publish(self) -> None:
        self.actors.publish(self.optimizer.updates_done)

    def with_results(self, run: RunDirectory, step: int) -> Self:
        """Return the learner of a step that may have been recorded before, whose tools are then not asked again."""
        if not self.recipe.needs_records:
            return self
        return replace(self, actors=replace(self.actors, recorded=recorded_results(run.rollouts(step))))


def recorded_results(path: Path) -> dict[str, tuple[Recorded, ...]]:
    """Read the completions of a file of rollouts, by problem; empty where there is no file, or it has no tokens.

    With them a step is sampled again without its tools and its environment: in a replay, and after a kill.
    """
    if not path.exists():
        return {}
    completions_of: dict[str, list[Recorded]] = defaultdict(list)
    columns = ["problem", "token_ids", "sampled", "turns", "finish_reason"]
    for row in read_columns(path, columns).to_pylist():
        if row["token_ids"] is None:
            return {}
        ids = np.array(row["token_ids"], np.int64)
        sampled = np.ones(len(ids), np.bool_) if row["sampled"] is None else np.array(row["sampled"], np.bool_)
        turns = tuple(TurnRecord(*turn) for turn in json.loads(row["turns"] or "[]"))
        completions_of[row["problem"]].append(Recorded(ids, sampled, turns, row["finish_reason"]))
    return {problem: tuple(completions) for problem, completions in completions_of.items()}


MakeLearner = Callable[[Any, Policy, Verifier], Learner]
"""(recipe, policy, verifier) -> learner."""


def train_rl(
    recipe: RlRecipe, make_learner: MakeLearner, restart: bool = False, on_report: OnReport = lambda report: None
) -> Session:
    """Run a recipe, or resume an interrupted run; returns the session, whose policy is the trained one."""
    task = make_task(recipe.task)
    with (
        make_verifier(recipe.verifier) as verifier,
        open_second(recipe.evaluation.second_verifier, task, recipe.verifier) as second,
    ):
        problems = split_problems(task, "train", None)
        verifier.check([*problems, *split_problems(task, "dev", None)], task.template)
        verifier.begin(recipe.run.num_steps)
        task.validate(verifier.verify, must_accept=verifier.accepts_references)
        quick_audit(task, verifier)
        check_problems(recipe.reward_models, problems)
        if recipe.batch.prompts_per_step > len(problems):
            raise ConfigError(
                f"{recipe.algorithm}.prompts_per_step = {recipe.batch.prompts_per_step} is more than the "
                f"{len(problems)} training problems"
            )
        if RANKS.size > recipe.batch.prompts_per_step:
            raise ConfigError(
                f"{RANKS.size} ranks are more than {recipe.algorithm}.prompts_per_step = "
                f"{recipe.batch.prompts_per_step}: every rank samples at least one problem of a step"
            )
        start = Start(recipe, recipe.run, restart)
        policy = sharded(start_policy(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True))
        for problem in [*problems, *split_problems(task, "dev", None)]:  # now, not at a later step
            refuse_controls(policy.tokenizer, problem.messages or problem.question, f"the prompt of {problem.id}")
        learner = make_learner(recipe, policy, verifier)
        session = start.begin(policy, learner.optimizer, learner.beside)
        learner.publish()
        run = RlRun(recipe, task, learner.actors, second, session, on_report)
        run.evaluate_start()
        for step in session.steps():
            chosen, spare = run.choose(problems, step)
            run.plan_ahead(problems, step)
            run.record(step, learner.with_results(session.directory, step).step(step, chosen, spare))
            if (step + 1) % recipe.evaluation.every == 0 or run.is_last(step):
                run.evaluate_dev(step + 1)
            run.examine()
        if not session.stopping and recipe.evaluation.test_problems:
            run.evaluate_test()
        session.finish()
    return session


@dataclass(frozen=True, slots=True)
class RlTrainer(Trainer):
    """A trainer whose algorithm brings a step, and whose loop, evaluation and record are `train_rl`."""

    learner: MakeLearner = field(kw_only=True)


def rl_trainer(
    recipe: type[RlRecipe], learner: MakeLearner, trained_beside: Callable[[Any], tuple[str, ...]] = lambda recipe: ()
) -> RlTrainer:
    """Make the trainer of an algorithm that learns by reinforcement."""
    return RlTrainer(
        recipe,
        lambda settings, restart, on_report: train_rl(settings, learner, restart, on_report),
        epochs=lambda settings: int(settings.loss.epochs),
        trained_beside=trained_beside,
        learner=learner,
    )
