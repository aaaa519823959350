"""How the scores of steps become one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.step_metrics import AGGREGATES, aggregated

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def test_by_hand() -> None:
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
