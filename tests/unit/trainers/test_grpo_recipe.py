"""The bridge from verdicts to estimators, and recipes that contradict themselves."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from groupwise.algorithms.advantages import ADVANTAGES, advantage
from groupwise.config import parse
from groupwise.errors import ConfigError, VerifierError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.steps import step_ends
from groupwise.tasks.base import Template
from groupwise.trainers.grpo import GrpoRecipe, advantaged
from groupwise.training.config import LossConfig
from groupwise.training.tokens import with_kl_part
from groupwise.types import Outcome, Problem, ScoredGroup, StepReward, Verdict
from groupwise.verifiers.unjudged import Unjudged


def groups(policy: Policy, template: Template | None = None) -> list[ScoredGroup]:
    problems = [Problem("a", "?", ""), Problem("b", "???", "")]
    actors = Actors.of(policy, template or Template(), Unjudged())
    drawn = sample_and_score(actors, problems, 3, SamplingConfig(max_tokens=8), Draws(0, Purpose.TRAIN))
    verdicts = (
        Verdict(Outcome.CORRECT, {"accuracy": 1.0, "format": 0.1}, ""),
        Verdict(Outcome.CRASHED, {}, ""),
        Verdict(Outcome.WRONG, {"accuracy": 0.0}, ""),
    )
    return [ScoredGroup(one.group, verdicts) for one in drawn]


OTHERS = sorted(kind for kind in ADVANTAGES.table if advantage(kind).reads not in ("steps", "turns"))


@pytest.mark.parametrize("estimator", OTHERS)
def test_every_estimator_of_the_table_serves_a_step(policy: Policy, estimator: str) -> None:
    for group in advantaged(groups(policy), advantage(estimator), policy):
        better, failed, worse = group.advantages
        assert failed is None
        assert (better > worse[0]).all()
        assert len(set(better.tolist())) == 1


def test_steps_are_counted_in_tokens(policy: Policy) -> None:
    [first, _] = groups(policy, Template(prefill="<think>"))
    completion = max(first.group.completions, key=lambda one: one.num_tokens)
    ids = completion.token_ids.tolist()
    prefill = len("<think>")
    texts = [policy.tokenizer.decode(ids[:k]) for k in range(len(ids) + 1)]
    for k in range(1, len(ids)):
        if len(texts[k - 1]) < len(texts[k]) < len(completion.text):
            assert step_ends(policy, first.group.prompt, completion, [prefill + len(texts[k])]) == [k]
    whole = prefill + len(completion.text)
    found = step_ends(policy, first.group.prompt, completion, [whole])
    assert found == [len(ids)]  # the stop token is in the last step


def test_process_supervision_reads_the_steps(policy: Policy) -> None:
    [first, _] = groups(policy)
    ends = [len(one.text) for one in first.group.completions]
    verdicts = tuple(
        dataclasses.replace(verdict, steps=() if not verdict.outcome.judged else (StepReward(end, reward),))
        for verdict, end, reward in zip(first.verdicts, ends, (1.0, 9.0, 0.0), strict=True)
    )
    [group] = advantaged([ScoredGroup(first.group, verdicts)], advantage("process"), policy)
    better, failed, worse = group.advantages
    assert failed is None
    np.testing.assert_allclose(better, np.full(first.group.completions[0].num_tokens, 1.0), atol=1e-3)
    np.testing.assert_allclose(worse, np.full(first.group.completions[2].num_tokens, -1.0), atol=1e-3)
    with pytest.raises(VerifierError, match="needs the rewards of steps"):
        advantaged(groups(policy), advantage("process"), policy)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_divergence_becomes_a_reward_part(
    policy: Policy, tiny_policy: Any, eager_logprobs: Any, estimator: str
) -> None:
    reference = tiny_policy(seed=4).freeze()
    config = LossConfig(kl_coef=0.3, kl_in="reward", kl_estimator=estimator)
    before = groups(policy)
    after = with_kl_part(before, reference, config, 1.0)
    for old, new in zip(before, after, strict=True):
        for completion, verdict, given in zip(new.group.completions, new.verdicts, old.verdicts, strict=True):
            pair = (new.group.prompt.token_ids, completion.token_ids.tolist())
            _, ref, _ = eager_logprobs(reference, [pair])
            total = 0.0
            for mine, theirs in zip(completion.sampling_logprobs.tolist(), ref.tolist(), strict=True):
                gap = mine - theirs
                total += {"k1": gap, "k2": gap * gap / 2, "k3": np.exp(-gap) + gap - 1}[estimator]
            assert verdict.parts == {**given.parts, "kl": pytest.approx(-0.3 * total, rel=1e-3, abs=1e-4)}
    assert with_kl_part(before, reference, LossConfig(kl_coef=0.3), 1.0) == before  # a term of the loss, no reward


BASE = {"run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["advantage=grp"], r"there is no advantage 'grp'; known are batch_mean, "),
        (["grpo.group_size=1"], "leaves 'group_mean' nothing to compare with"),
        (["loss.policy=reinforce", "loss.epochs=2"], r"policy\.kind = 'reinforce' is right for one update per step"),
        (["loss.policy.dual_clip=0.5"], r"loss\.policy\.dual_clip = 0\.5: allowed are 0"),
        (["loss.kl_coef=1", "loss.kl_in=reward", "loss.kl_corrected=true"], "kl_corrected = True has no effect here"),
        (["loss.kl_in=reward"], "kl_in = 'reward' has no effect here: it is read only with kl_coef above 0"),
        (["loss.correction.cap=3"], r"cap = 3\.0 has no effect here"),
        (["loss.policy=process"], "there is no policy loss 'process'"),
        (["loss.kl_estimator=k4"], "allowed are k1, k2, k3"),
        (["token_budget=10", "optimizer.schedule=cosine"], "allowed with a budget is 'constant'"),
    ],
)
def test_contradictions_are_named(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(GrpoRecipe, BASE, overrides)


def test_one_completion_per_problem_is_allowed_where_nothing_in_the_group_is_compared() -> None:
    recipe = parse(GrpoRecipe, BASE, ["grpo.group_size=1", "advantage=batch_mean", "loss.policy=reinforce"])
    assert recipe.grpo.group_size == 1
