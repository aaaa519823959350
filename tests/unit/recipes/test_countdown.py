import re
from fractions import Fraction

import pytest

from countdown import Countdown, CountdownConfig
from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.types import SPLITS

TASK = Countdown(CountdownConfig(kind="countdown", num_problems=800, num_eval_problems=60))


def value_of(text: str) -> Fraction:
    """An independent recursive-descent evaluation with exact fractions."""
    tokens = re.findall(r"\d+|[-+×÷()]", text)

    def total() -> Fraction:
        value = product()
        while tokens and tokens[0] in "+-":
            value = value + product() if tokens.pop(0) == "+" else value - product()
        return value

    def product() -> Fraction:
        value = atom()
        while tokens and tokens[0] in "×÷":
            value = value * atom() if tokens.pop(0) == "×" else value / atom()
        return value

    def atom() -> Fraction:
        token = tokens.pop(0)
        if token != "(":
            return Fraction(int(token))
        value = total()
        assert tokens.pop(0) == ")"
        return value

    value = total()
    assert not tokens
    return value


@pytest.mark.parametrize("split", SPLITS)
def test_every_solution_is_exact_and_uses_each_number_once(split: str) -> None:
    for problem in TASK.problems(split):  # type: ignore[arg-type]
        numbers, target = problem.data["numbers"], problem.data["target"]
        assert value_of(problem.reference) == target
        assert sorted(map(int, re.findall(r"\d+", problem.reference))) == sorted(numbers)
        assert list(map(int, re.findall(r"\d+", problem.question))) == [*numbers, target]
        assert 10 <= target <= 100
        assert problem.data["steps"][-1][3] == target


def test_splits_are_disjoint_whatever_the_order_of_the_numbers() -> None:
    contents = [
        {(*sorted(problem.data["numbers"]), problem.data["target"]) for problem in TASK.problems(split)}
        for split in SPLITS
    ]
    assert sum(map(len, contents)) == len(set.union(*contents)) == 920


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_numbers = 5 is above max_numbers = 4"):
        parse(CountdownConfig, {"kind": "countdown", "min_numbers": 5, "max_numbers": 4})
