"""A reward model's part of the reward: what it earns by hand, what it sees, and that GRPO and PPO train on it."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import parse
from groupwise.errors import ConfigError, ModelError
from groupwise.health.memory import plan
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.policy import ModelConfig, Policy, load_policy
from groupwise.models.reward_model import RewardModel, start_reward_model
from groupwise.rollout.collect import encode_prompt
from groupwise.tasks.base import Template
from groupwise.trainers.grpo import GrpoRecipe, grpo_learner
from groupwise.trainers.ppo import PpoRecipe, ppo_learner
from groupwise.trainers.reward_part import RewardModelPartConfig, load_part, with_reward_model_part
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, ScoredGroup, Verdict
from groupwise.verifiers import make_verifier

THINK = Template(prefill="<think>")
TEXTS = ["hm</think>\n 4 \n", "hm</think>five", "hm, hm", "hm</think> ", "no"]


@pytest.fixture
def paths(tiny_policy: Callable[..., Policy], tmp_path: Path) -> dict[str, str]:
    """A policy and a reward model on disk."""
    save_checkpoint(tmp_path / "policy", tiny_policy())
    made = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
    with torch.no_grad():
        made.head.weight.copy_(torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    save_checkpoint(tmp_path / "reward", made)
    return {name: str(tmp_path / name) for name in ("policy", "reward")}


@pytest.fixture
def reward_model(paths: dict[str, str]) -> RewardModel:
    found = load_part(RewardModelPartConfig(path=paths["reward"]), ModelConfig(device="cpu"))
    assert found is not None
    return found


def group(policy: Policy, texts: Sequence[str], template: Template, question: str = "2+2=") -> ScoredGroup:
    prompt = encode_prompt(policy, template, Problem(question, question, "4"))
    completions = []
    for i, text in enumerate(texts):
        ids = np.array([*policy.tokenizer(text, add_special_tokens=False)["input_ids"], 1])
        empty = np.zeros(len(ids), np.float32)
        completions.append(Completion(i, ids, empty, empty, FinishReason.STOP, text))
    verdicts = [Verdict(Outcome.CORRECT, {"accuracy": 1.0}, "", measures={"m": 0.5})] * (len(texts) - 1)
    failed = Verdict(Outcome.CRASHED, {}, "")
    return ScoredGroup(Group(prompt, tuple(completions), 0, 0), (*verdicts, failed))


def score(model: RewardModel, prompt: str, completion: str) -> float:
    """By transformers' own forward of the whole text."""
    ids = model.tokenizer(prompt + completion)["input_ids"]
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        found: float = model.model(torch.tensor([[*ids, 1]]), use_cache=False).logits.item()
    model.model.set_attn_implementation("groupwise")
    return found


def test_the_part_is_weight_times_the_clipped_score(paths: dict[str, str], reward_model: RewardModel) -> None:
    policy = load_policy(ModelConfig(path=paths["policy"], device="cpu"))
    config = RewardModelPartConfig(path=paths["reward"], weight=0.5, clip=8.0, tokens_per_micro_batch=40)
    scored = [group(policy, TEXTS, THINK), group(policy, TEXTS[:2], THINK, "1+1+2=")]
    found = with_reward_model_part(scored, reward_model, config, THINK)
    clipped = 0
    for before, after in zip(scored, found, strict=True):
        assert after.group is before.group
        for completion, verdict in list(zip(before.group.completions, after.verdicts, strict=True))[:-1]:
            expected = score(reward_model, before.group.prompt.text, completion.text)
            assert verdict.measures == {"m": 0.5, "reward_model": pytest.approx(expected, abs=1e-5)}
            part = 0.5 * min(max(expected, -8.0), 8.0)
            assert verdict.parts == {"accuracy": 1.0, "reward_model": pytest.approx(part, abs=1e-5)}
            assert verdict.reward == pytest.approx(1 + part, abs=1e-5)
            clipped += abs(expected) > 8
        assert after.verdicts[-1] is before.verdicts[-1]  # the verifier failed: still no reward
    assert 0 < clipped < 5


def test_with_answer_only_what_follows_the_reasoning_is_seen(paths: dict[str, str], reward_model: RewardModel) -> None:
    policy = load_policy(ModelConfig(path=paths["policy"], device="cpu"))
    config = RewardModelPartConfig(path=paths["reward"], clip=100.0, see="answer")
    [found] = with_reward_model_part([group(policy, TEXTS, THINK)], reward_model, config, THINK)
    expected = [score(reward_model, "2+2=\n", "4"), score(reward_model, "2+2=\n", "five"), -100.0, -100.0]
    assert [verdict.parts["reward_model"] for verdict in found.verdicts[:-1]] == pytest.approx(expected, abs=1e-5)
    assert ["reward_model" in verdict.measures for verdict in found.verdicts] == [True, True, False, False, False]


def test_without_a_reward_model_nothing_is_loaded_and_nothing_changes(paths: dict[str, str]) -> None:
    policy = load_policy(ModelConfig(path=paths["policy"], device="cpu"))
    scored = [group(policy, TEXTS, THINK)]
    assert load_part(None, ModelConfig(path="there is no such model")) is None
    assert with_reward_model_part(scored, None, None, THINK) == scored


def test_what_is_longer_than_the_reward_model_reads_is_refused(
    paths: dict[str, str], reward_model: RewardModel
) -> None:
    policy = load_policy(ModelConfig(path=paths["policy"], device="cpu"))
    scored = [group(policy, ["4" * 300, "4"], THINK)]
    with pytest.raises(ModelError, match=r"reads 256 tokens, but a completion of problem 2\+2= has 307"):
        with_reward_model_part(scored, reward_model, RewardModelPartConfig(path="x"), THINK)


def test_a_language_model_is_no_reward_model(paths: dict[str, str]) -> None:
    with pytest.raises(ModelError, match="is a language model, not a reward model"):
        load_part(RewardModelPartConfig(path=paths["policy"]), ModelConfig(device="cpu"))


def recipe(kind: Any, paths: dict[str, str], *overrides: str) -> Any:
    section = kind.model_fields["algorithm"].default
    values = {
        "run": {"directory": "unused", "num_steps": 1},
        "model": {"path": paths["policy"], "device": "cpu"},
        "task": {"name": "arithmetic"},
        "sampling": {"max_tokens": 12},
        "reward_model": {"path": paths["reward"], "weight": 2.0},
        section: {"prompts_per_step": 2, "group_size": 3},
    }
    return parse(kind, values, ["optimizer.lr=1e-3", *overrides])


@pytest.mark.parametrize(("kind", "learner"), [(GrpoRecipe, grpo_learner), (PpoRecipe, ppo_learner)])
def test_a_step_trains_on_the_score(paths: dict[str, str], reward_model: RewardModel, kind: Any, learner: Any) -> None:
    """A random policy is never right, so the score alone makes the advantages."""
    one = recipe(kind, paths)
    policy = dataclasses.replace(load_policy(one.model), stop_ids=frozenset(range(1, 41)))
    problems = [Problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(2)]
    with make_verifier("math", one.verifier) as verifier:
        result = learner(one, policy).step(0, problems, [], verifier)
    for found in result.groups:
        rewards = []
        for completion, verdict in zip(found.scored.group.completions, found.scored.verdicts, strict=True):
            expected = score(reward_model, found.scored.group.prompt.text, completion.text)
            rewards.append(2.0 * min(max(expected, -5.0), 5.0))
            assert verdict.reward == pytest.approx(rewards[-1], abs=1e-4)
        if kind is GrpoRecipe:
            assert found.advantages == pytest.approx(np.subtract(rewards, np.mean(rewards)), abs=1e-4)
    assert all(found.has_gradient for found in result.groups)
    assert result.update.grad_norm > 0


def test_contradictions_are_named(paths: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"advantage = 'process' reads the rewards of steps alone"):
        recipe(GrpoRecipe, paths, "grpo.advantage=process")
    with pytest.raises(ConfigError, match=r"parts\.reward_model: the names .* are taken"):
        recipe(GrpoRecipe, paths, "verifier.parts.reward_model.kind=format", "verifier.parts.reward_model.weight=1")


def test_the_memory_plan_counts_the_reward_models_weights(paths: dict[str, str], reward_model: RewardModel) -> None:
    one = recipe(GrpoRecipe, paths)
    without = plan(one.model_copy(update={"reward_model": None}))
    found = plan(one)
    size = 4 * sum(parameter.numel() for parameter in reward_model.model.parameters())
    assert found.weights == {**without.weights, "reward model": size}
