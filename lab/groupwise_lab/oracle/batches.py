"""Every batch that can be drawn in a toy world, with its probability."""

import math
from itertools import combinations_with_replacement
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.errors import ConfigError
from groupwise_lab.oracle.setting import Setting
from groupwise_lab.oracle.world import World

MAX_BATCHES = 200_000


class Batches(NamedTuple):
    """B batches of P groups of G completions. The order within a group does not matter, so it is counted once."""

    prompts: Tensor
    """(B, P, G) prompt of each completion."""
    sequences: Tensor
    """(B, P, G) which sequence it is."""
    parts: Tensor
    """(B, P, G, R) parts of the reward that the verifier gave it."""
    chances: Tensor
    """(B,) probability; they sum to 1."""


class _Outcomes(NamedTuple):
    """Possible outcomes of one sample of each prompt; all (O,), parts (O, R)."""

    prompts: Tensor
    sequences: Tensor
    parts: Tensor
    chances: Tensor


class _Groups(NamedTuple):
    """Groups that may stand at one place of a batch."""

    members: Tensor
    """(M, G) outcomes."""
    chances: Tensor
    """(M,)"""


def all_batches(world: World, sampler: Tensor, setting: Setting) -> Batches:
    """Go through all batches of one group per prompt.

    Raises:
        ConfigError: there are too many, or dead groups are to be replaced and there are no others.
    """
    outcomes = _outcomes(world, sampler, setting)
    _check_number(world, setting, len(outcomes.chances) // world.num_prompts)
    places = _places(world, outcomes, setting)
    picks = torch.cartesian_prod(*[torch.arange(len(groups.chances)) for groups in places]).view(-1, len(places))
    members = torch.stack([groups.members[pick] for groups, pick in zip(places, picks.T, strict=True)], 1)
    chances = torch.stack([groups.chances[pick] for groups, pick in zip(places, picks.T, strict=True)], 1).prod(1)
    return Batches(outcomes.prompts[members], outcomes.sequences[members], outcomes.parts[members], chances)


def signal_chances(world: World, sampler: Tensor, setting: Setting) -> list[float]:
    """Chance, for each prompt, that a group's rewards are not all equal."""
    outcomes = _outcomes(world, sampler, setting)
    groups = [_groups(outcomes, prompt, setting.group_size) for prompt in range(world.num_prompts)]
    return [float(group.chances[_has_signal(group, outcomes)].sum()) for group in groups]


def _outcomes(world: World, sampler: Tensor, setting: Setting) -> _Outcomes:
    """Each sequence with the reward it deserves and, where the verifier errs, with the other one."""
    P, S = world.rewards.shape
    prompts, sequences = torch.arange(P).repeat_interleave(S), torch.arange(S).repeat(P)
    deserved, chances = world.parts.flatten(0, 1), world.probabilities(sampler).detach().flatten()
    if not setting.false_positive and not setting.false_negative:
        return _Outcomes(prompts, sequences, deserved, chances)
    if deserved.shape[1] > 1:
        raise ConfigError("a verifier that errs is known for rewards of one part only")
    paid = deserved[:, 0] > 0
    error = setting.false_negative * paid.double() + setting.false_positive * (~paid).double()
    parts = torch.cat([deserved, (~paid).double()[:, None]])
    return _Outcomes(prompts.repeat(2), sequences.repeat(2), parts, torch.cat([chances * (1 - error), chances * error]))


def _check_number(world: World, setting: Setting, outcomes_per_prompt: int) -> None:
    groups = math.comb(outcomes_per_prompt + setting.group_size - 1, setting.group_size)
    groups *= world.num_prompts if setting.dead_groups == "other" else 1
    count = groups**world.num_prompts
    if count > MAX_BATCHES:
        raise ConfigError(
            f"{count:,} batches are too many to go through (at most {MAX_BATCHES:,}): {world.num_prompts} prompts, "
            f"groups of {setting.group_size}, {outcomes_per_prompt} outcomes each; take fewer tokens, shorter "
            "sequences, smaller groups or fewer prompts"
        )


def _places(world: World, outcomes: _Outcomes, setting: Setting) -> list[_Groups]:
    """Return the possible contents of each of the batch's P places."""
    groups = [_groups(outcomes, prompt, setting.group_size) for prompt in range(world.num_prompts)]
    if setting.dead_groups == "keep":
        return groups
    lively = [_Groups(*(column[_has_signal(group, outcomes)] for column in group)) for group in groups]
    if setting.dead_groups == "other":
        lively = [_Groups(*map(torch.cat, zip(*lively, strict=True)))]
        lively *= world.num_prompts
    if not all(group.chances.sum() > 0 for group in lively):
        raise ConfigError("dead groups cannot be replaced: all completions of a prompt have the same reward")
    return [_Groups(group.members, group.chances / group.chances.sum()) for group in lively]


def _groups(outcomes: _Outcomes, prompt: int, group_size: int) -> _Groups:
    own = (outcomes.prompts == prompt).nonzero()[:, 0].tolist()
    members = torch.tensor(list(combinations_with_replacement(own, group_size)))
    return _Groups(members, _orders(members) * outcomes.chances[members].prod(1))


def _orders(members: Tensor) -> Tensor:
    """In how many orders each group can be drawn: G! over the factorial of how often each member is in it."""
    same = torch.ones(len(members), dtype=torch.float64)
    orders = same * math.factorial(members.shape[1])
    for before, after in zip(members.T, members.T[1:], strict=False):
        same = torch.where(before == after, same + 1, 1.0)
        orders = orders / same
    return orders


def _has_signal(groups: _Groups, outcomes: _Outcomes) -> Tensor:
    rewards = outcomes.parts.sum(-1)[groups.members]
    return (rewards != rewards[:, :1]).any(1)
