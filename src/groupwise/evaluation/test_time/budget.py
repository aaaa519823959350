"""`measure_budget`: accuracy and cost of every method at every budget. `groupwise budget` is it with a table."""

from pathlib import Path

from groupwise.config import Changes
from groupwise.errors import ConfigError
from groupwise.evaluation.checkpoints import context_of
from groupwise.evaluation.test_time.measurement import RewardModels, Subject, checked, measure
from groupwise.evaluation.test_time.pool import Progress
from groupwise.evaluation.test_time.result import BudgetResult
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.models.config import ModelConfig
from groupwise.types import SPLITS, Split


def measure_budget(
    checkpoint: str | Path,
    *,
    prm: str | Path | None = None,
    orm: str | Path | None = None,
    reference: str | Path = "",
    beta: float = 0.05,
    config: BudgetConfig | None = None,
    task: str | None = None,
    split: Split | None = None,
    problems: int | None = None,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    directory: str | Path = "runs/budget",
    changes: Changes = (),
    progress: Progress = lambda what, done, total: None,
) -> BudgetResult:
    """Measure what test-time compute is worth, and write it into a directory; the same call goes on after a kill.

    Args:
        checkpoint: whose samples: a checkpoint directory, a hub name, or `base` for the shipped model.
        prm: directory of a process reward model; None: no method by it.
        orm: directory of an outcome reward model, trained with `supervision = "outcome"`; None: no method by it.
        reference: the model that an implicit process reward model was trained from; empty: `prm` has a head.
        beta: β of an implicit one.
        config: methods, budgets and dials.
        task: a task's name, or `file.py:Class`; None: the task of the run that the checkpoint lies in.
        split: `train`, `dev` or `test`; None: `test`, or all rows of a plain file that no run divided into splits.
        problems: at most this many, from the first; None: 200 of a split, all rows of a plain file.
        temperature: of the samples; above 0.
        max_tokens: most tokens of a completion; None: as many as in the run, else the default.
        directory: where samples, scores and figures are kept; those of other settings stay as they are.
        changes: of the sections task, verifier and sampling, as for `load_recipe`.
        progress: called now and then.

    Raises:
        ConfigError: a name or a value is unknown, a pool is smaller than a budget, or a method needs what is not there.
        DataError: a reward model cannot read a completion, or too few samples were judged.
        ModelError: a model cannot be loaded, or gives a score that is not a number.
        VerifierError: the verifier failed on too many completions.
    """
    config = config or BudgetConfig()
    if split not in (None, *SPLITS):
        raise ConfigError(f"split {split!r}: allowed are {', '.join(SPLITS)}")
    rewards = RewardModels(_model(prm), _model(orm), str(reference), beta)
    checked(config, rewards, temperature)
    context = context_of(str(checkpoint), task, {"temperature": temperature, "max_tokens": max_tokens}, changes)
    _, selection = context.problems(split, problems)
    policy = ModelConfig(path=str(checkpoint))
    subject = Subject(policy, context.task, context.verifier, context.sampling, split or "test", selection)
    return measure(subject, rewards, config, Path(directory), progress)


def _model(path: str | Path | None) -> ModelConfig | None:
    return None if path is None else ModelConfig(path=str(path))
