"""Stage `budget`: what test-time compute is worth, by a stage's model and with reward models that stages trained.

It is `groupwise budget` (docs/test_time_compute.md) inside of a pipeline. Every figure is kept by method and budget,
and beside each search what choosing among whole completions makes of the same number of sampled tokens.
"""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from groupwise.artifacts import ModelRef, RewardModelRef, label
from groupwise.config import ReadIf
from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.budget import identity, measure_pooled, reward_models
from groupwise.evaluation.test_time.pool import Sampler, check_budgets
from groupwise.evaluation.test_time.result import FACTS, BudgetResult
from groupwise.evaluation.test_time.settings import SEARCHES, BudgetConfig
from groupwise.models.policy import load_policy
from groupwise.pipeline.base import ComputeConfig, Made, Stage, Workplace
from groupwise.pipeline.directory import content_hash
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.types import Split
from groupwise.verifiers import make_verifier


class BudgetStageConfig(BudgetConfig):
    """Settings of the stage: those of `groupwise budget`, and what it is asked about."""

    task: TaskOptions
    """Whose problems are asked; a name in `tasks`."""
    model: ComputeConfig
    """How the model computes."""
    sampling: SamplingConfig
    """How completions are drawn."""
    path: ModelRef
    """The model that answers, for example `{base}`."""
    prm: RewardModelRef = ""
    """A process reward model, for example `{prm}`; empty: no method by it."""
    reference: Annotated[ModelRef, ReadIf(lambda config: bool(config.prm), "a prm")] = ""
    """The model that an implicit one was trained from; empty: it has a head."""
    orm: RewardModelRef = ""
    """An outcome reward model; empty: no method by it."""
    split: Split = "test"
    """Whose problems."""
    num_problems: int = Field(100, ge=1)
    """Problems, the first of the split."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        self.chosen(bool(self.prm), bool(self.orm))
        try:
            check_budgets(self.budgets, self.samples)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.task.template.chat and (self.prm or self.orm):
            raise ValueError("task.template.chat = true: a reward model of steps reads plain prompts; allowed is false")
        return self


class Budget(Stage[BudgetStageConfig]):
    """Samples, searches, scores; what is there is not done again."""

    Config = BudgetStageConfig
    makes = "data"

    def run(self, settings: BudgetStageConfig, work: Workplace) -> Made:
        task = make_task(settings.task)
        problems = split_problems(task, settings.split, settings.num_problems)
        scorers = reward_models(settings.prm or None, settings.orm or None, settings.step, settings.reference)
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            policy = load_policy(settings.model.at(settings.path))
            sampler = Sampler(
                Actors.of(policy, task.template, verifier), settings.sampling,
                Draws(settings.seed, Purpose(settings.split)), work.directory.path / "budget",
                identity(policy, task.template, task.verifier_config, problems), work.progress,
            )  # fmt: skip
            asked = {
                "checkpoint": label(self.config.path), "prm": label(self.config.prm), "orm": label(self.config.orm),
                "task": task.name,
            }  # fmt: skip
            result = measure_pooled(sampler, scorers, settings, problems, asked)
        facts = result.directory / FACTS
        return Made(facts, content_hash(facts), statistics=figures(result))


def figures(result: BudgetResult) -> dict[str, Any]:
    """Accuracy and sampled tokens by method and budget, and `best_of_n at the tokens of` each search."""
    found: dict[str, Any] = {"problems": len(result.problems), "accuracy": {}, "tokens": {}, "equal tokens": {}}
    for one in result.points:
        budget = str(one.budget)
        found["accuracy"].setdefault(one.method, {})[budget] = round(one.accuracy.value, 6)
        found["tokens"].setdefault(one.method, {})[budget] = round(one.policy_tokens, 2)
        if one.method.startswith(SEARCHES):
            rivals = {other.method for other in result.points if other.method.startswith(("best_of_n/", "majority"))}
            same = {name: result.at_tokens(name, one.policy_tokens) for name in sorted(rivals)}
            known = {name: round(value, 6) for name, value in same.items() if value is not None}
            found["equal tokens"].setdefault(one.method, {})[budget] = known
    return found
