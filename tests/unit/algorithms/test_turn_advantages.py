"""Credit over turns: numbers worked by hand, slow loops, and an exact toy in which the policy decides to stop."""

from itertools import product
from typing import Any

import pytest
import torch

from groupwise.algorithms.advantages import advantage

REWARDS = [[0.0, 1.0, 2.0], [1.0], [0.0, -1.0]]
STATES = [["o", "a", "b"], ["o"], ["o", "a"]]


def of_turns(kind: str, rewards: Any, states: Any, **dials: float) -> list[list[float]]:
    estimator = advantage(kind, **dials)
    values = estimator.of_turns([torch.tensor(own, dtype=torch.float64) for own in rewards], states)
    return [[round(value, 6) for value in own.tolist()] for own in values]


@pytest.mark.parametrize(
    ("kind", "dials", "expected"),
    [
        # returns 3 3 2 | 1 | -1 -1; the others' first ones have the means 0, 1 and 2
        ("turn_return", {}, [[3, 3, 2], [0], [-3, -3]]),
        # returns 1 2 2 | 1 | -.5 -1; means .25, .25 and 1
        ("turn_return", {"gamma": 0.5}, [[0.75, 1.75, 1.75], [0.75], [-1.5, -2]]),
        # whole: 3 0 -3; in `o` 3 against 0, 1 against 1, -1 against 2; in `a` 3 against -1; nobody else was in `b`
        ("equal_state", {}, [[3 + 3, 3 + 4, 3], [0 + 0], [-3 - 3, -3 - 4]]),
        ("equal_state", {"weight": 0.5}, [[4.5, 5, 3], [0], [-4.5, -5]]),
        ("equal_state", {"weight": 0.0}, [[3, 3, 3], [0], [-3, -3]]),
    ],
)
def test_by_hand(kind: str, dials: dict[str, float], expected: list[list[float]]) -> None:
    assert of_turns(kind, REWARDS, STATES, **dials) == expected


def test_unknown_states_are_equal_to_none_and_one_alone_has_nothing_to_compare_with() -> None:
    assert of_turns("equal_state", [[1.0], [0.0]], [[""], [""]]) == [[1], [-1]]
    assert of_turns("equal_state", [[1.0, 1.0]], [["a", "a"]]) == [[0, 0]]  # its own turns are no rivals
    assert of_turns("turn_return", [[1.0, 1.0]], [["a", "b"]]) == [[0, 0]]


def slow(kind: str, rewards: list[list[float]], states: list[list[str]], gamma: float, weight: float) -> Any:
    """The definitions, one turn at a time."""
    returns = [[sum(gamma ** (j - k) * r[j] for j in range(k, len(r))) for k in range(len(r))] for r in rewards]
    result = []
    for i, own in enumerate(rewards):
        others = [j for j in range(len(rewards)) if j != i]
        row = []
        for k in range(len(own)):
            if kind == "turn_return":
                row.append(returns[i][k] - sum(returns[j][0] for j in others) / len(others))
                continue
            total = sum(own) - sum(sum(rewards[j]) for j in others) / len(others)
            equal = [returns[j][m] for j in others for m in range(len(rewards[j])) if states[j][m] == states[i][k]]
            row.append(total + (weight * (returns[i][k] - sum(equal) / len(equal)) if equal else 0))
        result.append([round(value, 6) for value in row])
    return result


@pytest.mark.parametrize("seed", range(5))
def test_slow_loops_agree(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 5, (5,), generator=generator).tolist()
    rewards = [torch.randn(length, generator=generator, dtype=torch.float64).tolist() for length in lengths]
    states = [["abc"[i] for i in torch.randint(0, 3, (length,), generator=generator).tolist()] for length in lengths]
    assert of_turns("turn_return", rewards, states, gamma=0.7) == slow("turn_return", rewards, states, 0.7, 1)
    found = of_turns("equal_state", rewards, states, gamma=0.7, weight=0.3)
    assert found == slow("equal_state", rewards, states, 0.7, 0.3)


# Every turn pays 1; behind the first one the policy goes on with probability 1/2, and there are at most two. The logit
# of going on has the gradient 1/2 · 1/2 · (2 - 1) = 0.25.
CHOICES = {True: [1.0, 1.0], False: [1.0]}


def gradient(advantages_of: Any) -> float:
    """Expected Σ advantage · ∇log π over groups of two, by enumeration, per episode."""
    total = 0.0
    for goes_on in product((True, False), repeat=2):
        values = advantages_of([CHOICES[each] for each in goes_on])
        score = [0.5 if each else -0.5 for each in goes_on]  # of the first turn, whose tokens decide
        total += sum(s * own[0] for s, own in zip(score, values, strict=True)) / 2 / 4
    return total


def by_index(rewards: list[list[float]]) -> list[list[float]]:
    """A baseline of turns with the same number, as in verl#7244, and the sum over what follows."""
    means = [sum(own[k] for own in rewards if len(own) > k) / sum(len(own) > k for own in rewards) for k in range(2)
             if any(len(own) > k for own in rewards)]  # fmt: skip
    centred = [[reward - mean for reward, mean in zip(own, means, strict=False)] for own in rewards]
    return [[sum(own[k:]) for k in range(len(own))] for own in centred]


def test_no_baseline_per_turn_where_the_policy_decides_to_stop() -> None:
    states = {2: ["s", "t"], 1: ["s"]}
    whole = gradient(lambda rewards: of_turns("turn_return", rewards, [states[len(own)] for own in rewards]))
    mean = gradient(lambda rewards: [[sum(own) - sum(map(sum, rewards)) / 2] for own in rewards])
    process = advantage("process")

    def centred(rewards: list[list[float]]) -> list[list[float]]:
        ends = [torch.arange(1, len(own) + 1) for own in rewards]
        values = process.of_steps([torch.tensor(own) for own in rewards], ends, [len(own) for own in rewards])
        return [value.tolist() for value in values]

    assert (whole, mean) == (0.25, 0.125)
    assert gradient(by_index) == 0.0
    assert gradient(centred) == pytest.approx(0.0, abs=1e-6)
