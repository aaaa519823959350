"""The bridge from verdicts to estimators, and recipes that contradict themselves."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import MagicMock

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
from groupwise.trainers.grpo import GrpoRecipe, Refilled, advantaged, refilled
from groupwise.trainers.report import Seconds, StepResult, step_report
from groupwise.trainers.rl_run import FADING, UNSEEN, PassRates, RlRun, problem_order
from groupwise.training.config import LossConfig
from groupwise.training.session import Progress
from groupwise.training.tokens import UpdateTrace, with_kl_part
from groupwise.training.update import UpdateMetrics
from groupwise.types import AdvantagedGroup, Outcome, Problem, ScoredGroup, StepReward, Verdict
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


Score = Callable[[Problem, bool], ScoredGroup]


def problems(names: str) -> list[Problem]:
    """One problem a letter; capitals have signal."""
    return [Problem(name, "", "") for name in names]


class Sampler:
    def __init__(self, scored: Score) -> None:
        self.scored = scored
        self.asked: list[str] = []

    def __call__(self, chosen: Sequence[Problem]) -> list[ScoredGroup]:
        self.asked.append("".join(problem.id for problem in chosen))
        return [self.scored(problem, problem.id.isupper()) for problem in chosen]


def sampled(sampler: Sampler, first: str, spare: str, refills: int) -> Refilled:
    return refilled(sampler, problems(first), problems(spare), refills)


@pytest.mark.parametrize(
    ("first", "spare", "refills", "asked", "kept"),
    [
        ("AbCd", "EFgh", 0, ["AbCd"], "AbCd"),  # no refill: the groups as they came
        ("ABCD", "EF", 3, ["ABCD"], "ABCD"),  # nothing to replace
        ("AbCd", "EFgh", 3, ["AbCd", "EF"], "ACEF"),
        ("AbCd", "eFGh", 3, ["AbCd", "eF", "G"], "ACFG"),
        ("AbCd", "eFGh", 1, ["AbCd", "eF"], "ACFb"),  # the bound leaves one without signal
        ("abcd", "ef", 9, ["abcd", "ef"], "abcd"),  # spare problems run out
    ],
)
def test_rounds(first: str, spare: str, refills: int, asked: list[str], kept: str, scored: Score) -> None:
    sampler = Sampler(scored)
    rounds = sampled(sampler, first, spare, refills)
    assert sampler.asked == asked
    assert ["".join(ids) for ids in rounds.problems] == asked
    assert "".join(group.group.prompt.problem.id for group in rounds.kept) == kept
    assert "".join(group.group.prompt.problem.id for group in rounds.sampled) == "".join(asked)


def test_what_was_sampled_is_counted_whole(scored: Score) -> None:
    rounds = sampled(Sampler(scored), "Ab", "C", 1)
    groups = [AdvantagedGroup(group, (np.zeros(3), np.zeros(3))) for group in rounds.kept]
    update = UpdateMetrics(**dict.fromkeys(UpdateMetrics._fields, 0))
    result = StepResult(groups, update, Seconds(1, 1, 1, 1), rounds.problems, rounds.sampled, UpdateTrace())
    report = step_report(0, 1, result, lr=0)
    assert report.sampled_tokens == 3 * 2 * 3
    assert (report.sampled_groups, report.refilled_groups) == (3, 1)
    assert report.correct == 1 / 2
    assert report.sampled_correct == pytest.approx((1 + 2 + 1) / 6)  # of the kept ones alone it would be one half
    run = MagicMock(pass_rates=PassRates({}))
    run.recorder.step.return_value, run.session.progress, run.recipe.token_budget = {}, Progress(), 0
    run.session.optimizer.updates_done = 0
    RlRun.record(run, 3, result)
    assert run.session.progress.pass_rates["problem"].keys() == {"A", "b", "C"}  # the replaced one, too


def test_an_epoch_holds_every_problem_once() -> None:
    first, second = (
        [index for step in steps for index in problem_order(23, 5, seed=0, step=step)[:5]]
        for steps in (range(4), range(4, 8))
    )
    for epoch in (first, second):
        assert len(set(epoch)) == 20
    assert first != second


def test_spares_are_the_rest_in_the_epochs_order() -> None:
    order = problem_order(23, 5, seed=0, step=1)
    assert sorted(order) == list(range(23))
    assert order[5:10] == problem_order(23, 5, seed=0, step=2)[:5]


def test_rates_fade_and_survive_a_checkpoint(scored: Score) -> None:
    rates = PassRates({})
    problem, neighbour = Problem("p", "", "", "easy"), Problem("q", "", "", "easy")
    assert rates.estimate(problem) == UNSEEN
    rates.learn([scored(problem, False)])
    assert rates.estimate(problem) == 1.0
    assert rates.estimate(neighbour) == 1.0  # of its difficulty
    rates.learn([scored(problem, True)])
    assert rates.estimate(problem) == FADING * 1.0 + (1 - FADING) * 0.5
    again = PassRates(json.loads(json.dumps(rates.state())))
    assert again.estimate(problem) == rates.estimate(problem)
    assert again.estimate(Problem("r", "", "", "hard")) == UNSEEN


def test_problems_are_drawn_by_what_they_can_teach() -> None:
    problems = [Problem(f"p{i}", "", "", "") for i in range(4)]
    rates = PassRates({"problem": {"p0": 0.5, "p1": 0.1, "p2": 1.0, "p3": 0.0}})
    first = Counter(rates.draw(problems, seed=0, step=step)[0] for step in range(4000))
    weights = [0.25, 0.09, 0.01, 0.01]
    for index, weight in enumerate(weights):
        assert first[index] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)
    assert sorted(rates.draw(problems, 0, 1)) == [0, 1, 2, 3]
    assert rates.draw(problems, 0, 1) == rates.draw(problems, 0, 1)
