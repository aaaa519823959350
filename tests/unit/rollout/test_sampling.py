"""Drawing one token per row: the distribution it comes from, and what truncation leaves of it."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose, key, uniforms
from groupwise.rollout.engine import EngineConfig
from groupwise.rollout.sample_and_score import Actors, continuations, continue_and_score, sample_and_score
from groupwise.rollout.sampling import NUMBERS_AT_A_TIME, Drawn, SamplingConfig, draw
from groupwise.tasks.base import Template
from groupwise.trainers import load_recipe
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.types import Completion, FinishReason, Problem
from groupwise.verifiers.unjudged import Unjudged

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -30.0])


def draw_many(config: SamplingConfig, count: int = 20_000, logits: Tensor = LOGITS) -> Drawn:
    numbers = torch.from_numpy(uniforms([key("draw", i) for i in range(count)], 0))
    return draw(logits.expand(count, -1), numbers, config)


def chi_square(tokens: Tensor, probabilities: Tensor) -> float:
    expected = probabilities.double().numpy() * len(tokens)
    counts = np.bincount(tokens.numpy(), minlength=len(expected))
    likely = expected > 5
    assert counts[~likely].sum() <= max(3, 3 * expected[~likely].sum())
    return float(((counts - expected)[likely] ** 2 / expected[likely]).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax_at_the_temperature(temperature: float) -> None:
    drawn = draw_many(SamplingConfig(temperature=temperature))
    assert chi_square(drawn.tokens, (LOGITS / temperature).softmax(0)) < 20.5  # 99.9 % of chi-square with 5 degrees


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_logprobs_and_entropy_are_those_of_the_distribution_drawn_from(temperature: float) -> None:
    drawn = draw_many(SamplingConfig(temperature=temperature), count=100)
    expected = (LOGITS.double() / temperature).log_softmax(0)
    torch.testing.assert_close(drawn.logprobs.double(), expected[drawn.tokens], atol=1e-5, rtol=0)
    entropy = -(expected.exp() * expected).sum().expand(100)
    torch.testing.assert_close(drawn.entropy.double(), entropy, atol=1e-5, rtol=0)


def test_each_token_owns_the_interval_of_its_probability() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    for number, token in [(0.0, 0), (0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2), (1 - 2**-53, 2)]:
        assert draw(logits, torch.tensor([number], dtype=torch.float64), SamplingConfig()).tokens.item() == token


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    for number, token in [(0.0, 1), (0.5 - 1e-12, 1), (0.5 + 1e-12, 3), (1 - 2**-53, 3)]:
        drawn = draw(logits, torch.tensor([number], dtype=torch.float64), SamplingConfig())
        assert drawn.tokens.item() == token
        assert drawn.entropy.item() == pytest.approx(math.log(2))


def test_rows_that_are_drawn_in_pieces_are_drawn_as_alone() -> None:
    logits = torch.randn(5, NUMBERS_AT_A_TIME // 2 - 7, generator=torch.Generator().manual_seed(0))
    numbers = torch.tensor([0.0, 0.2, 0.5, 0.9, 0.999], dtype=torch.float64)
    config = SamplingConfig(temperature=0.8, top_p=0.9)
    together = draw(logits, numbers, config)
    alone = zip(*(draw(logits[i : i + 1], numbers[i : i + 1], config) for i in range(5)), strict=True)
    assert all(torch.equal(whole, torch.cat(rows)) for whole, rows in zip(together, alone, strict=True))


def test_temperature_zero_takes_the_likeliest_token() -> None:
    drawn = draw_many(SamplingConfig(temperature=0), count=50)
    assert set(drawn.tokens.tolist()) == {0}
    assert (drawn.logprobs == 0).all()
    assert (drawn.entropy == 0).all()


@pytest.mark.parametrize(("top_k", "support"), [(1, {0}), (3, {0, 1, 2}), (5, {0, 1, 2, 3, 4})])
def test_top_k_keeps_the_k_likeliest_tokens(top_k: int, support: set[int]) -> None:
    drawn = draw_many(SamplingConfig(top_k=top_k))
    assert set(drawn.tokens.tolist()) == support
    expected = LOGITS[: len(support)].log_softmax(0)
    torch.testing.assert_close(drawn.logprobs, expected[drawn.tokens], atol=1e-5, rtol=0)
    assert chi_square(drawn.tokens, expected.exp()) < 20.5


# probabilities: 0.563, 0.207, 0.126, 0.076, 0.028
@pytest.mark.parametrize(
    ("top_p", "support"), [(0.01, {0}), (0.5, {0}), (0.6, {0, 1}), (0.8, {0, 1, 2}), (0.96, {0, 1, 2, 3})]
)
def test_top_p_keeps_the_smallest_set_with_that_mass(top_p: float, support: set[int]) -> None:
    drawn = draw_many(SamplingConfig(top_p=top_p))
    assert set(drawn.tokens.tolist()) == support
    expected = LOGITS[: len(support)].log_softmax(0)
    torch.testing.assert_close(drawn.logprobs, expected[drawn.tokens], atol=1e-5, rtol=0)


def test_top_p_does_not_depend_on_the_order_of_the_vocabulary() -> None:
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    drawn = draw_many(SamplingConfig(top_p=0.8), logits=LOGITS[order])
    assert {int(order[token]) for token in set(drawn.tokens.tolist())} == {0, 1, 2}


def test_temperature_comes_before_truncation() -> None:
    # at temperature 0.2 the likeliest token alone has 0.99 of the mass
    assert set(draw_many(SamplingConfig(temperature=0.2, top_p=0.95)).tokens.tolist()) == {0}


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


def completions(policy: Policy, *stops: str) -> tuple[Completion, ...]:
    actors = Actors.of(policy, Template(), Unjudged(), EngineConfig())
    sampling = SamplingConfig(max_tokens=24, stop=stops)
    (scored,) = sample_and_score(actors, [Problem("p", "abc", "1")], 8, sampling, Draws(0, Purpose.SAMPLE))
    return scored.group.completions


def test_a_completion_ends_with_the_first_stop_text(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    whole = completions(policy)
    text = max((completion.text for completion in whole), key=len)
    stops = (text[5:7], text[9:11])
    for before, after in zip(whole, completions(policy, *stops), strict=True):
        places = [before.text.index(stop) for stop in stops if stop in before.text]
        assert after.text == before.text[: min(places, default=len(before.text))]
        assert after.token_ids.tolist() == before.token_ids[: len(after.token_ids)].tolist()
        assert (after.finish_reason is FinishReason.STOP_TEXT) == bool(places)
        if places:
            decoded = policy.tokenizer.decode(after.token_ids.tolist())
            assert any(stop in decoded for stop in stops)
            assert not any(stop in policy.tokenizer.decode(after.token_ids[:-1].tolist()) for stop in stops)


def test_where_texts_cannot_end_a_completion(tiny_policy: Callable[..., Policy]) -> None:
    sampling = SamplingConfig(stop=("x",))
    recipe = {"algorithm": "grpo", "run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}
    with pytest.raises(ConfigError, match=r"stop = \['x'\]: a policy learns to end by its stop token"):
        load_recipe({**recipe, "sampling": {"stop": ["x"]}})
    actors = Actors.of(tiny_policy(), Template(), Unjudged(), EngineConfig())
    with pytest.raises(ConfigError, match=r"sampling.stop = \['x'\] ends whole completions"):
        continue_and_score(actors, [], sampling, Draws(0, Purpose.SAMPLE))
    with pytest.raises(ConfigError, match=r"sampling.stop = \['x'\] ends whole completions; a search, and `groupwise"):
        continuations(actors, [], sampling)
    goes_on = [
        (actors, SamplingConfig.model_validate({"stop": ["x"], "tools": {"calculator": {"kind": "calculator"}}})),
        (dataclasses.replace(actors, reflection={"en": "Wait"}), sampling),
    ]
    for others, config in goes_on:
        with pytest.raises(ConfigError, match=r"stop = \['x'\] ends whole completions; .* no result of a tool, no"):
            sample_and_score(others, [Problem("p", "abc", "1")], 2, config, Draws(0, Purpose.SAMPLE))
