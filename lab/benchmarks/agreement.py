"""False alarms and detection of the check that sampler and trainer agree: sound runs beside planted faults.

    python lab/benchmarks/agreement.py

Completions come from the shipped model, on word problems and arithmetic, 16 problems of 16 completions in a step. Each
step is checked as one update (`256`) and each of its groups alone (`16`). Printed for every case: alarms out of
batches of both sizes, which statistics of the large ones went beyond their bounds, and the largest value of each, as a
share of its bound, over batches of both sizes. A sound case far below 1 and a fault far above it is a wide margin.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from machine import describe

from groupwise.config import parse
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.packed import Pack
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import make_task
from groupwise.trainers.grpo import GrpoRecipe, grpo_learner
from groupwise.training.invariants import Agreement, agreement_bounds, measure_agreement
from groupwise.training.tokens import per_token
from groupwise.types import Group
from groupwise.verifiers import make_verifier
from groupwise.verifiers.unjudged import Unjudged

TASKS = ("word_problems", "arithmetic")
TEMPERATURES = (0.5, 0.7, 1.0, 1.5)
Differences = list[torch.Tensor]
"""Trainer - sampler, one tensor for each group of a step."""


class Case:
    """One line of the table."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alarms, self.batches, self.by = [0, 0], [0, 0], dict.fromkeys(Agreement._fields, 0)
        self.shares = [[0.0] * 3, [0.0] * 3]

    def add(self, step: Differences, temperature: float) -> None:
        """Check a step whole and by groups."""
        for size, batches in enumerate(([torch.cat(step)], step)):
            for batch in batches:
                bounds = agreement_bounds(len(batch), temperature, torch.float32, None)
                found = measure_agreement(batch)
                shares = [abs(value) / bound for value, bound in zip(found, bounds, strict=True)]
                self.shares[size] = [max(pair) for pair in zip(self.shares[size], shares, strict=True)]
                self.alarms[size] += any(share > 1 for share in shares)
                self.batches[size] += 1
                for name, share in zip(Agreement._fields, shares, strict=True):
                    self.by[name] += share > 1 and size == 0

    def print(self) -> None:
        """One line of Markdown."""
        alarms = " | ".join(f"{n}/{of}" for n, of in zip(self.alarms, self.batches, strict=True))
        by = ", ".join(f"{name} {n}" for name, n in self.by.items() if n) or "-"
        shares = " | ".join(" / ".join(f"{share:.2g}" for share in shares) for shares in self.shares)
        print(f"| {self.name} | {alarms} | {by} | {shares} |", flush=True)


def sample(policy: Policy, task_name: str, temperature: float, step: int = 0, **cut: float) -> list[Group]:
    """A step's groups."""
    task = make_task(task_name)
    problems = task.problems("train")[16 * step : 16 * step + 16]
    sampling = SamplingConfig(max_tokens=128, temperature=temperature, **cut)
    actors = Actors.of(policy, task.template, Unjudged())
    scored = sample_and_score(actors, problems, 16, sampling, Draws(0, Purpose.TRAIN, step))
    return [one.group for one in scored]


def compare(
    policy: Policy, groups: Sequence[Group], temperature: float, change: Callable[[Pack, Group], Pack] | None = None
) -> Differences:
    """Return the trainer's log-probabilities of the sampled tokens less those that the sampler recorded."""

    def differences(group: Group) -> torch.Tensor:
        def compute(packed: Pack) -> torch.Tensor:
            return policy.token_logprobs(change(packed, group) if change else packed, temperature).logprobs

        [trained] = per_token([group], compute, 4096, policy.device)
        pairs = zip(trained, group.completions, strict=True)
        return torch.from_numpy(np.concatenate([ours - theirs.sampling_logprobs for ours, theirs in pairs]))

    return [differences(group) for group in groups]


def trained(policy: Policy, lr: float, num_steps: int) -> Policy:
    """A copy after steps of GRPO on small batches; one step is one optimizer update."""
    values = {"run": {"directory": "unused", "num_steps": num_steps}, "task": {"kind": "word_problems"},
              "grpo": {"prompts_per_step": 8, "group_size": 8}, "sampling": {"max_tokens": 64},
              "optimizer": {"lr": lr}}  # fmt: skip
    recipe, task, copy = parse(GrpoRecipe, values), make_task("word_problems"), policy.copy()
    with make_verifier(recipe.verifier) as verifier:
        learner = grpo_learner(recipe, copy, verifier)
        for step in range(num_steps):
            learner.publish()
            done = learner.step(step, task.problems("train")[8 * step + 100 : 8 * step + 108])
            assert done.update.num_updates == 1 or num_steps > 1, "nothing was trained"
    return copy


def scaled(policy: Policy, factor: float) -> Policy:
    """A copy whose matrices are larger by a factor."""
    copy = policy.copy()
    with torch.no_grad():
        for weight in copy.model.parameters():
            weight *= factor if weight.ndim > 1 else 1
    return copy


def perturbed(policy: Policy, share: float) -> Policy:
    """A copy with one matrix in the middle off by a random share of each weight."""
    copy = policy.copy()
    with torch.no_grad():
        weight = copy.model.get_submodule("model.layers.2.mlp.down_proj").weight
        weight *= 1 + share * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    return copy


def shifted(packed: Pack, group: Group) -> Pack:
    """Completions stand one position too late."""
    late = packed.position_ids >= len(group.prompt.token_ids)
    return replace(packed, position_ids=packed.position_ids + late)


def overwritten(step: Differences, by: float) -> Differences:
    """One token of each group is off by this."""
    return [torch.cat((one[:1] + by, one[1:])) for one in step]


def sound(name: str, policy: Policy) -> None:
    """Whatever the check says of these is a false alarm."""
    case = Case(name)
    for place, task in enumerate(TASKS):
        for temperature in TEMPERATURES:
            groups = sample(policy, task, temperature, step=place)
            case.add(compare(policy, groups, temperature), temperature)
    case.print()


def faults(policy: Policy) -> None:
    """Return faults that the check should find."""
    steps = [(task, 1.0, sample(policy, task, 1.0, step=2)) for task in TASKS]

    def plant(name: str, make: Callable[[list[Group], float], Differences]) -> None:
        case = Case(name)
        for _, temperature, groups in steps:
            case.add(make(groups, temperature), temperature)
        case.print()

    for share in (0.0001, 0.01, 0.03, 0.1):
        plant(f"temperature wrong by {share:.4g}", lambda g, t, by=1 + share: compare(policy, g, t * by))
    for lr in (1e-6, 1e-5, 1e-4, 3e-4):
        newer = trained(policy, lr, 1)
        plant(f"weights stale by one update, lr {lr:g}", lambda g, t, newer=newer: compare(newer, g, t))
    for share in (1e-5, 1e-4, 1e-3):
        other = perturbed(policy, share)
        plant(f"one matrix off by {share:g}", lambda g, t, other=other: compare(other, g, t))
    plant("positions shifted by one", lambda g, t: compare(policy, g, t, shifted))
    for by in (5e-4, 1e-2):
        plant(f"one token of each group off by {by:g}", lambda g, t, by=by: overwritten(compare(policy, g, t), by))
    for cut in ({"top_k": 5}, {"top_p": 0.99}):
        case = Case("drawn with " + ", ".join(f"{key} = {value:g}" for key, value in cut.items()))
        for task, temperature, _ in steps:
            case.add(compare(policy, sample(policy, task, temperature, step=2, **cut), temperature), temperature)
        case.print()


def main() -> None:
    """Print the table."""
    quiet_transformers()
    torch.set_num_threads(1)
    print(describe())
    print(
        "| case | 256 | 16 | beyond its bound at 256 | bias / p99 / largest at 256 | at 16 |\n|---|---|---|---|---|---|"
    )
    policy = load_policy(ModelConfig())
    sound("sound: shipped model", policy)
    sound("sound: after 20 updates, lr 3e-4", trained(policy, 3e-4, 20))
    sound("sound: all matrices times 1.5", scaled(policy, 1.5))
    faults(policy)


if __name__ == "__main__":
    main()
