"""Stage `budget`: what more tokens at the time of the answer are worth; `groupwise budget` within a pipeline.

Its rows are the facts of `budget.jsonl`; the samples, scores and searches stay in parts beside them, so a killed stage
goes on where it was and makes the same bytes.
"""

from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf
from groupwise.config.schema import ModelRef, RewardModelRef, label
from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.budget import RewardModels, Subject, measure
from groupwise.evaluation.test_time.result import BudgetResult
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.models.config import ModelConfig
from groupwise.pipeline.base import ComputeConfig, Made, Stage, Workplace
from groupwise.pipeline.directory import write_rows
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.types import Split

_IMPLICIT = ReadIf(lambda config: bool(config.reference), "reference")
_MODELS = {"checkpoint": "path", "prm": "prm", "orm": "orm"}
FIGURES = "budget"
"""Folder of the figures, as `groupwise budget` writes them."""


class BudgetStageConfig(BudgetConfig):
    """Settings of the stage."""

    task: TaskOptions
    """Whose problems are answered; a name in `tasks`."""
    model: ComputeConfig
    """How models compute."""
    sampling: SamplingConfig
    """How samples are drawn; the temperature must be above 0."""
    path: ModelRef
    """The model that answers, for example `{base}`."""
    prm: RewardModelRef = ""
    """A process reward model, for example `{prm}`; empty: no method by it."""
    reference: ModelRef = ""
    """The model that an implicit one was trained from; empty: it has a head."""
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False), _IMPLICIT] = 0.05
    """β of an implicit one."""
    orm: RewardModelRef = ""
    """An outcome reward model; empty: no method by it."""
    split: Split = "dev"
    """Whose problems."""
    skip_problems: int = Field(0, ge=0)
    """Problems at the beginning of the split that are passed over."""
    num_problems: int = Field(100, ge=1)
    """Problems, the first of the split behind those."""


class BudgetStage(Stage[BudgetStageConfig]):
    """Samples, scores, searches, and compares at equal budgets."""

    Config = BudgetStageConfig
    makes = "data"

    def run(self, settings: BudgetStageConfig, work: Workplace) -> Made:
        dials = BudgetConfig(**{name: getattr(settings, name) for name in BudgetConfig.model_fields})
        result = measure(_subject(settings), _rewards(settings), dials, work.directory.path / FIGURES, work.progress)
        first, *facts = result.records()
        made_by = {name: label(getattr(self.config, key)) or None for name, key in _MODELS.items()}
        digest = write_rows(work.directory.data, [{**first, **made_by}, *facts])
        return Made(work.directory.data, digest, statistics=_statistics(result))


def _subject(settings: BudgetStageConfig) -> Subject:
    task, compute = make_task(settings.task), settings.model
    problems = split_problems(task, settings.split, None)[settings.skip_problems :][: settings.num_problems]
    if not problems:
        raise ConfigError(f"skip_problems = {settings.skip_problems} passes over all {settings.split} problems")
    policy = compute.at(settings.path)
    return Subject(policy, task, task.verifier_config, settings.sampling, settings.split, problems)


def _rewards(settings: BudgetStageConfig) -> RewardModels:
    def model(path: str) -> ModelConfig | None:
        return settings.model.at(path) if path else None

    return RewardModels(model(settings.prm), model(settings.orm), settings.reference, settings.beta)


def _statistics(result: BudgetResult) -> dict[str, object]:
    """Accuracy of every method by its budget, and what choosing by difficulty adds."""
    methods: dict[str, dict[str, float]] = {}
    for point in result.points:
        methods.setdefault(point.method, {})[f"of {point.budget}"] = round(point.accuracy.value, 6)
    gains: dict[str, dict[str, float]] = {}
    for one in result.optimal:
        by = gains.setdefault(f"chosen by {one.difficulty}", {})
        by[f"gain of {one.budget}"] = round(one.gain.value, 6)
    for equal in result.equal_tokens:
        by = gains.setdefault(f"{equal.method} at equal tokens", {})
        by[f"gain of {equal.budget}"] = round(equal.difference.value, 6)
    return {"problems": len(result.problems), "left out": len(result.left_out), **methods, **gains}
