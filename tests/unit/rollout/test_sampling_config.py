"""Training samples from the whole distribution that the loss differentiates; anything else is refused with a reason."""

from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.rollout.sampling import SamplingConfig
from groupwise.trainers.grpo import GrpoRecipe


def recipe(**sampling: Any) -> dict[str, Any]:
    return {"run": {"directory": "run", "num_steps": 1}, "task": {"kind": "arithmetic"}, "sampling": sampling}


@pytest.mark.parametrize("sampling", [{"top_k": 20}, {"top_p": 0.9}, {"top_k": 5, "top_p": 0.5}])
def test_training_with_truncated_sampling_is_refused_with_the_reason(sampling: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(GrpoRecipe, recipe(**sampling))
    message = str(caught.value)
    assert "top_k" in message
    assert "top_p" in message
    assert "full softmax" in message
    assert "evaluation only" in message


def test_training_with_equal_completions_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="equal completions"):
        parse(GrpoRecipe, recipe(temperature=0.0))


def test_truncation_is_refused_also_from_the_command_line() -> None:
    with pytest.raises(ConfigError, match="full softmax"):
        parse(GrpoRecipe, recipe(), changes=["sampling.top_p=0.95"])


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.6}, {"top_k": 0, "top_p": 1.0}])
def test_training_from_the_whole_distribution_is_accepted(sampling: dict[str, float]) -> None:
    parsed = parse(GrpoRecipe, recipe(**sampling)).sampling
    assert (parsed.top_k, parsed.top_p) == (0, 1.0)


@pytest.mark.parametrize(
    "sampling", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}, {"max_tokens": 0}]
)
def test_impossible_values_are_refused(sampling: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SamplingConfig.model_validate(sampling)
