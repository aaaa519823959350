"""Toy worlds with a policy: arbitrary but for their pass rates, and the same for the same seed."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from groupwise.errors import ConfigError
from groupwise.randomness import key, permutation, uniforms
from groupwise_lab.oracle.batches import MAX_BATCHES
from groupwise_lab.oracle.world import World, num_sequences, random_logits

HARD, MEDIUM, EASY = 0.1, 0.4, 0.5
"""Pass rates of the hardest and the easiest of several prompts, and of a single one."""


class Dials(NamedTuple):
    """The sizes of all worlds; None leaves each section its own."""

    num_tokens: int | None = None
    max_length: int | None = None
    group_size: int | None = None
    num_prompts: int | None = None
    seed: int = 0


class Toy(NamedTuple):
    """A world, a policy in it and the size of its groups."""

    world: World
    theta: Tensor
    group_size: int
    seed: int

    def __str__(self) -> str:
        world, rates = self.world, ", ".join(f"{rate:.2f}" for rate in self.pass_rates)
        return (
            f"{world.num_tokens} tokens, at most {world.max_length} per completion, groups of {self.group_size}, "
            f"mean reward {rates}"
        )

    @property
    def pass_rates(self) -> list[float]:
        """Mean reward of each prompt."""
        rates: list[float] = (self.world.probabilities(self.theta) * self.world.rewards).sum(-1).tolist()
        return rates

    def logits(self, purpose: str, spread: float) -> Tensor:
        """Logits of another policy, this far from ours."""
        return self.theta + random_logits(self.world, purpose, self.seed, spread=spread)


def toy(
    dials: Dials,
    num_tokens: int = 3,
    max_length: int = 3,
    group_size: int = 4,
    num_prompts: int = 1,
    rewards: Literal["binary", "finished", "graded", "parts"] = "binary",
) -> Toy:
    """A world of the given sizes, where the dials do not say otherwise.

    Rewards are 0 and 1 (`finished`: 1 only where the completion stopped by itself), `graded` in quarters, or of two
    `parts`: 0 or 1 for being right, 0 or 0.2 for the form, which what is right always has.

    Raises:
        ConfigError: too many sequences.
    """
    own = (num_tokens, max_length, group_size, num_prompts)
    V, L, G, P = (chosen or default for chosen, default in zip(dials[:4], own, strict=True))
    if num_sequences(V, L) * P > MAX_BATCHES:
        raise ConfigError(f"{V} tokens and {L} per completion make too many sequences; take fewer, or shorter ones")
    bare = World(V, L, torch.zeros(P, num_sequences(V, L), 1, dtype=torch.float64))
    theta = random_logits(bare, "policy", dials.seed)
    if rewards == "graded":
        numbers = uniforms(key("oracle", "rewards", dials.seed), range(bare.rewards.numel()))
        return Toy(bare.paying((torch.from_numpy(numbers) * 5).floor().view_as(bare.parts) / 4), theta, G, dials.seed)
    low, high = (HARD, EASY) if P > 1 else (MEDIUM, MEDIUM)
    aims = torch.linspace(low, high, P, dtype=torch.float64)
    right = bare.paying(_right(bare, theta, aims, dials.seed, only_finished=rewards == "finished"))
    theta = _with_pass_rates(right, theta, aims)
    if rewards == "parts":
        form = 0.2 * torch.maximum(right.parts, _right(bare, theta, aims, dials.seed + 1))
        return Toy(bare.paying(torch.cat([right.parts, form], -1)), theta, G, dials.seed)
    return Toy(right, theta, G, dials.seed)


def _right(world: World, theta: Tensor, aims: Tensor, seed: int, only_finished: bool = False) -> Tensor:
    """(P, S, 1) 1 for enough sequences of each prompt that its pass rate is near the one aimed at; else 0."""
    right = torch.zeros_like(world.parts)
    for prompt, aim in enumerate(aims):
        order = torch.from_numpy(permutation(len(world.sequences), "oracle", "right", seed, prompt))
        order = order[~world.truncated[order]] if only_finished else order
        rates = world.probabilities(theta)[prompt, order].cumsum(0)[: len(world.sequences) - 1]
        right[prompt, order[: int((rates - aim).abs().argmin()) + 1]] = 1.0
    return right


def _with_pass_rates(world: World, theta: Tensor, aims: Tensor) -> Tensor:
    """The policy nearby with the pass rates aimed at: Newton steps on the log-odds, along each prompt's gradient."""
    for _ in range(20):
        rates = (world.probabilities(theta) * world.rewards).sum(-1)
        gradient = world.gradient(theta).view(world.num_prompts, -1) * world.num_prompts
        gradient = gradient / (rates * (1 - rates))[:, None]
        missing = aims.logit() - rates.logit()
        theta = theta + (gradient * (missing / gradient.square().sum(-1))[:, None]).view_as(theta)
    return theta
