"""Sections on advantages that differ from token to token or from part to part: critic, process supervision, GDPO."""

from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.algorithms.advantages import AdvantageEstimator, advantage, gae
from groupwise.algorithms.step_advantages import EqualState, GroupTree, Process, ProcessGae, ProcessMin, TurnReturn
from groupwise.randomness import key, uniforms
from groupwise_lab.oracle.estimate import Estimated, estimate
from groupwise_lab.oracle.report import Row, Section, figures, on_policy_rows, section
from groupwise_lab.oracle.setting import Policies, Setting, TokenAdvantages
from groupwise_lab.oracle.toys import Dials, Toy, toy
from groupwise_lab.oracle.world import World, random_logits


def by_critic(world: World, values: Tensor, gamma: float, lam: float) -> TokenAdvantages:
    """Generalised advantages with a critic's values (K,) of all states; the reward stands at the last token."""

    def advantages(prompt: int, sequences: Sequence[int], rewards: Sequence[float]) -> list[Tensor]:
        advantages_of = []
        for sequence, reward in zip(sequences, rewards, strict=True):
            states = world.states[prompt, sequence][world.mask[sequence]]
            paid = torch.zeros(len(states), dtype=torch.float64)
            paid[-1] = reward
            advantages_of.append(gae(paid, values[states], gamma, lam))
        return advantages_of

    return advantages


def by_steps(world: World, rewards: Tensor) -> TokenAdvantages:
    """Process supervision where every token is a step; `rewards` (P, S, L) of the tokens."""

    def advantages(prompt: int, sequences: Sequence[int], _: Sequence[float]) -> list[Tensor]:
        lengths = [int(world.lengths[sequence]) for sequence in sequences]
        steps = [rewards[prompt, sequence][:length] for sequence, length in zip(sequences, lengths, strict=True)]
        return Process(kind="process").of_steps(steps, [torch.arange(1, length + 1) for length in lengths], lengths)

    return advantages


def by_outcome(world: World) -> TokenAdvantages:
    """Process supervision where the whole completion is one step with its reward."""

    def advantages(prompt: int, sequences: Sequence[int], rewards: Sequence[float]) -> list[Tensor]:
        lengths = [int(world.lengths[sequence]) for sequence in sequences]
        ends = [torch.tensor([length]) for length in lengths]
        return Process(kind="process").of_steps([torch.tensor([reward]).double() for reward in rewards], ends, lengths)

    return advantages


def by_worth(world: World, values: Tensor, estimator: AdvantageEstimator) -> TokenAdvantages:
    """Steps of one token whose worth is a model's (K,) of the state behind them; the last one carries the outcome."""

    def advantages(prompt: int, sequences: Sequence[int], rewards: Sequence[float]) -> list[Tensor]:
        lengths = [int(world.lengths[sequence]) for sequence in sequences]
        steps = [
            torch.cat([values[world.states[prompt, sequence][1:length]], values.new_tensor([reward])])
            for sequence, length, reward in zip(sequences, lengths, rewards, strict=True)
        ]
        return estimator.of_steps(steps, [torch.arange(1, length + 1) for length in lengths], lengths)

    return advantages


def by_tree(world: World, lam: float) -> TokenAdvantages:
    """A group that is its own critic."""

    def advantages(prompt: int, sequences: Sequence[int], rewards: Sequence[float]) -> list[Tensor]:
        ids = [list(world.sequences[sequence]) for sequence in sequences]
        return GroupTree(kind="group_tree", lam=lam).of_tokens(rewards, ids)

    return advantages


def by_turns(world: World, rewards: Tensor, estimator: AdvantageEstimator) -> TokenAdvantages:
    """Episodes in which every token is a turn, taken in its state; `rewards` (P, S, L) of the turns."""

    def advantages(prompt: int, sequences: Sequence[int], _: Sequence[float]) -> list[Tensor]:
        lengths = [int(world.lengths[sequence]) for sequence in sequences]
        states = [world.states[prompt, sequence][:n].tolist() for sequence, n in zip(sequences, lengths, strict=True)]
        paid = [rewards[prompt, sequence][:length] for sequence, length in zip(sequences, lengths, strict=True)]
        return estimator.of_turns(paid, [list(map(str, own)) for own in states])

    return advantages


def by_number(world: World, rewards: Tensor) -> TokenAdvantages:
    """A baseline of the others' turns with the same number, as no recipe has it: sums of centred rewards."""

    def advantages(prompt: int, sequences: Sequence[int], _: Sequence[float]) -> list[Tensor]:
        lengths = torch.tensor([int(world.lengths[sequence]) for sequence in sequences])
        there = torch.arange(world.max_length) < lengths[:, None]
        paid = torch.stack([rewards[prompt, sequence] for sequence in sequences]) * there
        centred = (paid - paid.sum(0) / there.sum(0).clamp_min(1)) * there
        sums = centred.flip(1).cumsum(1).flip(1)
        return [own[:length] for own, length in zip(sums, lengths.tolist(), strict=True)]

    return advantages


def critic(dials: Dials) -> Section:
    """Generalised advantages with a perfect critic, a poor one and none."""
    world = toy(dials, group_size=2)
    perfect = world.world.values(world.theta)
    poor = perfect + random_logits(world.world, "critic", world.seed, spread=0.3)[:, 0]
    critics = {"perfect": perfect, "poor": poor, "zero": torch.zeros_like(perfect)}
    settings = {
        f"{name}, γ = {gamma:g}, λ = {lam:g}": Setting(world.group_size, by_critic(world.world, values, gamma, lam))
        for name, values in critics.items()
        for gamma, lam in ((1.0, 1.0), (1.0, 0.95), (1.0, 0.0), (0.9, 1.0))
    }
    return section(
        "critic", "Generalised advantages",
        "A critic that knows the expected reward of every state, the same with errors of 0.3, and none at all. λ = 1 "
        "is unbiased whatever the critic says, and any λ is with a perfect one; γ below 1 favours short answers.",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


def process(dials: Dials) -> Section:
    """Process supervision, where every token is a step."""
    world = toy(dials, group_size=3)
    steps = token_rewards(world)
    outcome = world._replace(world=world.world.paying(steps.sum(-1, keepdim=True)))
    settings = {
        "every token a step": Setting(world.group_size, by_steps(outcome.world, steps)),
        "one step per completion": Setting(world.group_size, by_outcome(outcome.world)),
        "group_normalised": Setting(world.group_size, advantage("group_normalised")),
    }
    return section(
        "process", "Process supervision",
        "Every token has a reward of 0 or 1, and J is the expected sum. Taking the mean of all steps off every step "
        "makes each further step cost what an average one earns; one step per completion is GRPO.",
        outcome, on_policy_rows(outcome, settings),
    )  # fmt: skip


def steps(dials: Dials) -> Section:
    """Compare the gradient with a process reward model with that of the outcome."""
    world = toy(dials, group_size=3)
    perfect = world.world.values(world.theta)
    models = {"perfect": perfect, "poor": perfect + _errors(world), "inverted": 1 - perfect}
    settings = {
        f"process_gae, {name}, λ = {lam:g}": Setting(
            world.group_size, by_worth(world.world, values, ProcessGae(kind="process_gae", lam=lam))
        )
        for name, values in models.items()
        for lam in (1.0, 0.95, 0.0)
    }
    least = ProcessMin(kind="process_min")
    settings |= {f"process_min, {name}": Setting(world.group_size, by_worth(world.world, values, least))
                 for name, values in models.items()}  # fmt: skip
    settings |= {f"group_tree, λ = {lam:g}": Setting(world.group_size, by_tree(world.world, lam)) for lam in (1.0, 0.0)}
    settings["leave_one_out"] = Setting(world.group_size, advantage("leave_one_out"))
    return section(
        "steps", "Process reward models",
        "J is the expected outcome; a model says of every token's state what it is worth: rightly, with errors of 0.3, "
        "or upside down. As a frozen critic with λ = 1 no model bends the gradient, it only changes the noise; smaller "
        "λ trusts the model. A minimum over steps rewards what the model likes.",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


def turns(dials: Dials) -> Section:
    """Episodes whose policy decides after every turn whether there is another."""
    world = toy(dials, group_size=3)
    paid = token_rewards(world)
    whole = world._replace(world=world.world.paying(paid.sum(-1, keepdim=True)))
    estimators: dict[str, AdvantageEstimator] = {
        "turn_return": TurnReturn(kind="turn_return"),
        "turn_return, γ = 0.8": TurnReturn(kind="turn_return", gamma=0.8),
        "equal_state": EqualState(kind="equal_state"),
        "equal_state, ω = 0": EqualState(kind="equal_state", weight=0.0),
    }
    settings = {
        name: Setting(world.group_size, by_turns(whole.world, paid, estimator))
        for name, estimator in estimators.items()
    }
    settings["a mean of turns with the same number"] = Setting(world.group_size, by_number(whole.world, paid))
    settings["process"] = Setting(world.group_size, by_steps(whole.world, paid))
    settings["leave_one_out"] = Setting(world.group_size, advantage("leave_one_out"))
    return section(
        "turns", "Episodes of several turns",
        "Every token is a turn with a reward of 0 or 1, and J is the expected sum. A baseline of whole returns of "
        "others is unbiased, and so is one that knows the state; one of turns with the same number is not, where the "
        "policy decides whether there is such a turn, nor is `process`.",
        whole, on_policy_rows(whole, settings),
    )  # fmt: skip


def _errors(world: Toy) -> Tensor:
    return random_logits(world.world, "process reward model", world.seed, spread=0.3)[:, 0]


def token_rewards(world: Toy) -> Tensor:
    """(P, S, L) 0 or 1 for each token in its state; 0 beyond a sequence's end."""
    states, tokens = world.world.states, world.world.tokens
    numbers = uniforms(key("oracle", "steps", world.seed), range(world.world.num_states * world.world.num_tokens))
    paid = torch.from_numpy(numbers).view(world.world.num_states, -1) < 0.5
    return (paid[states, tokens] & world.world.mask).double()


def parts(dials: Dials) -> Section:
    """Rewards of two parts."""
    world = toy(dials, rewards="parts")
    rows = [_part_row(world, name) for name in ("group_mean", "group_normalised", "parts_normalised")]
    return section(
        "parts", "Rewards of two parts",
        "1 for being right and 0.2 for the form. The last columns say how much of each part's own gradient is in the "
        "estimate: normalising each part takes its weight away.",
        world, rows, ["right", "form"],
    )  # fmt: skip


def _part_row(world: Toy, kind: str) -> Row:
    estimated = estimate(world.world, Policies.on_policy(world.theta), Setting(world.group_size, advantage(kind)))
    return Row(kind, (*figures(estimated), *part_scales(world, estimated)))


def part_scales(world: Toy, estimated: Estimated) -> list[float]:
    """Return the share of each part's gradient in an estimate, by least squares."""
    own = [world.world.paying(part[..., None]).gradient(world.theta) for part in world.world.parts.unbind(-1)]
    basis = torch.stack([gradient.flatten() for gradient in own], 1)
    scales: list[float] = torch.linalg.lstsq(basis, estimated.mean.flatten()[:, None]).solution[:, 0].tolist()
    return scales
