"""What both sides are given, and how what they answer is compared."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from groupwise.models.policy import Policy
from groupwise.training.tokens import per_token
from groupwise.training.update import UpdateMetrics
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict

MAX_TOKENS = 12
END = 1
CHANGE = 0.01
"""Standard deviation of what is added to every weight after an update."""
REFERENCE = 99
"""Number of the change that makes the reference of the policy."""
TOLERANCE = 2e-5
"""Of shares, see `gap`. In single precision either side is up to 1.1e-5 away from double precision."""
VISIBLE = 1e-2
"""A share that no rounding makes."""


class Batch(NamedTuple):
    """Completions of some prompts and what they earned; everything by prompt."""

    prompts: Sequence[str]
    completions: Sequence[Sequence[list[int]]]
    parts: Sequence[Sequence[Sequence[float | None]]]
    """By part of the reward, prompt and completion; None where the verifier failed."""
    noise: float = 0.0
    """How far the sampler's log-probabilities are from the trainer's (standard deviation)."""
    stops: frozenset[int] = frozenset({END})
    """Tokens that end a completion where they stand last."""

    @property
    def rows(self) -> list[list[int]]:
        return [ids for group in self.completions for ids in group]

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.rows))


class Updates(NamedTuple):
    """What one side did in one or several updates."""

    loss: float
    """Mean over the updates."""
    gradients: list[dict[str, Tensor]]
    """Of every update, by parameter."""
    metrics: UpdateMetrics | None = None


def four_by_four() -> Batch:
    """Four ragged groups of four; four completions are cut off at the limit; the second group has no signal."""
    lengths = [(3, 12, 7, 1), (5, 2, 9, 12), (12, 4, 6, 8), (10, 12, 12, 2)]
    rewards = [(1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0), (1.0, 0.5, 0.0, 0.25)]
    cut_off = {(0, 1), (1, 3), (2, 0), (3, 1)}  # (3, 2) is as long, but ends
    completions = [
        [_completion(length, (i, j) not in cut_off, 10 * i + j) for j, length in enumerate(row)]
        for i, row in enumerate(lengths)
    ]
    return Batch(["2+2=", "Say it: ", "?", "What is 6 times 7"], completions, [rewards])


def _completion(length: int, ends: bool, seed: int) -> list[int]:
    tokens: list[int] = np.random.default_rng(seed).integers(2, 258, length).tolist()
    return [*tokens[:-1], END] if ends else tokens


def groups_of(batch: Batch, policy: Policy, temperature: float = 1.0) -> list[Group]:
    """The batch as if an engine had sampled it from the policy."""
    groups = []
    for number, (text, rows) in enumerate(zip(batch.prompts, batch.completions, strict=True)):
        prompt = Prompt(Problem(f"p{number}", text, ""), text, tuple(policy.tokenizer(text)["input_ids"]))
        reasons = [FinishReason.STOP if ids[-1] in batch.stops else FinishReason.LENGTH for ids in rows]
        ones = [np.ones(len(ids), np.float32) for ids in rows]
        made = [Completion(i, np.array(ids), -ones[i], ones[i], reasons[i], "") for i, ids in enumerate(rows)]
        groups.append(Group(prompt, tuple(made), step=0, policy_version=0))
    found = per_token(groups, lambda pack: policy.token_logprobs(pack, temperature).logprobs, 4096, policy.device)
    return [_sampled(group, arrays, batch.noise) for group, arrays in zip(groups, found, strict=True)]


def _sampled(group: Group, logprobs: Sequence[Any], noise: float) -> Group:
    generator = np.random.default_rng(len(group.prompt.text))
    noisy = [one + noise * generator.standard_normal(len(one)).astype(np.float32) for one in logprobs]
    bounded = [np.minimum(one, -1e-3) if noise else one for one in noisy]
    pairs = zip(group.completions, bounded, strict=True)
    return replace(group, completions=tuple(replace(made, sampling_logprobs=one) for made, one in pairs))


def scored(batch: Batch, groups: Sequence[Group]) -> list[ScoredGroup]:
    """The groups with the batch's rewards as verdicts."""

    def verdict(prompt: int, completion: int) -> Verdict:
        values = [part[prompt][completion] for part in batch.parts]
        parts = {f"part{k}": value for k, value in enumerate(values) if value is not None}
        return Verdict(Outcome.WRONG if parts else Outcome.CRASHED, parts, "")

    return [
        ScoredGroup(group, tuple(verdict(i, j) for j in range(len(group.completions))))
        for i, group in enumerate(groups)
    ]


def move(model: Any, number: int) -> None:
    """Change all weights, the same on both sides."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += CHANGE * torch.randn(parameter.shape, generator=generator)


def reference_of(policy: Policy) -> Policy:
    """A policy near the one that is trained."""
    reference = policy.copy().freeze()
    move(reference.model, REFERENCE)
    return reference


def gradients_of(model: Any) -> dict[str, Tensor]:
    """Copies, by parameter."""
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def gap(mine: dict[str, Tensor], other: dict[str, Tensor], factor: float = 1.0) -> float:
    """Largest distance of our gradient × factor from TRL's, over all parameters.

    As a share of the largest entry of TRL's gradient of that parameter.
    """
    assert mine.keys() == other.keys()
    return max(((mine[n] * factor - other[n]).abs().max() / other[n].abs().max()).item() for n in mine)


def assert_equal(found: Updates, expected: Updates, factor: float = 1.0) -> None:
    """Gradients of every update and the loss: ours times the factor are TRL's."""
    worst = max(gap(mine, other, factor) for mine, other in zip(found.gradients, expected.gradients, strict=True))
    of_loss = abs(found.loss * factor - expected.loss) / max(1.0, abs(expected.loss))
    print(f"largest difference of gradients {worst:.1e}, of losses {of_loss:.1e}")
    assert worst < TOLERANCE
    assert of_loss < TOLERANCE
