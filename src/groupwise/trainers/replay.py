"""Replay: regenerate a recorded completion from its keys and say whether it is identical.

The weights of a step that has no checkpoint are made again by repeating the steps since the checkpoint before it (or
since the start); each repeated step's weights must have the fingerprint in the ledger.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from groupwise.config import parse, read_toml
from groupwise.errors import CheckpointError, ConfigError, InvariantError
from groupwise.models.checkpoint import load_trainer_state, weight_fingerprint
from groupwise.models.policy import Policy, load_policy
from groupwise.rollout.collect import collect
from groupwise.runs.directory import RunDirectory
from groupwise.runs.rollouts import read_rollouts
from groupwise.tasks import make_task
from groupwise.trainers.grpo import GrpoRecipe, grpo_step, problem_order
from groupwise.training.optimizer import Optimizer
from groupwise.verifiers import make_verifier


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded completion beside the one made again."""

    recorded: dict[str, Any]
    """The row of the rollouts file."""
    text: str
    token_ids: list[int]
    logprob_difference: float
    """Largest difference between recorded and new log-probabilities; 0 when bit-identical, inf when tokens differ."""
    started_from: str
    """The checkpoint (or model) the weights came from."""
    steps_repeated: int

    @property
    def identical(self) -> bool:
        """Same tokens and text, and same log-probabilities to the bit."""
        same_tokens = self.token_ids == self.recorded["token_ids"] and self.text == self.recorded["text"]
        return same_tokens and self.logprob_difference == 0


def replay(
    run: RunDirectory, step: int, problem_id: str, sample: int, on_step: Callable[[int], None] = lambda step: None
) -> Replay:
    """Regenerate one completion of a GRPO run.

    The whole step is sampled again, because a matrix product may round differently in a batch of another size.

    Raises:
        ConfigError: the run has no such completion.
        InvariantError: repeated steps give other weights than the ledger says.
    """
    recipe = parse(GrpoRecipe, read_toml(run.config), source=str(run.config))
    recorded = _recorded(run, step, problem_id, sample)
    start = max((done for done in run.steps() if done <= step), default=None)
    path = recipe.model.path if start is None else str(run.checkpoint(start))
    policy = load_policy(recipe.model.model_copy(update={"path": path}))
    _repeat_steps(run, recipe, policy, start, step, on_step)
    problems = make_task(recipe.task).problems("train")
    chosen = [problems[index] for index in problem_order(len(problems), recipe, step)]
    groups = collect(
        policy, recipe.task.template, chosen, recipe.grpo.group_size, recipe.sampling,
        seed=recipe.run.seed, purpose="train", step=step,
    )  # fmt: skip
    group = next(group for group in groups if group.prompt.problem.id == problem_id)
    completion = group.completions[sample]
    tokens = completion.token_ids.tolist()
    pairs = zip(completion.sampling_logprobs.tolist(), recorded["sampling_logprobs"], strict=False)
    difference = max(abs(a - b) for a, b in pairs) if tokens == recorded["token_ids"] else float("inf")
    return Replay(recorded, completion.text, tokens, difference, path, step - (start or 0))


def _recorded(run: RunDirectory, step: int, problem_id: str, sample: int) -> dict[str, Any]:
    if not run.rollouts(step).exists():
        raise ConfigError(f"{run.path} has no recorded step {step}")
    rows = read_rollouts(run.rollouts(step))
    for row in rows:
        if (row["problem"], row["sample"]) == (problem_id, sample):
            return row
    problems = sorted({row["problem"] for row in rows})
    raise ConfigError(
        f"step {step} has no completion {sample} of problem {problem_id!r}: its problems are {', '.join(problems)}, "
        f"with samples 0 to {max(row['sample'] for row in rows)}"
    )


def _repeat_steps(
    run: RunDirectory, recipe: GrpoRecipe, policy: Policy, start: int | None, end: int, on_step: Callable[[int], None]
) -> None:
    optimizer = Optimizer(policy.model, recipe.optimizer, recipe.run.num_steps)
    if start is not None:
        state = load_trainer_state(run.checkpoint(start))
        optimizer.load_state(state.tensors, state.facts["updates_done"])
    reference = load_policy(recipe.model).freeze() if recipe.loss.kl_coef > 0 else None
    weights = {line["step"]: line["weights"] for line in run.ledger.lines() if "weights" in line}
    task = make_task(recipe.task)
    problems = task.problems("train")
    with make_verifier(task.verifier, recipe.verifier) as verifier:
        for step in range(start or 0, end):
            on_step(step)
            chosen = [problems[index] for index in problem_order(len(problems), recipe, step)]
            grpo_step(step, chosen, policy, reference, verifier, optimizer, recipe)
            if step not in weights:
                raise CheckpointError(f"the ledger of {run.path} has no step {step} to check repeated weights against")
            if weight_fingerprint(policy.model) != weights[step]:
                raise InvariantError(
                    f"repeating step {step} gives other weights than the ledger of {run.path} says: this machine, "
                    "thread count or library rounds differently (environment.json says what the run stood on)"
                )
