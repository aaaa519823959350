"""Stage `budget`: accuracy per token of test-time compute; `groupwise budget` within a pipeline.

Its rows are the facts of `budget.jsonl`; the samples, scores and searches stay in parts beside them, so a killed stage
resumes and makes the same bytes.
"""

from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf
from groupwise.config.schema import ModelRef, RewardModelRef, label
from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.budget import RewardModels, Subject, measure
from groupwise.evaluation.test_time.methods import BudgetConfig
from groupwise.pipeline.base import ComputeConfig, Made, Stage, Workplace
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.types import Split

_IMPLICIT = ReadIf(lambda config: bool(config.reference), "reference")
FIGURES = "budget"


class BudgetStageConfig(BudgetConfig):
    """Settings of the stage."""

    task: TaskOptions
    """Task whose problems are answered; a name in `tasks`."""
    model: ComputeConfig
    """Computation of the models."""
    sampling: SamplingConfig
    """Sampling; the temperature must be above 0."""
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
    """Split of the problems."""
    skip_problems: int = Field(0, ge=0)
    """Problems at the start of the split that are skipped."""
    num_problems: int = Field(100, ge=1)
    """Problems, the first of the split after those."""


class BudgetStage(Stage[BudgetStageConfig]):
    """Sample, score, search, and compare at equal budgets."""

    Config = BudgetStageConfig
    makes = "data"

    def run(self, settings: BudgetStageConfig, work: Workplace) -> Made:
        config = BudgetConfig(**{name: getattr(settings, name) for name in BudgetConfig.model_fields})
        task, model = make_task(settings.task), settings.model
        problems = split_problems(task, settings.split, None)[settings.skip_problems :][: settings.num_problems]
        if not problems:
            raise ConfigError(f"skip_problems = {settings.skip_problems} skips all {settings.split} problems")
        policy, verifier = model.at(settings.path), task.verifier_config
        subject = Subject(policy, task, verifier, settings.sampling, settings.split, problems)
        prm, orm = (model.at(path) if path else None for path in (settings.prm, settings.orm))
        rewards = RewardModels(prm, orm, settings.reference, settings.beta)
        result = measure(subject, rewards, config, work.directory.path / FIGURES)
        first, *facts = result.records()
        models = {"checkpoint": self.config.path, "prm": self.config.prm, "orm": self.config.orm}
        labels = {name: label(reference) or None for name, reference in models.items()}
        entries = [(point.method, f"of {point.budget}", point.accuracy) for point in result.points]
        entries += [(f"chosen by {best.difficulty}", f"gain of {best.budget}", best.gain) for best in result.optimal]
        entries += [(f"{e.method} at equal tokens", f"gain of {e.budget}", e.difference) for e in result.equal_tokens]
        figures: dict[str, dict[str, float]] = {}
        for name, key, estimate in entries:
            figures.setdefault(name, {})[key] = round(estimate.value, 6)
        statistics = {"problems": len(result.problems), "left out": len(result.left_out), **figures}
        return work.made([{**first, **labels}, *facts], statistics)
