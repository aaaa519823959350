"""Texts that end a completion: sampling ends there, and the text is judged without them."""

from collections.abc import Callable

import pytest

from groupwise.errors import ConfigError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import EngineConfig
from groupwise.rollout.sample_and_score import Actors, continue_and_score, sample_and_score
from groupwise.rollout.sampling import SamplingConfig, refuse_for_training
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Problem
from groupwise.verifiers.unjudged import Unjudged


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
    with pytest.raises(ValueError, match=r"stop = \['x'\]: a policy learns to end by its stop token"):
        refuse_for_training(sampling)
    actors = Actors.of(tiny_policy(), Template(), Unjudged(), EngineConfig())
    with pytest.raises(ConfigError, match=r"sampling.stop = \['x'\] ends whole completions"):
        continue_and_score(actors, [], sampling, Draws(0, Purpose.SAMPLE))
