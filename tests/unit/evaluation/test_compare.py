import pytest

from groupwise.errors import DataError
from groupwise.evaluation.compare import common, compare


def test_difference_is_paired_by_problem_not_by_order() -> None:
    estimate = compare({"a": 0.0, "b": 1.0, "c": 0.5}, {"c": 1.0, "a": 0.5, "b": 1.0})
    # differences 0.5, 0, 0.5: mean 1/3, standard error sqrt(1/12) / sqrt(3) = 1/6
    assert estimate.value == pytest.approx(1 / 3)
    assert estimate.high - estimate.value == pytest.approx(1.96 / 6, abs=1e-4)


def test_other_problems_are_refused_and_named() -> None:
    with pytest.raises(DataError, match="2 are on one side only, for example b"):
        compare({"a": 0.0, "b": 1.0}, {"a": 0.0, "c": 1.0})


def test_common_keeps_the_shared_problems() -> None:
    assert common({"a": 0.0, "b": 1.0}, {"c": 1.0, "b": 0.5}) == ({"b": 1.0}, {"b": 0.5})
