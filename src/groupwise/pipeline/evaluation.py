"""Evaluation of every model of a pipeline: the same problems, the same random numbers, the same counts."""

from typing import Any

from groupwise.evaluation.metrics import summary
from groupwise.models.policy import load_policy
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.recipe import MEASURES, PipelineRecipe
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import make_engine
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.runs.ledger import or_null
from groupwise.runs.progress import counted
from groupwise.runs.rollouts import write_rollouts
from groupwise.runs.row import rows_of
from groupwise.tasks import make_task
from groupwise.tasks.base import split_problems
from groupwise.types import ScoredGroup
from groupwise.verifiers import make_verifier


def evaluate_model(recipe: PipelineRecipe, model: str, stage_dir: StageDirectory) -> dict[str, Any]:
    """Evaluate a model on the test split of every task of the recipe; its completions stay in the stage's directory.

    Returns, by task, every metric as [value, low, high] with the interval over problems (null for ends that do not
    exist), `kind` (`open_ended` where no rule can judge an answer to any of its problems, else `verified`),
    `num_problems` and `num_samples`.
    """
    policy = load_policy(recipe.model.at(model))
    engine = make_engine(recipe.engine, policy)
    config, measurements, groups = recipe.measure, dict[str, Any](), list[ScoredGroup]()
    for name, options in counted(f"measuring {stage_dir.path.name}", recipe.tasks.items(), len(recipe.tasks)):
        task = make_task(options)
        problems = split_problems(task, "test", config.num_problems)
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            actors, draws = Actors(policy, engine, task.template, verifier), Draws(recipe.pipeline.seed, Purpose.TEST)
            sampling = config.sampling or recipe.sampling
            if (tools := config.tools.get(name)) is not None:
                sampling = sampling.model_copy(update={"tools": tools})
            scored = sample_and_score(actors, problems, config.num_samples, sampling, draws)
        groups += scored
        measured = summary(rows_of(scored), more={key: MEASURES.find(kind) for key, kind in config.measures.items()})
        kind = "open_ended" if all(problem.open_ended for problem in problems) else "verified"
        sizes = {"num_problems": len(problems), "num_samples": config.num_samples}
        measurements[name] = {key: or_null(estimate) for key, estimate in measured.items()} | {"kind": kind, **sizes}
    stage_dir.path.mkdir(parents=True, exist_ok=True)
    write_rollouts(stage_dir.evaluation, groups)
    return measurements
