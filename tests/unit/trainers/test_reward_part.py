"""Reward models' parts of the reward: what they earn by hand, what they see, where they count, and that steps train."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.checks.memory import plan
from groupwise.config import dump_toml, load, parse
from groupwise.errors import ConfigError, ModelError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import encode_prompt
from groupwise.models.reward_model import RewardModel, start_reward_model
from groupwise.tasks.base import Template
from groupwise.tasks.environments.base import EnvironmentConfig
from groupwise.trainers.grpo import GrpoRecipe, grpo_learner
from groupwise.trainers.ppo import PpoRecipe, ppo_learner
from groupwise.trainers.reward_part import (
    RewardModelPartConfig,
    check_problems,
    load_reward_models,
    with_reward_model_parts,
)
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, ScoredGroup, Verdict
from groupwise.verifiers import make_verifier

THINK = Template(prefill="<think>")
TEXTS = ["hm</think>\n 4 \n", "hm</think>five", "hm, hm", "hm</think> ", "no"]
BOTH = pytest.mark.parametrize(("kind", "learner"), [(GrpoRecipe, grpo_learner), (PpoRecipe, ppo_learner)])


@pytest.fixture
def paths(tiny_policy: Callable[..., Policy], tmp_path: Path) -> dict[str, str]:
    """A policy and two reward models on disk."""
    save_checkpoint(tmp_path / "policy", tiny_policy())
    made = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
    for seed, name in enumerate(["helpful", "harmless"]):
        with torch.no_grad():
            made.head.weight.copy_(torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(seed)))
        save_checkpoint(tmp_path / name, made)
    return {name: str(tmp_path / name) for name in ("policy", "helpful", "harmless")}


@pytest.fixture
def policy(paths: dict[str, str]) -> Policy:
    return load_policy(ModelConfig(path=paths["policy"], device="cpu"))


@pytest.fixture
def models(paths: dict[str, str]) -> dict[str, RewardModel]:
    configs = {name: RewardModelPartConfig(path=paths[name]) for name in ("helpful", "harmless")}
    return load_reward_models(configs, ModelConfig(device="cpu"))


@pytest.fixture
def scored_texts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of texts of every forward of a reward model."""
    calls, real = [], RewardModel.scores

    def scores(self: RewardModel, sequences: Sequence[Sequences]) -> torch.Tensor:
        calls.append(sum(len(one.completions) for one in sequences))
        return real(self, sequences)

    monkeypatch.setattr(RewardModel, "scores", scores)
    return calls


def group(policy: Policy, texts: Sequence[str], question: str = "2+2=", open_ended: bool = False) -> ScoredGroup:
    """Correct completions, and at the end one on which the verifier failed."""
    prompt = encode_prompt(policy, THINK, Problem(question, question, "4", open_ended=open_ended))
    completions = []
    for i, text in enumerate(texts):
        ids = np.array([*policy.tokenizer(text, add_special_tokens=False)["input_ids"], 1])
        empty = np.zeros(len(ids), np.float32)
        completions.append(Completion(i, ids, empty, empty, FinishReason.STOP, text))
    verdicts = [Verdict(Outcome.CORRECT, {"accuracy": 1.0}, "", measures={"m": 0.5})] * (len(texts) - 1)
    failed = Verdict(Outcome.CRASHED, {}, "")
    return ScoredGroup(Group(prompt, tuple(completions), 0, 0), (*verdicts, failed))


def parts(scored: ScoredGroup, name: str) -> list[float | None]:
    return [verdict.parts.get(name) for verdict in scored.verdicts]


def score(model: RewardModel, prompt: str, completion: str) -> float:
    """By transformers' own forward of the whole text."""
    ids = model.tokenizer(prompt + completion)["input_ids"]
    model.model.set_attn_implementation("eager")
    with torch.no_grad():
        found: float = model.model(torch.tensor([[*ids, 1]]), use_cache=False).logits.item()
    model.model.set_attn_implementation("groupwise")
    return found


def test_the_part_is_weight_times_the_clipped_score(
    policy: Policy, models: dict[str, RewardModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.models.reward_model.micro_batch_tokens", lambda budget, device: 40)
    configs = {"helpful": RewardModelPartConfig(path="x", weight=0.5, clip=8.0)}
    scored = [group(policy, TEXTS), group(policy, TEXTS[:2], "1+1+2=")]
    found = with_reward_model_parts(scored, models, configs, THINK, step=0)
    clipped = 0
    for before, after in zip(scored, found, strict=True):
        assert after.group is before.group
        for completion, verdict in list(zip(before.group.completions, after.verdicts, strict=True))[:-1]:
            expected = score(models["helpful"], before.group.prompt.text, completion.text)
            is_cut = float(abs(expected) > 8)
            assert verdict.measures == {"m": 0.5, "helpful": pytest.approx(expected, abs=1e-5), "cut/helpful": is_cut}
            part = 0.5 * min(max(expected, -8.0), 8.0)
            assert verdict.parts == {"accuracy": 1.0, "helpful": pytest.approx(part, abs=1e-5)}
            assert verdict.reward == pytest.approx(1 + part, abs=1e-5)
            clipped += is_cut
        assert after.verdicts[-1] is before.verdicts[-1]  # the verifier failed: still no reward
    assert 0 < clipped < 5


def test_with_answer_only_what_follows_the_reasoning_is_seen(policy: Policy, models: dict[str, RewardModel]) -> None:
    configs = {"helpful": RewardModelPartConfig(path="x", clip=100.0, see="answer")}
    [found] = with_reward_model_parts([group(policy, TEXTS)], models, configs, THINK, step=0)
    expected = [score(models["helpful"], "2+2=\n", text) for text in ("4", "five")]
    assert parts(found, "helpful") == [*(pytest.approx(one, abs=1e-5) for one in expected), -100.0, -100.0, None]
    assert ["helpful" in verdict.measures for verdict in found.verdicts] == [True, True, False, False, False]
    configs = {"helpful": RewardModelPartConfig(path="x", clip=100.0)}  # an empty completion is scored, too
    [found] = with_reward_model_parts([group(policy, ["", "no"])], models, configs, THINK, step=0)
    assert parts(found, "helpful") == [pytest.approx(score(models["helpful"], "2+2=\n<think>", ""), abs=1e-5), None]


@pytest.mark.parametrize("see", ["completion", "answer"])
def test_a_completion_that_was_cut_off_is_not_scored(
    policy: Policy, models: dict[str, RewardModel], scored_texts: list[int], see: Any
) -> None:
    whole = group(policy, TEXTS[:3])
    first, *rest = whole.group.completions
    cut_off = dataclasses.replace(first, finish_reason=FinishReason.LENGTH)
    scored = dataclasses.replace(whole, group=dataclasses.replace(whole.group, completions=(cut_off, *rest)))
    configs = {"helpful": RewardModelPartConfig(path="x", weight=0.5, clip=8.0, see=see)}
    [found] = with_reward_model_parts([scored], models, configs, THINK, step=0)
    assert found.verdicts[0].parts == {"accuracy": 1.0, "helpful": -4.0}
    assert ["helpful" in verdict.measures for verdict in found.verdicts] == [False, True, False]
    assert scored_texts == [1]


def test_what_an_environment_asked_is_what_the_model_reads(policy: Policy, models: dict[str, RewardModel]) -> None:
    configs = {"helpful": RewardModelPartConfig(path="x", clip=100.0)}
    plain = group(policy, TEXTS)
    problem = dataclasses.replace(plain.group.prompt.problem, environment=EnvironmentConfig(kind="guess"))
    found = []
    for asked in (plain.group.prompt.text + "<think>\n", "You have 7, I show 9.\n<think>"):
        prompt = dataclasses.replace(plain.group.prompt, problem=problem, text=asked)
        found.append(dataclasses.replace(plain, group=dataclasses.replace(plain.group, prompt=prompt)))
    [as_plain] = with_reward_model_parts([plain], models, configs, THINK, step=0)
    [as_asked] = with_reward_model_parts(found[:1], models, configs, THINK, step=0)
    assert parts(as_asked, "helpful") == parts(as_plain, "helpful")
    with pytest.raises(ConfigError, match=r"'x' would read '2\+2=.*' before .* whose environment began with 'You have"):
        with_reward_model_parts(found[1:], models, configs, THINK, step=0)


def test_two_models_each_see_and_earn_their_own(policy: Policy, models: dict[str, RewardModel]) -> None:
    """Helpfulness sees the answer, harmlessness all; which comes first changes nothing but the order of the parts."""
    scored = [group(policy, TEXTS[:3])]
    configs = {
        "helpful": RewardModelPartConfig(path="x", clip=100.0, see="answer"),
        "harmless": RewardModelPartConfig(path="y", clip=100.0, weight=0.1),
    }
    [found] = with_reward_model_parts(scored, models, configs, THINK, step=0)
    [turned] = with_reward_model_parts(scored, models, dict(reversed(configs.items())), THINK, step=0)
    assert found == turned
    for verdict, text, answer in zip(found.verdicts, TEXTS[:2], ["4", "five"], strict=False):
        helpful = score(models["helpful"], "2+2=\n", answer)
        harmless = score(models["harmless"], "2+2=\n<think>", text)
        measures = {"m": 0.5, "helpful": helpful, "cut/helpful": 0, "harmless": harmless, "cut/harmless": 0}
        assert verdict.measures == pytest.approx(measures, abs=1e-5)
        assert verdict.reward == pytest.approx(1 + helpful + 0.1 * harmless, abs=1e-5)
        assert list(verdict.parts) == ["accuracy", "helpful", "harmless"]
    assert list(turned.verdicts[0].parts) == ["accuracy", "harmless", "helpful"]


def test_before_its_first_step_a_model_computes_and_pays_nothing(
    policy: Policy, models: dict[str, RewardModel], scored_texts: list[int]
) -> None:
    configs = {"helpful": RewardModelPartConfig(path="x"), "harmless": RewardModelPartConfig(path="y", first_step=3)}
    scored = [group(policy, TEXTS)]
    names = []
    for step in range(5):
        [found] = with_reward_model_parts(scored, models, configs, THINK, step)
        names.append([name for name in configs if name in found.verdicts[0].parts])
    assert names == [["helpful"]] * 3 + [["helpful", "harmless"]] * 2
    assert scored_texts == [4] * (5 + 2)  # not the one on which the verifier failed


def test_open_ended_problems_alone(policy: Policy, models: dict[str, RewardModel], scored_texts: list[int]) -> None:
    configs = {"helpful": RewardModelPartConfig(path="x", problems="open_ended")}
    scored = [group(policy, TEXTS), group(policy, TEXTS[:3], "1+1=", open_ended=True), group(policy, TEXTS, "3=")]
    found = with_reward_model_parts(scored, models, configs, THINK, step=0)
    assert [found[0], found[2]] == [scored[0], scored[2]]
    assert [part is None for part in parts(found[1], "helpful")] == [False, False, True]
    assert scored_texts == [2]
    with_reward_model_parts([scored[0], scored[2]], models, configs, THINK, step=0)
    assert scored_texts == [2]


@pytest.mark.parametrize("problems", ["all", "open_ended"])
def test_behind_the_gate_only_what_is_correct(
    policy: Policy, models: dict[str, RewardModel], scored_texts: list[int], problems: Any
) -> None:
    configs = {"helpful": RewardModelPartConfig(path="x", gate="correct", problems=problems)}
    wrong = Verdict(Outcome.WRONG, {"accuracy": 0.0}, "")
    correct = group(policy, TEXTS[:3], open_ended=True)
    scored = dataclasses.replace(correct, verdicts=(correct.verdicts[0], wrong, correct.verdicts[2]))
    [found] = with_reward_model_parts([scored], models, configs, THINK, step=0)
    assert [part is None for part in parts(found, "helpful")] == [False, True, True]
    assert found.verdicts[1] is wrong
    assert scored_texts == [1]


def test_without_reward_models_nothing_is_loaded_and_nothing_changes(policy: Policy) -> None:
    scored = [group(policy, TEXTS)]
    assert load_reward_models({}, ModelConfig(path="there is no such model")) == {}
    assert with_reward_model_parts(scored, {}, {}, THINK, step=0) == scored


def test_what_no_reward_model_can_judge_is_refused(
    policy: Policy, models: dict[str, RewardModel], paths: dict[str, str]
) -> None:
    with pytest.raises(ModelError, match="is a language model, not a reward model"):
        load_reward_models({"helpful": RewardModelPartConfig(path=paths["policy"])}, ModelConfig(device="cpu"))
    configs = {"helpful": RewardModelPartConfig(path="x")}
    with pytest.raises(ModelError, match=r"'x' reads 256 tokens, but a completion of problem 2\+2= has 307"):
        with_reward_model_parts([group(policy, ["4" * 300, "4"])], models, configs, THINK, step=0)


def recipe(kind: Any, paths: dict[str, str], *overrides: str) -> Any:
    section = kind.model_fields["algorithm"].default
    models = {
        "helpful": {"path": paths["helpful"], "weight": 2.0}, "harmless": {"path": paths["harmless"], "first_step": 1},
    }  # fmt: skip
    values = {
        "run": {"directory": "unused", "num_steps": 3}, "model": {"path": paths["policy"], "device": "cpu"},
        "task": {"kind": "arithmetic"}, "sampling": {"max_tokens": 12}, "reward_models": models,
        section: {"prompts_per_step": 2, "group_size": 3},
    }  # fmt: skip
    return parse(kind, values, ["optimizer.lr=1e-3", *overrides])


@BOTH
@pytest.mark.parametrize("step", [0, 1])
def test_a_step_trains_on_the_scores(
    paths: dict[str, str], models: dict[str, RewardModel], kind: Any, learner: Any, step: int
) -> None:
    """A random policy is never right, so the scores alone make the advantages."""
    one = recipe(kind, paths)
    policy = dataclasses.replace(load_policy(one.model), stop_ids=frozenset(range(1, 41)))
    problems = [Problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(2)]
    with make_verifier(one.verifier) as verifier:
        result = learner(one, policy, verifier).step(step, problems)
    weights = {"helpful": 2.0, "harmless": 1.0} if step else {"helpful": 2.0}
    for found in result.groups:
        rewards = []
        for completion, verdict in zip(found.scored.group.completions, found.scored.verdicts, strict=True):
            prompt, has_end = found.scored.group.prompt.text, completion.finish_reason is FinishReason.STOP
            expected = {name: score(models[name], prompt, completion.text) for name in weights if has_end}
            clipped = {name: min(max(expected.get(name, -5.0), -5.0), 5.0) for name in weights}
            rewards.append(sum(weights[name] * clipped[name] for name in weights))
            cuts = {f"cut/{name}": float(abs(one) > 5) for name, one in expected.items()}
            assert verdict.measures == pytest.approx(expected | cuts, abs=1e-4)
            assert verdict.reward == pytest.approx(rewards[-1], abs=1e-4)
        if kind is GrpoRecipe:
            for advantages, expected in zip(found.advantages, np.subtract(rewards, np.mean(rewards)), strict=True):
                assert advantages == pytest.approx(np.full_like(advantages, expected), abs=1e-4)
    assert all(any(map(np.any, found.advantages)) for found in result.groups)
    assert result.update.grad_norm > 0


@pytest.mark.parametrize("kind", [GrpoRecipe, PpoRecipe])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("reward_models.accuracy.path=x", r"reward_models\.accuracy: the names accuracy, cap, environment, .* taken"),
        ("reward_models.format.path=x", r"reward_models\.format: the names .* are taken"),
        ("reward_models.Help.path=x", r"reward_models\.Help"),
        (
            "verifier.parts.helpful={kind='format', weight=1}",
            r"reward_models\.helpful: the names .*, helpful, .* taken",
        ),
        ("reward_models.helpful.first_step=3", r"helpful\.first_step = 3 .* run\.num_steps = 3; at most 2 is allowed"),
        ("reward_models.helpful.first_step=-1", r"reward_models\.helpful\.first_step = -1"),
        ("reward_models.helpful.problems=open", r"reward_models\.helpful\.problems = 'open'"),
        ("verifier.cap_wrong=0.5", r"cap_wrong = 0\.5 bounds .* but reward_models\.helpful is paid after it; allowed"),
        ("reward_model.path=x", r"reward_model: unknown key; did you mean 'reward_models'"),
    ],
)
def test_contradictions_are_named(paths: dict[str, str], kind: Any, change: str, says: str) -> None:
    recipe(kind, paths, "reward_models.helpful.first_step=2")
    with pytest.raises(ConfigError, match=says):
        recipe(kind, paths, change)


@pytest.mark.parametrize("change", ["weight=0", "gate=correct"])
def test_a_cap_stands_beside_what_does_not_pay_for_wrong_answers(paths: dict[str, str], change: str) -> None:
    changes = [f"reward_models.{name}.{one}" for name in ("helpful", "harmless") for one in (change, "clip=0.1")]
    assert recipe(GrpoRecipe, paths, "verifier.cap_wrong=0.5", *changes).verifier.cap_wrong == 0.5


def test_behind_the_gate_no_correct_answer_earns_less_than_a_wrong_one(paths: dict[str, str]) -> None:
    one = "reward_models.helpful"
    with pytest.raises(ConfigError, match=r"helpful.weight · clip = 1, gated .* is less than verifier.* = 1"):
        recipe(GrpoRecipe, paths, f"{one}.gate=correct", f"{one}.weight=0.5", f"{one}.clip=2")
    recipe(GrpoRecipe, paths, f"{one}.gate=correct", f"{one}.weight=0.5", f"{one}.clip=1.9")


def test_advantages_that_cannot_use_a_score_are_refused(paths: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"advantage\.kind = 'process' reads the rewards of steps alone"):
        recipe(GrpoRecipe, paths, "advantage=process")
    with pytest.raises(ConfigError, match=r"helpful costs up to weight · clip = 10; allowed is weight = 0, or"):
        recipe(GrpoRecipe, paths, "advantage=divided_by_mean")
    unpaid = [f"reward_models.{name}.weight=0" for name in ("helpful", "harmless")]
    recipe(GrpoRecipe, paths, "advantage=divided_by_mean", *unpaid)


def test_a_model_that_waits_for_open_ended_problems_needs_some(paths: dict[str, str]) -> None:
    configs = {"a": RewardModelPartConfig(path="x"), "b": RewardModelPartConfig(path="x", problems="open_ended")}
    by_rule, open_ended = Problem("p", "2+2=", "4"), Problem("q", "Thank me.", "", open_ended=True)
    check_problems(configs, [by_rule, open_ended])
    with pytest.raises(ConfigError, match=r"reward_models\.b\.problems .* none of the 2 training problems"):
        check_problems(configs, [by_rule, by_rule])
    check_problems({"a": configs["a"]}, [by_rule])


def test_a_written_recipe_reads_back_and_memory_counts_the_weights_of_both(
    paths: dict[str, str], models: dict[str, RewardModel], tmp_path: Path
) -> None:
    one = recipe(GrpoRecipe, paths)
    (tmp_path / "config.toml").write_text(dump_toml(one))
    again = load(GrpoRecipe, tmp_path / "config.toml")
    assert again == one
    assert list(again.reward_models) == ["helpful", "harmless"]
    without = plan(one.model_copy(update={"reward_models": {}}))
    size = 4 * sum(parameter.numel() for parameter in models["helpful"].model.parameters())
    both = {"reward model helpful": size, "reward model harmless": size}
    assert plan(one).weights == {**without.weights, **both}
