"""Advantages from the worth of steps: by hand, against slow loops, and what must hold whatever a model says."""

import math

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
