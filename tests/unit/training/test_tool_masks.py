"""Results of tools in training: no gradient, no weight in any denominator, no price but the one that a recipe names."""

import copy
import dataclasses
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.algorithms.advantages import advantage
from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout import sample_and_score as sampler
from groupwise.rollout.engine import Sampled
from groupwise.rollout.pieces import own_text
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tools.calculator import Calculator, CalculatorConfig
from groupwise.runs.rollouts import write_rollouts
from groupwise.tasks.base import Template
from groupwise.trainers import grpo, ppo, sft
from groupwise.trainers.grpo import GrpoRecipe, advantaged
from groupwise.trainers.rl import recorded_results
from groupwise.training.config import LossConfig
from groupwise.training.micro_batches import make_micro_batches
from groupwise.training.update import Updater
from groupwise.types import (
    AdvantagedGroup,
    CallOutcome,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    ToolCall,
    Verdict,
)
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.scoring import score, spot_check
from groupwise.verifiers.unjudged import Unjudged

PROBLEM = Problem("p", "?", "5")
PROMPT = Prompt(PROBLEM, "?", (40, 41, 42))
TOOLS = {"calculator": Calculator()}


def completion(ids: list[int], mask: list[bool], index: int = 0, **changes: Any) -> Completion:
    values = np.where(mask, np.float32(-1), np.float32(0))
    plain = Completion(index, np.array(ids), values, -values, FinishReason.LENGTH, "x", np.array(mask))
    return dataclasses.replace(plain, **changes)


def with_results(lengths: list[int]) -> Group:
    """Completions of three sampled tokens each, with results of these lengths between them."""
    made = [
        completion([50 + i, *[60] * length, 70, 71], [True, *[False] * length, True, True], i)
        for i, length in enumerate(lengths)
    ]
    return Group(PROMPT, tuple(made), 0, 0)


def weights_of(lengths: list[int], aggregation: str, **changes: Any) -> list[float]:
    verdicts = tuple(Verdict(Outcome.WRONG, {"r": float(i)}, "") for i in range(len(lengths)))
    groups = advantaged([ScoredGroup(with_results(lengths), verdicts)], advantage("group_mean"), None)  # type: ignore[arg-type]
    config = LossConfig.model_validate({"aggregation": aggregation, **changes})
    return [
        w for m in make_micro_batches(groups, config, 12, torch.device("cpu")) for w in m.weights.tolist()
    ]  # fmt: skip


def test_the_gradient_of_logits_is_exactly_zero_at_results(tiny_policy: Callable[..., Policy]) -> None:
    """The whole (T, V) gradient of a loss, by an ordinary forward with hooks on its logits."""
    policy = tiny_policy()
    example = sft.Example([40, 41], [50, 60, 61, 51, 1], [True, False, False, True, True])
    sft.sft_gradient(policy, [example], 0)
    ours = {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}
    model = copy.deepcopy(policy.model)
    model.zero_grad(set_to_none=True)
    model.set_attn_implementation("eager")
    logits = model(torch.tensor([[*example.prompt, *example.completion]]), use_cache=False).logits
    logits.retain_grad()
    logprobs = logits[0].log_softmax(-1)
    loss = -(logprobs[1, 50] + logprobs[4, 51] + logprobs[5, 1]) / 3
    loss.backward()
    assert [bool(row.any()) for row in logits.grad[0]] == [False, True, False, False, True, True, False]
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=2e-6, rtol=1e-4)


def test_packed_equals_alone(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    examples = [
        sft.Example([40, 41], [50, 60, 61, 51, 1], [True, False, False, True, True]),
        sft.Example([40], [52, 53, 62, 1], [True, True, False, True]),
        sft.Example([43, 44, 45], [54, 1]),
    ]

    def gradient(chosen: list[sft.Example], share: float) -> dict[str, torch.Tensor]:
        policy.model.zero_grad(set_to_none=True)
        sft.sft_gradient(policy, chosen, 0)
        return {n: p.grad * share for n, p in policy.model.named_parameters() if p.grad is not None}

    together = gradient(examples, 1.0)
    alone = [gradient([example], int(example.mask.sum()) / 8) for example in examples]
    for name, value in together.items():
        torch.testing.assert_close(value, sum(part[name] for part in alone), atol=2e-6, rtol=1e-4)


def test_written_results_are_tokenised_alone_and_not_trained(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    [example] = sft.encode(policy, [("Q", "<<6*7=42>> so 42")], "completion", TOOLS)
    pairs = zip(example.completion[:-1], example.mask.tolist()[:-1], strict=True)
    text = "".join(policy.tokenizer.decode([token]) if mask else "_" for token, mask in pairs)
    assert text == "<<6*7=____ so 42"
    assert example.completion[-1] == policy.tokenizer.eos_token_id
    assert example.mask[-1]
    [whole] = sft.encode(policy, [("Q", "<<6*7=42>> so 42")], "completion")
    assert whole.completion == example.completion
    assert whole.mask.all()
    with pytest.raises(DataError, match="a call within a call"):
        sft.encode(policy, [("Q", "<<6<<7=42>>")], "completion", TOOLS)
    with pytest.raises(ValueError, match="loss_on = 'all'"):
        sft.SftConfig.model_validate({"loss_on": "all", "tools": {"calculator": {"kind": "calculator"}}})


def test_ppo_reads_no_value_at_results() -> None:
    """GAE runs over the sampled tokens; what the critic says at a result changes nothing."""
    config = ppo.PpoConfig(gamma=0.9, lam=0.8)
    one = completion([50, 60, 61, 51, 52], [True, False, False, True, True])
    bare = completion([50, 51, 52], [True] * 3)
    found = []
    for own, values in ((one, [0.1, 7.0, -9.0, 0.2, 0.3]), (one, [0.1, 1.0, 1.0, 0.2, 0.3]), (bare, [0.1, 0.2, 0.3])):
        scored = ScoredGroup(Group(PROMPT, (own,), 0, 0), (Verdict(Outcome.CORRECT, {"r": 1.0}, ""),))
        group = ppo._advantages(scored, [np.array(values, np.float32)], None, config)  # type: ignore[arg-type]
        [advantages], [view] = group.advantages, group.critic
        assert advantages is not None
        assert view is not None
        assert not advantages[~own.sampled].any()
        assert not view.returns[~own.sampled].any()
        found.append((advantages[own.sampled].tolist(), view.returns[own.sampled].tolist()))
    assert found[0] == found[1] == found[2]
    deltas = [0.9 * 0.2 - 0.1, 0.9 * 0.3 - 0.2, 1.0 - 0.3]
    expected = [deltas[0] + 0.72 * (deltas[1] + 0.72 * deltas[2]), deltas[1] + 0.72 * deltas[2], deltas[2]]
    assert found[0][0] == pytest.approx(expected)


def call(outcome: CallOutcome, evidence: str = "") -> ToolCall:
    return ToolCall("calculator", "1+1", outcome, 0.0, evidence)


def judged(**changes: Any) -> Verdict:
    own = completion([50, 51], [True, True], text="\\boxed{5}", **changes)
    with make_verifier("number") as verifier:
        scored = score([Group(PROMPT, (own,), 0, 0)], verifier, 12)
        spot_check(scored, verifier, 12, 0)
    return scored[0].verdicts[0]


def test_verdicts_where_a_call_ended_the_completion() -> None:
    assert judged().outcome is Outcome.CORRECT
    forged = judged(finish_reason=FinishReason.MALFORMED_CALL, calls=(call(CallOutcome.MALFORMED, "forged"),))
    assert (forged.outcome, forged.reward, forged.answer) == (Outcome.WRONG, 0.0, None)
    assert "forged" in forged.evidence
    failed = judged(finish_reason=FinishReason.TOOL_FAILED, calls=(call(CallOutcome.FAILED, "no network"),))
    assert (failed.outcome, failed.reward) == (Outcome.CRASHED, None)  # counted apart, never wrong
    assert "no network" in failed.evidence


def priced(weight: float, calls: int, **part: Any) -> dict[str, float]:
    section = {"kind": "number", "parts": {"price": {"kind": "calls", "weight": weight, **part}}}
    with make_verifier(section) as verifier:
        [verdict] = verifier.verify_many([Request(PROBLEM, "\\boxed{5}", num_calls=calls)])
    return dict(verdict.parts)


def test_the_price_of_a_call() -> None:
    assert priced(0.1, 3)["price"] == pytest.approx(-0.3)
    assert priced(0.1, 3, free=2)["price"] == pytest.approx(-0.1)
    assert priced(0.1, 0)["price"] == 0.0


def recipe(**changes: Any) -> GrpoRecipe:
    tables = {
        "run": {"directory": "x", "num_steps": 1},
        "task": {"kind": "arithmetic"},
        "sampling": {"tools": {"calculator": {"kind": "calculator", "max_calls": 4}}},
        "verifier": {"parts": {"price": {"kind": "calls", "weight": 0.2}}},
    }
    return parse(GrpoRecipe, {"algorithm": "grpo", **tables, **changes}, source="test")


def test_a_price_that_turns_the_sign_round_is_refused() -> None:
    assert recipe().sampling.tools["calculator"].max_calls == 4
    with pytest.raises(ConfigError, match=r"weight = 0.25: .* 4 calls pays 1 and earns 1, .* less than 0.25"):
        recipe(verifier={"parts": {"price": {"kind": "calls", "weight": 0.25}}})
    two = {name: {"kind": "calls", "weight": 0.2} for name in ("p", "q")}  # each alone would be cheap enough
    with pytest.raises(ConfigError, match=r"parts.p.weight = 0.2 and .*q.weight = 0.2: .* pays 1.6 .* 1 in all"):
        recipe(verifier={"parts": two})
    free = {"p": two["p"], "q": {"kind": "calls", "weight": 0.2, "free": 4}}
    assert recipe(verifier={"parts": free}).verifier.parts.keys() == {"p", "q"}
    with pytest.raises(ConfigError, match=r"parts.price puts a price on calls, but sampling.tools names no tool"):
        recipe(sampling={})
    with pytest.raises(ConfigError, match=r"void_turns = 'drop' has no effect"):
        recipe(sampling={}, verifier={}, loss={"void_turns": "drop"})
    with pytest.raises(ConfigError, match="there is no tool 'calculater'; did you mean 'calculator'"):
        recipe(sampling={"tools": {"c": {"kind": "calculater"}}})


def test_an_engine_that_gives_whole_completions_is_refused_at_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"'scripted' gives whole completions .* sampling.tools has calculator; allow"
    ):
        recipe(engine={"kind": "scripted", "path": "x"})
    assert recipe(engine={"kind": "scripted", "path": "x"}, sampling={}, verifier={}).engine.kind == "scripted"


SAYS = "<think>x</think><<70+7="
"""Tokens that a policy draws; the calculator puts `77>>` in after them."""


@pytest.mark.parametrize(
    ("kind", "extraction", "may_answer", "text", "answer"),
    [
        ("number", "last_number", False, SAYS, "7"),  # the last number of its own
        ("math", "last_number", False, SAYS, "7"),
        ("countdown", "last_number", False, SAYS, "7"),
        ("number", "last_number", True, SAYS, "77"),
        ("number", "last_number", False, SAYS + " so 78", "78"),
        ("number", "boxed", False, SAYS + "\\boxed{78}", "78"),
        ("number", "boxed", True, "\\boxed{<<70+7=", None),
    ],
)
def test_only_the_policy_answers(
    tiny_policy: Callable[..., Policy], kind: str, extraction: str, may_answer: bool, text: str, answer: str | None
) -> None:
    policy, before = tiny_policy(), text.partition("=")[0] + "="
    written = [policy.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, "77>>")]
    after = policy.tokenizer(text[len(before) :], add_special_tokens=False)["input_ids"]
    ids = [*written[0], *written[1], *after, 1]
    mask = np.array([True] * len(written[0]) + [False] * len(written[1]) + [True] * (len(after) + 1))
    zeros = np.zeros(len(ids), np.float32)
    own = Sampled(np.array(ids), zeros, zeros, FinishReason.STOP, mask, (call(CallOutcome.DONE),))
    tools = SamplingConfig.model_validate({"tools": {"calculator": {"kind": "calculator", "may_answer": may_answer}}})
    problem = dataclasses.replace(PROBLEM, reference="77", data={"numbers": [7], "target": 7})
    group = sampler._group(policy, dataclasses.replace(PROMPT, problem=problem), [own], 0, 0, tools)
    with make_verifier({"kind": kind, "extraction": extraction}) as verifier:
        [scored] = score([group], verifier, 12)
        spot_check([scored], verifier, 12, 0)
    [verdict], [one] = scored.verdicts, group.completions
    assert one.text == before + "77>>" + text[len(before) :]
    assert (one.own is None) == may_answer
    assert verdict.answer == answer
    assert (verdict.outcome is Outcome.CORRECT) == (answer == ("7" if kind == "countdown" else "77"))


def test_of_several_tools_those_that_may_answer_do(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    ids = policy.tokenizer("a1b2c3", add_special_tokens=False)["input_ids"]
    zeros = np.zeros(len(ids), np.float32)
    calls = tuple(ToolCall(name, "", CallOutcome.RECORDED) for name in ("no", "yes", "no"))
    mask = np.array([True, False] * 3)
    own = Sampled(np.array(ids), zeros, zeros, FinishReason.LENGTH, mask, calls)
    tools: Any = {"no": CalculatorConfig(), "yes": CalculatorConfig(may_answer=True)}
    assert own_text(policy, [own], tools) == "a b 2 c"
    assert own_text(policy, [dataclasses.replace(own, sampled=None)], tools) is None
    assert own_text(policy, [own], {}) is None


def test_void_turns_are_kept_or_dropped() -> None:
    outcomes = [Outcome.CORRECT, Outcome.UNPARSABLE, Outcome.UNPARSABLE, Outcome.WRONG]
    group = with_results([2, 2, 2, 2])
    limited = dataclasses.replace(group.completions[2], finish_reason=FinishReason.TOOL_LIMIT)
    group = dataclasses.replace(group, completions=(*group.completions[:2], limited, group.completions[3]))
    verdicts = tuple(Verdict(o, {"r": float(o is Outcome.CORRECT)}, "") for o in outcomes)
    groups = advantaged([ScoredGroup(group, verdicts)], advantage("group_mean"), None)  # type: ignore[arg-type]

    def kept(choice: str) -> list[int]:
        config = LossConfig.model_validate({"void_turns": choice, "aggregation": "token"})
        [micro] = make_micro_batches(groups, config, 12, torch.device("cpu"))
        assert micro.weights.sum().item() == pytest.approx(1.0)  # the denominator is of those that are kept
        return [index for _, index in micro.places]

    assert kept("keep") == [0, 1, 2, 3]
    assert kept("drop") == [0, 2, 3]


def test_recorded_results_are_those_of_the_file(tmp_path: Path) -> None:
    group = with_results([2, 0, 3])
    file = tmp_path / "step.parquet"
    write_rollouts(file, [ScoredGroup(group, (Verdict(Outcome.WRONG, {}, ""),) * 3)])
    [(problem, found)] = recorded_results(file).items()
    assert problem == "p"
    for one, recorded in zip(group.completions, found, strict=True):
        assert recorded.token_ids.tolist() == one.token_ids.tolist()
        assert recorded.sampled.tolist() == one.sampled.tolist()
    assert found[2].result(np.array([52])) == [60, 60, 60]
    assert recorded_results(tmp_path / "none.parquet") == {}
    write_rollouts(file, [ScoredGroup(group, (Verdict(Outcome.WRONG, {}, ""),) * 3)], tokens="none")
    assert recorded_results(file) == {}


def test_reflection_and_tools_exclude_each_other(tiny_policy: Callable[..., Policy]) -> None:
    actors = dataclasses.replace(Actors.of(tiny_policy(), Template(), Unjudged()), reflection={"en": "Wait"})
    sampling = SamplingConfig.model_validate({"tools": {"calculator": {"kind": "calculator"}}})
    with pytest.raises(ConfigError, match="reflection"):
        sample_and_score(actors, [PROBLEM], 1, sampling, Draws(0, Purpose.SAMPLE))


def test_the_ablation_trains_every_token(tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    """lab/benchmarks/tool_mask.py: each token has an advantage and a log-probability in `results_trained`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "lab" / "benchmarks"))
    tool_mask, policy = importlib.import_module("tool_mask"), tiny_policy()
    verdicts = tuple(Verdict(Outcome.WRONG, {"r": float(i)}, "") for i in range(2))
    masked = advantaged([ScoredGroup(with_results([2, 5]), verdicts)], advantage("group_mean"), policy)
    updater = Updater(policy, None, LossConfig(), 1.0, 12)  # type: ignore[arg-type]
    seen: list[AdvantagedGroup] = []
    monkeypatch.setattr(grpo, "update_policy", grpo.update_policy)  # what is left there afterwards
    monkeypatch.setattr(tool_mask, "update_policy", lambda _, groups, step: seen.extend(groups))
    with tool_mask.results_trained():
        grpo.update_policy(updater, masked, 0)  # type: ignore[attr-defined]
    [group] = seen
    for one, advantages, reward in zip(group.scored.group.completions, group.advantages, (-0.5, 0.5), strict=True):
        assert one.num_tokens == one.num_read > 3
        assert (one.sampling_logprobs < 0).all()
        assert advantages is not None
        assert advantages.tolist() == [reward] * one.num_read
    assert weights_of([2, 5], "token") != [
        w for m in make_micro_batches(seen, LossConfig(aggregation="token"), 12, torch.device("cpu"))
        for w in m.weights.tolist()
    ]  # fmt: skip


def group(least: list[float], outcomes: list[Outcome]) -> AdvantagedGroup:
    completions = tuple(
        Completion(
            index,
            np.array([50, 51]),
            np.float32([-0.1, math.log(value)]),
            np.float32([1.0, 1.0]),
            FinishReason.STOP,
            "x",
            np.array([True, True]),
        )
        for index, value in enumerate(least)
    )
    verdicts = tuple(Verdict(outcome, {"r": 0.0}, "") for outcome in outcomes)
    advantages = tuple(np.float32([1.0, 1.0]) for _ in least)
    scored = ScoredGroup(Group(Prompt(Problem("p", "?", "5"), "?", (40,)), completions, 0, 0), verdicts)
    return AdvantagedGroup(scored, advantages)


@pytest.mark.parametrize(("drops", "least"), [(False, 0.01), (True, 0.2)])
def test_the_least_probability_is_that_of_what_is_trained(
    drops: bool, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "lab" / "benchmarks"))
    looked_at = importlib.import_module("void_turns").looked_at
    groups = [
        group([0.5, 0.2], [Outcome.CORRECT, Outcome.WRONG]),
        group([0.3, 0.01], [Outcome.WRONG, Outcome.UNPARSABLE]),
    ]
    assert looked_at(groups, drops) == {"void": 0.25, "least probability": pytest.approx(least)}
