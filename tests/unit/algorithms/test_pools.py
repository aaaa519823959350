"""Choices among k of n samples: by hand, against every subset in a slow loop, and what must hold anyway."""

import math
import time
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.algorithms import pools
from groupwise.algorithms.pools import absolute_bins, best_of_k, cross_fitted, folds, quantile_bins, weighted_vote
from groupwise.algorithms.statistics import majority_at_k, pass_at_k

SAMPLES = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.sampled_from([-0.5, 0.0, 0.25, 0.5, 1.0])),
    min_size=1,
    max_size=7,
)


def slow_best(scores: list[float], correct: list[bool], k: int) -> Fraction:
    subsets = list(combinations(range(len(scores)), k))
    total = Fraction(0)
    for subset in subsets:
        top = [i for i in subset if all(scores[i] >= scores[j] for j in subset)]
        total += Fraction(sum(correct[i] for i in top), len(top))
    return total / len(subsets)


def slow_vote(answers: list[str | None], scores: list[float], right: str, k: int) -> Fraction:
    subsets = list(combinations(range(len(scores)), k))
    total = Fraction(0)
    for subset in subsets:
        voted = {answers[i] for i in subset} - {None}
        weights = {answer: sum(scores[i] for i in subset if answers[i] == answer) for answer in voted}
        winners = [answer for answer in voted if all(weights[answer] >= other for other in weights.values())]
        total += Fraction(winners.count(right), len(winners)) if winners else 0
    return total / len(subsets)


@settings(max_examples=80, deadline=None)
@given(SAMPLES, st.data())
def test_they_are_the_mean_over_all_subsets(samples: list[tuple[str | None, float]], data: st.DataObject) -> None:
    answers, scores = [list(column) for column in zip(*samples, strict=True)]
    correct = [answer == "a" for answer in answers]
    k = data.draw(st.integers(1, len(samples)))
    assert best_of_k(scores, correct, k) == pytest.approx(float(slow_best(scores, correct, k)), abs=1e-15)
    vote = float(slow_vote(answers, scores, "a", k))
    assert weighted_vote(answers, scores, correct, k).value == pytest.approx(vote, abs=1e-15)


@given(st.integers(1, 12), st.data())
def test_known_scores_give_known_figures(n: int, data: st.DataObject) -> None:
    correct = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    k = data.draw(st.integers(1, n))
    assert best_of_k([float(right) for right in correct], correct, k) == pytest.approx(pass_at_k(n, sum(correct), k))
    assert best_of_k([0.3] * n, correct, k) == pytest.approx(sum(correct) / n)


def test_equal_weights_are_a_majority_vote() -> None:
    answers = ["a", "a", "a", "b", "b", "c", None, None]
    for k in range(1, 9):
        vote = weighted_vote(answers, [0.1] * 8, [answer == "a" for answer in answers], k)
        assert vote.value == pytest.approx(majority_at_k([3], [2, 1], 2, k), abs=1e-15)


def test_a_worked_example() -> None:
    # subsets of 2: {.9 wrong, .5 right} wrong, {.9, .5 wrong} wrong, {.5 right, .5 wrong} one half
    assert best_of_k([0.9, 0.5, 0.5], [False, True, False], 2) == pytest.approx(0.5 / 3)


def test_large_pools_take_no_time() -> None:
    scores, correct = [i % 9 / 9 for i in range(64)], [i % 3 == 0 for i in range(64)]
    began = time.process_time()
    best_of_k(scores, correct, 32)
    assert time.process_time() - began < 0.05


def test_drawn_subsets_agree_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["a", "b", "b", "c", "a", "c", "b", None, "a", "c"]
    scores = [0.9, 0.4, 0.3, 0.8, 0.2, 0.1, 0.6, 0.5, 0.7, 0.35]
    correct = [answer == "a" for answer in answers]
    whole = weighted_vote(answers, scores, correct, 5)
    monkeypatch.setattr(pools, "MAX_SUBSETS", 10)
    monkeypatch.setattr(pools, "NUM_DRAWN", 1000)
    drawn = weighted_vote(answers, scores, correct, 5, seed=3)
    assert drawn == weighted_vote(answers, scores, correct, 5, seed=3) != weighted_vote(answers, scores, correct, 5)
    assert whole.standard_error == 0 < drawn.standard_error
    assert abs(drawn.value - whole.value) < 5 * drawn.standard_error


@pytest.mark.parametrize(
    ("choose", "pool", "said"),
    [
        (best_of_k, ([1.0, 2.0], [True, False], 0), "pool of 2"),
        (best_of_k, ([1.0, 2.0], [True, False], 3), "pool of 2"),
        (weighted_vote, (["a", "b"], [1.0, math.nan], [True, False], 1), "sample 1"),
        (weighted_vote, (["a", "b"], [1.0, math.inf], [True, False], 1), "sample 1"),
        (best_of_k, ([1.0, 2.0], [True], 1), "1 verdicts for 2"),
        (weighted_vote, (["a"], [1.0, 2.0], [True, True], 1), "1 answers"),
    ],
)
def test_what_is_no_pool_is_refused(choose: Any, pool: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        choose(*pool)


def test_by_hand() -> None:
    # method 0 wins on the easy problems of half 0, method 1 on those of half 1; each half gets the other's winner
    accuracy = np.array([[0.9, 0.9, 0.1, 0.1], [0.2, 0.2, 0.8, 0.8]])
    bins, half = np.zeros(4, np.int64), np.array([0, 0, 1, 1])
    assert cross_fitted(accuracy, bins, half).tolist() == [1, 1, 0, 0]
    # problem 0 is alone in its bin: it gets what is best on the whole other half
    assert cross_fitted(accuracy, np.array([1, 0, 0, 0]), half).tolist() == [1, 1, 0, 0]


@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_it_is_the_slow_loop(num_problems: int, num_methods: int, num_bins: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    accuracy = draw.integers(0, 4, (num_methods, num_problems)) / 3
    bins, half = draw.integers(0, num_bins, num_problems), folds(num_problems, seed)
    chosen = cross_fitted(accuracy, bins, half)
    for problem in range(num_problems):
        others = [p for p in range(num_problems) if half[p] != half[problem]]
        alike = [p for p in others if bins[p] == bins[problem]] or others
        means = [sum(row[p] for p in alike) / len(alike) for row in accuracy]
        assert means[chosen[problem]] == pytest.approx(max(means))


def test_the_half_that_is_measured_chooses_nothing() -> None:
    accuracy = np.array([[0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 1.0, 1.0]])
    bins, half = np.zeros(4, np.int64), np.array([0, 0, 1, 1])
    before = cross_fitted(accuracy, bins, half)[2:]
    accuracy[:, 2:] = [[0.0, 0.0], [9.0, 9.0]]
    assert (cross_fitted(accuracy, bins, half)[2:] == before).all()


def test_halves_and_bins() -> None:
    assert sorted(folds(5).tolist()) == [0, 0, 1, 1, 1]
    assert (folds(9, 1) != folds(9, 2)).any()
    assert quantile_bins([0.0] * 10).tolist() == [0] * 10
    assert np.bincount(quantile_bins(np.arange(10).tolist())).tolist() == [2] * 5
    assert absolute_bins([0.0, 0.19, 0.2, 0.6, 0.999, 1.0]).tolist() == [0, 0, 1, 3, 4, 4]


def test_what_cannot_be_chosen_is_named() -> None:
    zeros = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="both halves"):
        cross_fitted(np.zeros((1, 2)), zeros, zeros)
    with pytest.raises(ValueError, match="shape"):
        cross_fitted(np.zeros((1, 3)), zeros, zeros)
