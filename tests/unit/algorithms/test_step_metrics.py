"""Scores of steps: by hand, and against a search over everything."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.step_metrics import (
    AGGREGATES,
    aggregated,
    area_under_curve,
    best_threshold,
    first_errors,
    predicted,
    step_calibration,
)

CHANCES = st.integers(0, 6).map(lambda n: n / 6)


@st.composite
def completions(draw: st.DrawFn) -> tuple[list[list[float]], list[int | None]]:
    """At least one completion with a mistake and one without."""
    scores, truth = [], []
    for number in range(draw(st.integers(2, 6))):
        scores.append(draw(st.lists(CHANCES, min_size=1, max_size=4)))
        wrong = number == 0 or (number > 1 and draw(st.booleans()))
        truth.append(draw(st.integers(0, len(scores[-1]) - 1)) if wrong else None)
    return scores, truth


@given(completions())
def test_the_threshold_is_the_best_of_all(case: tuple[list[list[float]], list[int | None]]) -> None:
    scores, truth = case
    everywhere = [first_errors(scores, truth, threshold / 12).f1 for threshold in range(-1, 15)]
    assert first_errors(scores, truth, best_threshold(scores, truth)).f1 == pytest.approx(max(everywhere))


def test_by_hand() -> None:
    scores = [[0.9, 0.3, 0.8], [0.2, 0.9], [0.9, 0.9], [0.9, 0.4]]
    found = first_errors(scores, [1, 1, None, None], 0.5)
    assert found == (0.5, 0.5)
    assert found.f1 == 0.5
    assert predicted([0.5], 0.5) is None
    assert math.isnan(first_errors([[0.9]], [0], 0.5).f1)  # no completion is right as a whole


def test_a_threshold_needs_both_kinds() -> None:
    with pytest.raises(ValueError, match="one kind is missing"):
        best_threshold([[0.5], [0.7]], [None, None])


@given(st.lists(st.tuples(CHANCES, st.booleans()), min_size=1, max_size=12))
def test_the_area_counts_pairs(steps: list[tuple[float, bool]]) -> None:
    good = [score for score, right in steps if right]
    bad = [score for score, right in steps if not right]
    found = area_under_curve([score for score, _ in steps], [right for _, right in steps])
    if not good or not bad:
        assert math.isnan(found)
        return
    wins = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    assert found == pytest.approx(wins / (len(good) * len(bad)))


def test_calibration_by_hand() -> None:
    # bin .2: 2 steps, labels .5 against scores .25; bin .9: 1 step, 1 against .95
    assert step_calibration([0.25, 0.25, 0.95], [1.0, 0.0, 1.0]) == pytest.approx((2 * 0.25 + 0.05) / 3)
    assert step_calibration([1.0, 0.0], [1.0, 0.0]) == 0


SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def test_one_score_by_hand() -> None:
    scores = [0.8, 0.5, 0.9]
    assert aggregated(scores, "last") == 0.9
    assert aggregated(scores, "min") == 0.5
    assert aggregated(scores, "product") == pytest.approx(0.36)
    assert aggregated(scores, "mean") == pytest.approx(2.2 / 3)


@given(SCORES)
def test_their_order(scores: list[float]) -> None:
    joined = {how: aggregated(scores, how) for how in AGGREGATES}
    assert joined["product"] <= joined["min"] <= joined["mean"] + 1e-12
    assert joined["min"] <= joined["last"]


@given(SCORES)
def test_a_sound_step_more_pays_in_the_mean_alone(scores: list[float]) -> None:
    longer = [1.0, *scores]
    assert all(aggregated(longer, how) == pytest.approx(aggregated(scores, how)) for how in ("last", "min", "product"))
    assert aggregated(longer, "mean") >= aggregated(scores, "mean") - 1e-12


@pytest.mark.parametrize("how", AGGREGATES)
def test_no_step_is_worth_nothing(how: str) -> None:
    assert aggregated([], how) == 0


@pytest.mark.parametrize("score", [math.nan, -0.1, 1.5])
def test_what_is_no_chance_is_named(score: float) -> None:
    with pytest.raises(ValueError, match="step 1"):
        aggregated([0.5, score], "last")


def test_an_unknown_way_names_the_others() -> None:
    with pytest.raises(ValueError, match="last, min, product, mean"):
        aggregated([0.5], "median")
