"""From pairs to gradients: encoding, order, both trainers' gradients against loops over separate eager sequences."""

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.algorithms.preferences import PREFERENCE_LOSSES, PairLogprobs, calibration_error, reliability
from groupwise.config import parse
from groupwise.errors import ConfigError, DataError, ModelError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import byte_tokenizer, character_tokenizer
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy, make_policy
from groupwise.models.prompts import encode_prompt
from groupwise.models.reward_model import RewardModel, start_reward_model
from groupwise.models.steps import refuse_unknown
from groupwise.tasks.base import Template
from groupwise.tasks.preferences import Pair
from groupwise.trainers import dpo, sft
from groupwise.trainers import preferences as trainer
from groupwise.trainers.dpo import DpoConfig, DpoRecipe, dpo_gradient, dpo_step, referred
from groupwise.trainers.preferences import EncodedPair, encode, measure, pairs_of_step
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.types import Problem

END = 1
TEMPLATE = (
    "{% for m in messages %}<think>{{ m.role }}:{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<think>assistant:{% endif %}"
)
BUDGETS = pytest.mark.parametrize("budget", [1, 45, 100_000])


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CHAT = Pair([message("user", "Hi")], [message("assistant", "Yes")], [message("assistant", "No!")], 0.5)  # type: ignore[list-item]


@pytest.fixture
def chat_policy(make_model: Callable[..., Any]) -> Policy:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return make_policy(make_model(), tokenizer, ModelConfig(device="cpu"))


@pytest.fixture
def reward_model(tiny_policy: Callable[..., Policy], tmp_path: Path) -> RewardModel:
    save_checkpoint(tmp_path / "policy", tiny_policy())
    made = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
    with torch.no_grad():
        made.head.weight.copy_(0.3 * torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    return made


@pytest.fixture(scope="module")
def pairs() -> list[EncodedPair]:
    draw = np.random.default_rng(0)
    shapes = [(3, 5, 2), (9, 1, 7), (1, 4, 4), (6, 2, 9), (2, 2, 1)]
    return [
        EncodedPair(
            draw.integers(2, 258, prompt).tolist(),
            *([*draw.integers(2, 258, length - 1).tolist(), END] for length in lengths),
            margin=float(draw.uniform(0, 2)),
        )
        for prompt, *lengths in shapes
    ]


def test_text_is_encoded_with_the_end_token(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    [found] = encode(policy, [Pair("2+2=", "4", "five", 0.25)])
    assert [policy.tokenizer.decode(ids) for ids in found[:3]] == ["2+2=", "4<|end|>", "five<|end|>"]
    assert found.margin == 0.25
    assert found.sequences.num_read == 4 + 2 + 5
    assert list(found.sequences.completions) == [found.chosen, found.rejected]


def test_a_conversation_is_what_the_chat_template_writes(chat_policy: Policy) -> None:
    [found] = encode(chat_policy, [CHAT])
    prompt, chosen, rejected = (chat_policy.tokenizer.decode(ids) for ids in found[:3])
    assert prompt == "<think>user:Hi<|end|>\n<think>assistant:"
    assert (chosen, rejected) == ("Yes<|end|>\n", "No!<|end|>\n")
    whole = chat_policy.tokenizer.apply_chat_template([*CHAT.prompt, *CHAT.chosen], tokenize=False)
    assert whole == prompt + chosen


def test_what_others_say_in_a_completion_is_read_and_not_compared(chat_policy: Policy) -> None:
    """A user's turn and a tool's result are no merit of the answer: neither their tokens nor their number count."""
    begun = [message("assistant", "Hm"), message("user", "Well?")]
    talk = Pair(CHAT.prompt, [*begun, *CHAT.chosen], [message("assistant", "Hm."), *begun[1:], *CHAT.rejected])  # type: ignore[list-item]
    [found] = encode(chat_policy, [talk])
    sides = zip((found.chosen, found.rejected), found.sequences.masks, strict=True)
    said = [chat_policy.tokenizer.decode(np.array(ids)[mask]) for ids, mask in sides]
    assert said == ["Hm<|end|>\nYes<|end|>\n", "Hm.<|end|>\nNo!<|end|>\n"]
    of_pair = dpo.pair_logprobs(chat_policy, [found])
    assert [of_pair.chosen_lengths.item(), of_pair.rejected_lengths.item()] == [9, 10]
    alone = [pack([Sequences(found.prompt, [ids])]) for ids in (found.chosen, found.rejected)]
    for total, packed, mask in zip(of_pair[:2], alone, found.sequences.masks, strict=True):
        every = chat_policy.token_logprobs(packed).logprobs
        assert total.item() == pytest.approx(every[torch.from_numpy(mask)].sum().item(), rel=1e-5)


def test_what_cannot_be_encoded_is_named(
    chat_policy: Policy, tiny_policy: Callable[..., Policy], make_model: Callable[..., Any]
) -> None:
    digits = make_policy(make_model(), character_tokenizer("0123456789+="), ModelConfig(device="cpu"))
    assert encode(digits, [Pair("2+2=", "4", "5")])
    with pytest.raises(DataError, match=r"cannot write all characters of the pair that begins '2\+2='"):
        encode(digits, [Pair("2+2=", "4", "five")])
    with pytest.raises(DataError, match="has no chat template"):
        encode(tiny_policy(), [CHAT])
    with pytest.raises(DataError, match=r"begins '2\+2=' has 305 tokens, 4 of them prompt; .* 256 in all"):
        encode(tiny_policy(), [Pair("2+2=", "4" * 300, "4")])
    chat_policy.tokenizer.chat_template = TEMPLATE.replace("assistant:{%", "speak:{%")
    said = r"the chat template writes 'speak:' while a turn is the last, and 'assistant:Yes"
    with pytest.raises(DataError, match=said):
        encode(chat_policy, [CHAT])


def test_an_unknown_token_that_the_model_sampled_can_be_written() -> None:
    tokenizer = load_policy(ModelConfig(path="base", device="cpu")).tokenizer
    name, number = tokenizer.unk_token, tokenizer.unk_token_id
    refuse_unknown(tokenizer, f"1+1={name}2", tokenizer(f"1+1={name}2")["input_ids"], "it")
    with pytest.raises(DataError, match="cannot write all characters of it"):
        refuse_unknown(tokenizer, f"1+1={name}ƕ", tokenizer(f"1+1={name}ƕ")["input_ids"], "it")
    assert tokenizer(f"{name}ƕ")["input_ids"].count(number) == 2


def test_an_end_token_that_is_called_the_unknown_one_is_none(make_model: Callable[..., Any]) -> None:
    """As those of GPT-2, Pythia and some SmolLM2 are, which write every byte."""
    tokenizer = byte_tokenizer()
    tokenizer.unk_token = tokenizer.eos_token
    policy = make_policy(make_model(), tokenizer, ModelConfig(device="cpu"))
    [example] = sft.encode(policy, [("1+1=", "2")], "completion")
    assert tokenizer.decode(example.completion) == "2<|end|>"
    with pytest.raises(ModelError, match=r"holds the text '<\|end\|>', which the tokenizer reads as a control token"):
        encode_prompt(policy, Template(), Problem("p", "1<|end|>2", ""))


def test_every_epoch_draws_every_pair_once() -> None:
    steps = [pairs_of_step(7, 3, seed=1, step=step) for step in range(14)]
    places = [place for step in steps for place in step]
    for epoch in range(6):
        assert sorted(places[7 * epoch : 7 * epoch + 7]) == list(range(7))
    assert places[:7] != places[7:14]
    assert pairs_of_step(7, 3, seed=1, step=5) == steps[5]
    assert pairs_of_step(7, 3, seed=2, step=5) != steps[5]


def eager_scores(model: RewardModel, pairs: list[EncodedPair]) -> tuple[Any, Tensor]:
    """(B, 2) in float64, each sequence computed alone."""
    twin = copy.deepcopy(model.model).double()
    twin.set_attn_implementation("eager")
    rows = [[torch.tensor([[*pair.prompt, *c]]) for c in (pair.chosen, pair.rejected)] for pair in pairs]
    return twin, torch.stack([torch.stack([twin(row).logits[0, 0] for row in pair]) for pair in rows])


@BUDGETS
def test_the_reward_models_gradient_is_that_of_a_loop_over_pairs(
    reward_model: RewardModel, pairs: list[EncodedPair], budget: int
) -> None:
    config = trainer.RewardModelConfig(centring=0.2, tokens_per_micro_batch=budget)
    found, scores = trainer.reward_model_gradient(reward_model, pairs, config)
    twin, expected = eager_scores(reward_model, pairs)
    total = torch.zeros((), dtype=torch.float64)
    for (chosen, rejected), pair in zip(expected, pairs, strict=True):
        probability = 1 / (1 + torch.exp(-(chosen - rejected - pair.margin)))
        total = total + (-torch.log(probability) + 0.2 * (chosen + rejected) ** 2) / len(pairs)
    total.backward()
    assert found == pytest.approx(total.item(), abs=1e-5)
    by_length = sorted(range(len(pairs)), key=lambda i: pairs[i].sequences.num_read)
    torch.testing.assert_close(scores.double(), expected.detach()[by_length], atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(reward_model.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.double(), theirs.grad, atol=2e-5, rtol=1e-4)


def learnt(gradient: Callable[[], Any], optimizer: Optimizer, num_steps: int = 20) -> list[Any]:
    return [(gradient(), optimizer.update(step))[0] for step in range(num_steps)]


def test_a_reward_model_step_reports_what_was_before_it_and_learns(
    reward_model: RewardModel, pairs: list[EncodedPair]
) -> None:
    _, scores = eager_scores(reward_model, pairs)
    optimizer = Optimizer(reward_model.trainable(), OptimizerConfig(lr=1e-3), 20)
    config = trainer.RewardModelConfig()
    first, *_, last = learnt(lambda: trainer.reward_model_step(reward_model, pairs, config), optimizer)
    assert first.measured["accuracy"] == sum(c > r for c, r in scores.tolist()) / len(pairs)
    assert first.measured["margin"] == pytest.approx((scores[:, 0] - scores[:, 1]).mean().item(), abs=1e-5)
    assert first.measured["mean_score"] == pytest.approx(scores.mean().item(), abs=1e-5)
    assert first.num_tokens == sum(len(p.prompt) + len(p.chosen) + len(p.rejected) for p in pairs)
    assert last.measured["accuracy"] == 1.0
    assert last.loss < first.loss / 2


def test_centring_pulls_the_mean_score_to_zero(reward_model: RewardModel, pairs: list[EncodedPair]) -> None:
    with torch.no_grad():
        states = reward_model.end_states([pair.sequences for pair in pairs])
        reward_model.head.weight += 3 * states.mean(0) / states.mean(0).square().sum()  # a mean score of about 3
    means = {}
    for weight in (0.0, 1.0):
        learner = reward_model.copy()
        optimizer = Optimizer(learner.trainable(), OptimizerConfig(lr=1e-3), 40)
        config = trainer.RewardModelConfig(centring=weight)
        *_, last = learnt(partial(trainer.reward_model_step, learner, pairs, config), optimizer, 40)
        means[weight] = abs(last.measured["mean_score"])
    assert means[1.0] < 0.2 < 1.0 < means[0.0], means


def eager_sums(policy: Policy, pairs: list[EncodedPair], eager_logprobs: Any) -> tuple[Any, Tensor]:
    """(B, 2) log-probabilities of whole completions in float64, each computed alone."""
    sides = [(pair.prompt, completion) for pair in pairs for completion in (pair.chosen, pair.rejected)]
    model, logprobs, _ = eager_logprobs(policy, sides)
    pieces = logprobs.split([len(completion) for _, completion in sides])
    return model, torch.stack([piece.sum() for piece in pieces]).view(-1, 2)


def test_the_reference_is_asked_once_for_every_pair_and_the_order_kept(
    tiny_policy: Callable[..., Policy], pairs: list[EncodedPair], eager_logprobs: Any
) -> None:
    reference = tiny_policy(seed=3)
    found = referred(reference, pairs, DpoConfig(tokens_per_micro_batch=30))
    _, expected = eager_sums(reference, pairs, eager_logprobs)
    assert [pair[:4] for pair in found] == [pair[:4] for pair in pairs]
    values = torch.tensor([[pair.ref_chosen, pair.ref_rejected] for pair in found], dtype=torch.float64)
    torch.testing.assert_close(values, expected.detach(), atol=1e-5, rtol=1e-5)


def test_the_reference_is_not_asked_about_pairs_that_are_never_drawn(
    tiny_policy: Callable[..., Policy], pairs: list[EncodedPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpo, "load_reference", lambda model, lora, policy: tiny_policy(seed=3))
    values = {"run": {"directory": "unused", "num_steps": 1}, "data": {"source": "file", "path": "unused"}}
    monkeypatch.setattr(dpo, "NUM_HELD_OUT", 3)
    recipe = parse(DpoRecipe, values, ["dpo.pairs_per_step=2"])
    train, held_out = dpo._with_reference(recipe, tiny_policy(), pairs, pairs)
    known = [i for i, pair in enumerate(train) if not math.isnan(pair.ref_chosen)]
    assert known == sorted(pairs_of_step(len(pairs), 2, 0, 0))
    assert [pair[:4] for pair in train] == [pair[:4] for pair in pairs]
    assert len(held_out) == 3


@BUDGETS
@pytest.mark.parametrize("name", PREFERENCE_LOSSES)
def test_dpos_gradient_is_that_of_a_loop_over_pairs(
    tiny_policy: Callable[..., Policy], pairs: list[EncodedPair], eager_logprobs: Any, name: str, budget: int
) -> None:
    policy = tiny_policy()
    policy.model.zero_grad(set_to_none=True)
    config = DpoConfig(loss=name, beta=0.5, tokens_per_micro_batch=budget)
    known = referred(tiny_policy(seed=3), pairs, config)
    found, _ = dpo_gradient(policy, known, config)
    model, sums = eager_sums(policy, pairs, eager_logprobs)
    _, ref = eager_sums(tiny_policy(seed=3), pairs, eager_logprobs)
    lengths = torch.tensor([[len(pair.chosen), len(pair.rejected)] for pair in pairs])
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(pairs)):
        one = PairLogprobs(*(column[i] for table in (sums, ref.detach(), lengths) for column in table.T))
        total = total + PREFERENCE_LOSSES[name](one, config.strength).loss / len(pairs)
    total.backward()
    assert found == pytest.approx(total.item(), abs=1e-4, rel=1e-5)
    for name_, parameter in policy.model.named_parameters():
        theirs = model.get_parameter(name_).grad
        scale = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(parameter.grad.double() / scale, theirs / scale, atol=3e-5, rtol=1e-4)


def test_a_dpo_step_reports_rewards_and_both_logprobs(
    tiny_policy: Callable[..., Policy], pairs: list[EncodedPair], eager_logprobs: Any
) -> None:
    policy = tiny_policy()
    known = referred(tiny_policy(seed=3), pairs, DpoConfig())
    _, sums = eager_sums(policy, pairs, eager_logprobs)
    _, ref = eager_sums(tiny_policy(seed=3), pairs, eager_logprobs)
    ratios = (sums - ref).detach()
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(lr=1e-3), 20)
    first, *_, last = learnt(lambda: dpo_step(policy, known, DpoConfig(beta=0.2)), optimizer)
    assert first.measured["margin"] == pytest.approx(0.2 * (ratios[:, 0] - ratios[:, 1]).mean().item(), rel=1e-4)
    assert first.measured["accuracy"] == sum(c > r for c, r in ratios.tolist()) / len(pairs)
    assert first.measured["chosen_fell"] == pytest.approx((ratios[:, 0] < 0).float().mean().item())
    logprobs = [first.measured[f"{side}_logprob"] for side in ("chosen", "rejected")]
    assert logprobs == pytest.approx(sums.mean(0).tolist(), rel=1e-5)
    assert last.measured["accuracy"] == 1.0
    assert last.measured["margin"] > first.measured["margin"] + 1
    assert dpo_step(policy, pairs, DpoConfig(loss="simpo", beta=2)).measured["chosen_fell"] is None


def test_held_out_pairs_are_measured_whatever_the_micro_batches(pairs: list[EncodedPair]) -> None:
    def scores(chunk: list[EncodedPair]) -> Tensor:
        return torch.tensor([[float(len(pair.chosen)), float(len(pair.rejected))] for pair in chunk])

    chosen, rejected = [5, 1, 4, 2, 2], [2, 7, 4, 9, 1]
    for budget in (1, 30, 1000):
        found = measure(7, pairs, scores, budget, torch.device("cpu"))
        assert found.step == 7
        assert found.accuracy.value == pytest.approx((1 + 0 + 0.5 + 0 + 1) / 5)
        assert found.accuracy.low < 0.5 < found.accuracy.high
        assert found.margin == pytest.approx(np.mean(np.subtract(chosen, rejected)))
        assert found.mean_score == pytest.approx(np.mean([chosen, rejected]))
        assert found.calibration_error == pytest.approx(calibration_error(reliability(chosen, rejected)))


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        (DpoRecipe, ["dpo.loss=kto"], r"dpo\.loss = 'kto': allowed are dpo, ipo, simpo"),
        (DpoRecipe, ["dpo.gamma=0.5"], "gamma = 0.5 has no effect here: .* only with loss = 'simpo'"),
        (DpoRecipe, ["data.margin_field=margin"], "margin_field = 'margin' is read by reward_model only"),
        (trainer.RewardModelRecipe, ["reward_model.centering=1"], "did you mean 'centring'"),
    ],
)
def test_contradictions_are_named(recipe: Any, changes: list[str], said: str) -> None:
    values = {"run": {"directory": "unused", "num_steps": 1}, "data": {"source": "file", "path": "unused"}}
    with pytest.raises(ConfigError, match=said):
        parse(recipe, values, changes)
