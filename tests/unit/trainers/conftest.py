"""Scored groups made by hand, and small models."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import NewModel, character_tokenizer, new_policy
from groupwise.models.policy import Policy
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict

Score = Callable[[Problem, bool], ScoredGroup]


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    """One that stops often."""
    return dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 41)))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a model of characters with random weights."""
    config = NewModel(
        architecture="qwen2", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, context_length=64,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "random"
    tokenizer = character_tokenizer("0123456789 What is?+-!\n")
    save_checkpoint(path, new_policy(config, tokenizer, ModelConfig(device="cpu")))
    return str(path)


@pytest.fixture
def scored() -> Score:
    """scored(problem, has_signal) -> a group of two completions, three tokens each."""

    def make(problem: Problem, has_signal: bool) -> ScoredGroup:
        tokens = np.arange(3)
        zeros = np.zeros(3, np.float32)
        completions = tuple(Completion(i, tokens, zeros, zeros, FinishReason.STOP, "") for i in range(2))
        outcomes = (Outcome.CORRECT, Outcome.WRONG if has_signal else Outcome.CORRECT)
        verdicts = tuple(Verdict(one, {"accuracy": float(one is Outcome.CORRECT)}, "") for one in outcomes)
        return ScoredGroup(Group(Prompt(problem, "", (1,)), completions, 0, 0), verdicts)

    return make
