"""Replay: regenerate a recorded completion from its keys and say whether it is identical.

Weights of a step without a checkpoint are made again by repeating the steps since the one before; each must have the
fingerprint in the ledger.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from groupwise.errors import CheckpointError, ConfigError, DataError, InvariantError
from groupwise.evaluation.checkpoints import tell_changes
from groupwise.models.checkpoint import load_trainer_state
from groupwise.models.policy import Policy, start_policy
from groupwise.randomness import Draws, Purpose
from groupwise.ranks.group import RANKS
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.runs.directory import RunDirectory, find_run
from groupwise.runs.records import Records
from groupwise.runs.rollouts import measured
from groupwise.runs.row import Row
from groupwise.tasks import make_task
from groupwise.trainers import recorded_recipe, trainer_of
from groupwise.trainers.rl import RlTrainer, recorded_results
from groupwise.trainers.rl_recipe import RlRecipe
from groupwise.training.session import restore
from groupwise.types import Problem
from groupwise.verifiers import make_verifier
from groupwise.verifiers.unjudged import Unjudged


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded completion beside the one made again."""

    recorded: Row
    text: str
    token_ids: list[int]
    logprob_difference: float
    """Largest difference between recorded and new log-probabilities; 0 when bit-identical, inf when tokens differ."""
    started_from: str
    steps_repeated: int

    @property
    def identical(self) -> bool:
        return self.same_tokens and self.text == self.recorded.text and self.logprob_difference == 0

    @property
    def same_tokens(self) -> bool:
        recorded = self.recorded.token_ids
        return recorded is not None and np.array_equal(self.token_ids, recorded)


def replay(
    path: str | Path, step: int, problem_id: str, sample: int = 0, on_step: Callable[[int], None] = lambda step: None
) -> Replay:
    """Regenerate one completion of a reinforcement-learning run. It is `groupwise replay`.

    The whole step is sampled again, because a matrix product may round differently in a batch of another size.

    Args:
        path: the run directory.
        step: training step (0-based).
        problem_id: for example `arithmetic/23x17`; `Run.groups(step)` lists the step's problems.
        sample: completion within the group, 0 to G - 1.
        on_step: called with each earlier step that has to be repeated.

    Raises:
        ConfigError: there is no run, or it has no such completion.
        DataError: the data of its task changed, and a problem is no longer there.
        InvariantError: repeated steps give other weights than the ledger says.
    """
    run = find_run(Path(path))
    recipe = recorded_recipe(run.config)
    if not isinstance(recipe, RlRecipe):
        raise ConfigError(f"{run.path} is a run of {recipe.algorithm}, which samples nothing to replay")
    if recipe.engine.looks_ahead:
        raise ConfigError(f"{run.path} sampled a step ahead, from weights that no replay makes again: steps_ahead = 1")
    tell_changes(run.path)
    recorded = Records.of(run).completion(step, problem_id, sample)
    if recorded.token_ids is None:
        raise ConfigError(f"{run.path} recorded no tokens to compare with (its recipe: record.tokens = 'none')")
    # it says in which shares problems are sampled, and in which order sums are made
    with RANKS.joined(recipe.ranks.model_copy(update={"offload": False})):
        start = max((done for done in run.steps() if done <= step), default=None)
        origin = recipe.model.path if start is None else str(run.checkpoint(start))
        policy = start_policy(recipe.model.at(origin), recipe.lora, recipe.run.seed)
        _repeat_steps(run, recipe, policy, start, step, on_step)
        chosen = next(batch for batch in _rounds(run, recipe)[step] if problem_id in [problem.id for problem in batch])
        actors = Actors.of(policy, recipe.task.template, Unjudged(), recipe.engine)
        draws = Draws(recipe.run.seed, Purpose.TRAIN, step)
        if recipe.needs_records:
            actors = replace(actors, recorded=recorded_results(run.rollouts(step)))
        scored = sample_and_score(actors, chosen, recipe.batch.group_size, recipe.sampling, draws)
    group = next(scored_group.group for scored_group in scored if scored_group.group.prompt.problem.id == problem_id)
    completion = group.completions[sample]
    difference = float("inf")
    if np.array_equal(completion.token_ids, recorded.token_ids):
        logprobs = measured(completion, completion.sampling_logprobs)  # tokens of a tool's result have none
        difference = float(np.nanmax(np.abs(logprobs - recorded.sampling_logprobs), initial=0.0))
    tokens = completion.token_ids.tolist()
    return Replay(recorded, completion.text, tokens, difference, origin, step - (start or 0))


def _rounds(run: RunDirectory, recipe: RlRecipe) -> dict[int, list[list[Problem]]]:
    problems = {problem.id: problem for problem in make_task(recipe.task).problems("train")}
    asked = {line["step"]: line["problems"] for line in run.ledger.lines() if "problems" in line}
    if gone := [name for rounds in asked.values() for names in rounds for name in names if name not in problems]:
        raise DataError(f"{run.path} asked {gone[0]}, which its task no longer has: put back the data that it read")
    return {step: [[problems[name] for name in names] for names in rounds] for step, rounds in asked.items()}


def _repeat_steps(
    run: RunDirectory, recipe: RlRecipe, policy: Policy, start: int | None, end: int, on_step: Callable[[int], None]
) -> None:
    trainer = trainer_of(recipe)
    assert isinstance(trainer, RlTrainer), trainer  # its recipe is one
    weights = {line["step"]: line["weights"] for line in run.ledger.lines() if "weights" in line}
    rounds = _rounds(run, recipe)
    with make_verifier(recipe.verifier) as verifier:
        verifier.check(make_task(recipe.task).problems("train"), recipe.task.template)
        verifier.begin(recipe.run.num_steps)
        learner = trainer.learner(recipe, policy, verifier)
        if start is not None:
            restore(load_trainer_state(run.checkpoint(start)), learner.optimizer, learner.beside)
        learner.publish()
        for step in range(start or 0, end):
            on_step(step)
            if step not in weights:
                raise CheckpointError(f"the ledger of {run.path} has no step {step} to check repeated weights against")
            first, *refills = rounds[step]
            learner.with_results(run, step).step(step, first, [problem for batch in refills for problem in batch])
            if policy.fingerprint() != weights[step]:
                raise InvariantError(
                    f"repeating step {step} gives other weights than the ledger of {run.path} says: this machine, "
                    "thread count or library rounds differently (environment.json says what the run used)"
                )
