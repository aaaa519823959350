"""Advantages from the worth of steps: by hand, against slow loops, and what must hold whatever a model says."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.algorithms.advantages import AdvantageEstimator, advantage
from groupwise.algorithms.step_advantages import GroupTree, ProcessGae, ProcessMin

Steps = list[list[tuple[int, float]]]
LAMBDAS = st.sampled_from([0.0, 0.3, 0.95, 1.0])


def found(estimator: AdvantageEstimator, steps: Steps, lengths: list[int]) -> list[list[float]]:
    rewards = [torch.tensor([reward for _, reward in one], dtype=torch.float64) for one in steps]
    ends = [torch.tensor([end for end, _ in one], dtype=torch.long) for one in steps]
    return [row.tolist() for row in estimator.of_steps(rewards, ends, lengths)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Steps, list[int]]:
    """2 to 4 completions of 1 to 6 tokens; steps end anywhere, the last one at the end."""
    steps, lengths = [], []
    for _ in range(draw(st.integers(2, 4))):
        length = draw(st.integers(1, 6))
        ends = sorted({*draw(st.sets(st.integers(1, length), max_size=3)), length})
        steps.append([(end, draw(st.integers(-4, 4)) / 4) for end in ends])
        lengths.append(length)
    return steps, lengths


def slow_gae(steps: Steps, lengths: list[int], lam: float) -> list[list[float]]:
    rows = []
    for i, (one, length) in enumerate(zip(steps, lengths, strict=True)):
        others = [other[-1][1] for j, other in enumerate(steps) if j != i]
        worth = [math.fsum(others) / len(others), *[value for _, value in one]]  # the last is the outcome itself
        row = []
        for t in range(length):
            first = next(j for j, (end, _) in enumerate(one) if end > t)
            gains = [worth[j + 1] - worth[j] for j in range(len(one))]
            row.append(math.fsum(lam ** (j - first) * gains[j] for j in range(first, len(one))))
        rows.append(row)
    return rows


@given(groups(), LAMBDAS)
def test_process_gae_equals_its_sum(group: tuple[Steps, list[int]], lam: float) -> None:
    rows = found(ProcessGae(kind="process_gae", lam=lam), *group)
    assert rows == [pytest.approx(row, abs=1e-12) for row in slow_gae(*group, lam)]


@given(groups())
def test_at_lambda_zero_the_progress_of_steps_is_what_is_paid(group: tuple[Steps, list[int]]) -> None:
    steps, lengths = group
    rows = found(ProcessGae(kind="process_gae", lam=0.0), steps, lengths)
    for i, (one, row) in enumerate(zip(steps, rows, strict=True)):
        start = math.fsum(other[-1][1] for j, other in enumerate(steps) if j != i) / (len(steps) - 1)
        assert math.fsum(row[end - 1] for end, _ in one) == pytest.approx(one[-1][1] - start, abs=1e-12)


def test_a_completion_without_steps_teaches_nothing() -> None:
    for kind in ("process_gae", "process_min"):
        rows = found(advantage(kind), [[], [(2, 1.0)], [(1, 0.0)]], [2, 2, 1])
        assert rows[0] == [0.0, 0.0]
        assert rows[1][0] > 0 > rows[2][0]


def slow_min(steps: Steps, lengths: list[int], temperature: float, weight: float) -> list[list[float]]:
    paid = []
    for one in steps:
        total = math.fsum(math.exp(-reward / temperature) for _, reward in one[:-1])
        paid.append([(end, math.exp(-reward / temperature) / total * reward) for end, reward in one[:-1]])
    rows = []
    for i, length in enumerate(lengths):
        others = [j for j in range(len(steps)) if j != i]
        per_token = math.fsum(r for j in others for _, r in paid[j]) / sum(lengths[j] for j in others)
        outcome = steps[i][-1][1] - math.fsum(steps[j][-1][1] for j in others) / len(others)
        to_come = [math.fsum(r for end, r in paid[i] if end > t) for t in range(length)]
        rows.append([to_come[t] - per_token * (length - t) + weight * outcome for t in range(length)])
    return rows


@given(groups(), st.sampled_from([0.1, 1.0]), st.sampled_from([0.0, 0.5, 1.0]))
def test_process_min_equals_its_sum(group: tuple[Steps, list[int]], temperature: float, weight: float) -> None:
    estimator = ProcessMin(kind="process_min", temperature=temperature, outcome_weight=weight)
    assert found(estimator, *group) == [pytest.approx(row, abs=1e-9) for row in slow_min(*group, temperature, weight)]


def test_padding_with_true_steps_pays_in_a_sum_and_not_in_a_minimum() -> None:
    # right after 3 true steps; wrong after a slip, twice; wrong after ten true idle steps
    right = [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)]
    slip = [(1, 1.0), (2, 0.0), (3, 1.0), (4, 0.0)]
    padded = [*[(end, 1.0) for end in range(1, 11)], (11, 0.0)]
    steps, lengths = [right, slip, slip, padded], [4, 4, 4, 11]
    summed = found(advantage("process"), steps, lengths)
    assert summed[3][0] > summed[0][0] > 0  # the hack: DeepSeekMath's sum pays the padding most
    for kind in ("process_min", "process_gae"):
        rows = found(advantage(kind), steps, lengths)
        assert rows[3][0] < rows[0][0]
        assert rows[3][0] < 0
    by_hand = {  # of the first tokens, as docs/do/prm.md shows them
        ("process", 1.0): [2.11, -2.74, 3.37],
        ("process", 3.0): [4.12, -2.42, 0.71],
        ("process_min", 1.0): [1.79, -0.75, -0.25],
        ("process_gae", None): [1.0, -1 / 3, -1 / 3],
    }
    for (kind, weight), expected in by_hand.items():
        rows = found(advantage(kind, **({} if weight is None else {"outcome_weight": weight})), steps, lengths)
        assert [rows[i][0] for i in (0, 1, 3)] == pytest.approx(expected, abs=6e-3)


TREE = [[5, 6, 1], [5, 6, 2], [5, 7], [8]]


def test_a_group_as_its_own_critic_by_hand() -> None:
    rows = GroupTree(kind="group_tree").of_tokens([1.0, 0.0, 0.5, 0.0], TREE)
    # before the first token: mean of the other three; after 5: of two; after 5 6: of one
    assert rows[0].tolist() == pytest.approx([1 - 0.5 / 3, 1 - 0.25, 1 - 0.0])
    assert rows[2].tolist() == pytest.approx([0.5 - 1 / 3, 0.5 - 0.5])
    assert rows[3].tolist() == pytest.approx([-0.5])


def slow_tree(rewards: list[float], ids: list[list[int]]) -> list[list[float]]:
    rows = []
    for i, own in enumerate(ids):
        row = []
        for t in range(len(own)):
            for shared in range(t, -1, -1):
                others = [rewards[j] for j in range(len(ids)) if j != i and ids[j][:shared] == own[:shared]
                          and len(ids[j]) >= shared]  # fmt: skip
                if others:
                    row.append(rewards[i] - math.fsum(others) / len(others))
                    break
        rows.append(row)
    return rows


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(0, 2)), min_size=2, max_size=5)
)
def test_group_tree_equals_a_search_for_prefixes(group: list[tuple[list[int], int]]) -> None:
    ids, rewards = [one for one, _ in group], [float(reward) for _, reward in group]
    expected = slow_tree(rewards, ids)
    rows: list[Tensor] = GroupTree(kind="group_tree").of_tokens(rewards, ids)
    assert [row.tolist() for row in rows] == [pytest.approx(row, abs=1e-12) for row in expected]


def test_equal_rewards_are_exactly_zero() -> None:
    rows = GroupTree(kind="group_tree").of_tokens([0.1] * 4, TREE)
    assert [row.tolist() for row in rows] == [[0.0] * len(ids) for ids in TREE]


def test_without_shared_prefixes_it_is_leave_one_out() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    rows = GroupTree(kind="group_tree").of_tokens(rewards.tolist(), [[1, 4], [2], [3, 4]])
    assert [row[0].item() for row in rows] == pytest.approx(advantage("leave_one_out").within(rewards).tolist())


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
