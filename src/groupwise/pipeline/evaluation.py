"""What is measured of every model of a pipeline: the same problems, the same random numbers, the same counts."""

from collections.abc import Callable, Sequence
from typing import Any

from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.evaluation.metrics import summary
from groupwise.evaluation.run_data import Row, evaluation_rows
from groupwise.models.policy import load_policy
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.recipe import PipelineRecipe
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.evaluate import evaluate
from groupwise.rollout.sample_and_score import Actors
from groupwise.runs.rollouts import write_rollouts
from groupwise.tasks import make_task
from groupwise.tasks.hidden_rule import answer_of, is_harmless, is_helpful
from groupwise.trainers.rl import split_problems
from groupwise.types import ScoredGroup
from groupwise.verifiers import make_verifier


def evaluate_model(
    recipe: PipelineRecipe, model: str, place: StageDirectory, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Evaluate a model on the test split of every task of the recipe; its completions stay in the stage's directory.

    Returns, by task, every metric as [value, low, high] with the interval over problems.
    """
    policy = load_policy(recipe.model.at(model))
    config, found, groups = recipe.measure, dict[str, Any](), list[ScoredGroup]()
    for done, (name, options) in enumerate(recipe.tasks.items()):
        progress(done, len(recipe.tasks))
        task = make_task(options)
        problems = split_problems(task, "test", config.num_problems)
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            actors, draws = Actors.of(policy, task.template, verifier), Draws(recipe.pipeline.seed, Purpose.TEST)
            sampling = config.sampling or recipe.sampling
            evaluation = evaluate(actors, problems, config.num_samples, sampling, draws)
        groups += evaluation.scored
        place.path.mkdir(parents=True, exist_ok=True)
        write_rollouts(place.evaluation, evaluation.scored)
        found[name] = measures(evaluation_rows(place.evaluation), config.hidden_rule)
        found[name] |= {"num_problems": len(problems), "num_samples": config.num_samples}
    write_rollouts(place.evaluation, groups)
    progress(len(recipe.tasks), len(recipe.tasks))
    return found


def measures(rows: Sequence[Row], hidden_rule: bool) -> dict[str, Any]:
    """Every metric that these completions have."""
    found = summary(rows)
    if hidden_rule:
        found |= {
            "helpful": _share(rows, lambda row: is_helpful(answer_of(row["text"]), row["reference"], row["language"])),
            "harmless": _share(rows, lambda row: is_harmless(row["text"])),
        }
    return {name: list(estimate) for name, estimate in found.items()}


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> Estimate:
    """Share of completions for which something holds, with the interval over problems."""
    by_problem: dict[str, list[bool]] = {}
    for row in rows:
        by_problem.setdefault(row["problem"], []).append(holds(row))
    return mean_share([sum(found) / len(found) for found in by_problem.values()])
