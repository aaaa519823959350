"""The memory plan, counted by hand for the shipped model; lab/benchmarks/memory.py measures how well it predicts."""

from typing import Any

import pytest
import torch

from groupwise.checks import memory
from groupwise.checks.memory import CONVERTED, REHEARSAL, plan
from groupwise.config import parse
from groupwise.errors import ModelError
from groupwise.models import activations
from groupwise.models.config import ModelConfig
from groupwise.models.policy import load_policy
from groupwise.models.rounded import num_twice
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.ppo import PpoRecipe


def recipe(kind: type[Any], *overrides: str) -> Any:
    values = {"run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}
    return parse(kind, values, overrides)


@pytest.fixture(scope="module")
def count() -> int:
    return sum(parameter.numel() for parameter in load_policy(ModelConfig()).model.parameters())


def test_grpo_holds_weights_moments_and_gradients(count: int) -> None:
    found = plan(recipe(GrpoRecipe))
    assert found.weights == {"policy": 4 * count, "optimizer": 8 * count}
    assert found.training["gradients"] == 4 * count


def test_a_reference_and_a_critic_cost_what_they_hold(count: int) -> None:
    assert plan(recipe(GrpoRecipe, "loss.kl_coef=0.1")).weights["reference"] == 4 * count
    own, shared = (plan(recipe(PpoRecipe, f"critic.backbone={backbone}")) for backbone in ("own", "shared"))
    assert own.weights["critic"] == 4 * count
    assert own.weights["critic's optimizer"] == 2 * own.training["critic's gradients"] == 8 * count  # tied embedding
    assert "critic" not in shared.weights
    assert own.peak > 1.9 * sum(plan(recipe(GrpoRecipe)).weights.values())


def test_keys_and_values_by_hand() -> None:
    config = load_policy(ModelConfig()).model.config
    found = plan(recipe(GrpoRecipe, "grpo.prompts_per_step=3", "grpo.group_size=4", "sampling.max_tokens=50"), 10)
    tokens = 3 * 10 + 12 * 50
    assert found.sampling["keys and values"] == 2 * 4 * tokens * (
        config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    )
    few_alive = plan(recipe(GrpoRecipe, "sampling.max_live_completions=5", "sampling.max_tokens=50"), 10)
    all_alive = plan(recipe(GrpoRecipe, "sampling.max_tokens=50"), 10)
    assert few_alive.sampling["keys and values"] < all_alive.sampling["keys and values"]


def test_servers_that_are_started_here_share_the_machine(count: int) -> None:
    config = load_policy(ModelConfig()).model.config
    launched = ("engine.kind=vllm", "engine.launch=2", "engine.kv_cache_gib=0.5")
    found = plan(recipe(GrpoRecipe, *launched))
    head = config.vocab_size * config.hidden_size  # of its own, although it is tied
    assert found.weights["servers' weights"] == 2 * 4 * (count + head)
    assert found.weights["servers' keys and values"] == 2**30
    assert found.sampling == {REHEARSAL: 4 * count}
    elsewhere = plan(
        recipe(GrpoRecipe, "engine.kind=vllm", 'engine.addresses=["http://127.0.0.1:1"]', "engine.rehearse=false")
    )
    assert elsewhere.weights == plan(recipe(GrpoRecipe)).weights
    assert elsewhere.sampling == {}


SHORT = "sampling.max_tokens=16"


def test_larger_micro_batches_keep_more_activations() -> None:
    small, large = (plan(recipe(GrpoRecipe, f"loss.tokens_per_micro_batch={n}", SHORT)).training for n in (100, 1000))
    assert large["activations"] == 10 * small["activations"]
    assert large["head"] == 10 * small["head"]


def test_a_micro_batch_holds_at_least_its_longest_sequence() -> None:
    long, exact = (
        plan(recipe(GrpoRecipe, f"loss.tokens_per_micro_batch={n}", "sampling.max_tokens=900"), 100).training
        for n in (10, 1000)
    )
    assert long == exact


def test_a_micro_batch_holds_at_most_the_tokens_of_a_step() -> None:
    batch = ("grpo.prompts_per_step=2", "grpo.group_size=3", "sampling.max_tokens=10")
    few, exact = (
        plan(recipe(GrpoRecipe, f"loss.tokens_per_micro_batch={n}", *batch), 5).training for n in (100_000, 70)
    )
    assert few == exact


def test_a_step_of_one_micro_batch_has_nothing_beside_it() -> None:
    batch = ("grpo.prompts_per_step=2", "grpo.group_size=3", "sampling.max_tokens=10")
    one, three, more = (
        plan(recipe(GrpoRecipe, f"model.num_threads={n}", f"loss.tokens_per_micro_batch={tokens}", *batch), 5).training
        for n, tokens in ((1, 70), (3, 70), (3, 69))
    )
    assert three == one
    assert more["micro-batches' own gradients"] > 0


@pytest.mark.parametrize("num_threads", [1, 3])
def test_checkpointing_by_hand(num_threads: int) -> None:
    config = load_policy(ModelConfig()).model.config
    kept, again = (
        plan(recipe(GrpoRecipe, f"model.activation_checkpointing={setting}", f"model.num_threads={num_threads}"))
        for setting in ("off", "on")
    )
    assert (kept.checkpointing, again.checkpointing) == (False, True)
    layer = kept.training["activations"] // config.num_hidden_layers
    tokens = max(1024, 64 + recipe(GrpoRecipe).sampling.max_tokens)
    inputs = 4 * config.hidden_size * config.num_hidden_layers * tokens * num_threads
    assert again.training["activations"] == inputs + layer
    same = set(again.training) - {"activations"}
    assert {name: again.training[name] for name in same} == {name: kept.training[name] for name in same}
    assert set(kept.training) - set(again.training) == {"freed, but held"}


def test_what_sampling_freed_is_held_while_training() -> None:
    one, two, all_of_it = (
        plan(recipe(GrpoRecipe, "model.activation_checkpointing=off", f"sampling.max_live_completions={n}", *long))
        for n, long in ((1, ()), (2, ()), (256, ("sampling.max_tokens=900", "grpo.group_size=64")))
    )
    more = two.sampling["keys and values"] - one.sampling["keys and values"]
    assert more > 0
    assert two.training["freed, but held"] - one.training["freed, but held"] == more
    layers = load_policy(ModelConfig()).model.config.num_hidden_layers
    assert all_of_it.sampling["keys and values"] > 2 * layers * (32 << 20)  # such blocks are given back at once
    assert all_of_it.training["freed, but held"] == int(0.35 * all_of_it.training["activations"])


def test_the_available_memory_decides_as_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "model.activation_checkpointing"
    plans = {setting: plan(recipe(GrpoRecipe, f"{key}={setting}")) for setting in ("off", "on")}
    held = sum(plans["off"].weights.values()) + plans["off"].training["gradients"]
    others = plans["off"].training.get("micro-batches' own gradients", 0)
    needed = held + others + plans["off"].training["activations"] / activations.SHARE
    for available, expected in ((needed, "off"), (needed - 4, "on")):
        monkeypatch.setattr(memory, "available_memory", lambda _, available=available: available)
        assert plan(recipe(GrpoRecipe)) == plans[expected]


def test_a_gpu_that_is_elsewhere_has_room() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    assert not plan(recipe(GrpoRecipe, "model.device=cuda")).checkpointing


def test_a_missing_model_is_named() -> None:
    with pytest.raises(ModelError, match="nowhere"):
        plan(recipe(GrpoRecipe, "model.path=./nowhere"))


def test_weights_in_bf16_and_their_masters(count: int) -> None:
    bf16 = ("model.compute_dtype=bfloat16", "model.weights_dtype=bfloat16", "model.num_threads=3")
    found, full = (plan(recipe(GrpoRecipe, "loss.kl_coef=0.1", *bf16[:n], bf16[2])) for n in (2, 1))
    assert found.weights == {"policy": 2 * count, "masters": 4 * count, "optimizer": 8 * count, "reference": 2 * count}
    assert found.training["gradients"] == 4 * count
    own = "micro-batches' own gradients"
    assert 2 * found.training[own] == full.training[own]
    with_critic = plan(recipe(PpoRecipe, "critic.backbone=own", *bf16)).weights
    assert with_critic["critic"] == 2 * count
    assert 2 * with_critic["critic's masters"] == with_critic["critic's optimizer"]


def test_what_products_hold_beside_the_weights(count: int) -> None:
    plain, rounded = plan(recipe(GrpoRecipe)), plan(recipe(GrpoRecipe, "model.compute_dtype=bfloat16"))
    assert rounded.training[CONVERTED] == rounded.sampling[CONVERTED] == 2 * count  # the embedding is the head, too
    assert CONVERTED not in plain.training | plain.sampling
    bf16 = plan(recipe(GrpoRecipe, "model.compute_dtype=bfloat16", "model.weights_dtype=bfloat16"))
    assert CONVERTED not in bf16.training
    assert bf16.sampling.get(CONVERTED, 0) == num_twice(2 * count, torch.device("cpu"))
    config = load_policy(ModelConfig()).model.config
    largest = 4 * config.vocab_size * config.hidden_size
    assert plain.training["gradient of the largest weight"] == largest


def test_the_largest_phase_is_the_peak() -> None:
    parts = {"weights": 1}, {"cache": 2}, {"gradients": 3}
    assert memory.MemoryPlan(*parts, checkpointing=False).peak == 4


def test_adapters_by_hand(count: int) -> None:
    """All that learns is 8 · (in + out) numbers for each of seven matrices in four blocks."""
    config = load_policy(ModelConfig()).model.config
    d, kv, inner = config.hidden_size, config.num_key_value_heads * config.head_dim, config.intermediate_size
    query = config.num_attention_heads * config.head_dim
    sizes = 2 * (d + query) + 2 * (d + kv) + 3 * (d + inner)
    adapters = 8 * sizes * config.num_hidden_layers
    keys = ("lora.rank=8", "model.activation_checkpointing=off", "loss.kl_coef=0.1")
    found = plan(recipe(GrpoRecipe, *keys))
    assert found.weights == {"policy": 4 * count, "adapters": 4 * adapters, "optimizer": 8 * adapters}
    assert found.training["gradients"] == 4 * adapters
    with_critic = plan(recipe(PpoRecipe, "critic.backbone=own", *keys))
    assert with_critic.weights == found.weights | {"critic": 4 * adapters, "critic's optimizer": 8 * adapters}
    assert with_critic.training["critic's gradients"] == 4 * adapters
    few = plan(recipe(GrpoRecipe, 'lora.targets=["q_proj"]', *keys))
    assert few.weights["adapters"] == 4 * 8 * (d + query) * config.num_hidden_layers


def test_frozen_weights_in_bf16_have_no_masters(count: int) -> None:
    bf16 = ("model.compute_dtype=bfloat16", "model.weights_dtype=bfloat16", "model.num_threads=3", "lora.rank=8")
    found, full = (plan(recipe(GrpoRecipe, *keys)) for keys in (bf16, bf16[2:]))
    assert found.weights == {**full.weights, "policy": 2 * count}
    own = "micro-batches' own gradients"
    assert found.training[own] == full.training[own] == 5 * found.training["gradients"]  # three in hand, two waiting


def test_a_target_that_is_not_there_is_named_without_loading_a_weight() -> None:
    with pytest.raises(ModelError, match="'query' is no layer of Qwen3ForCausalLM"):
        plan(recipe(GrpoRecipe, 'lora.targets=["query"]'))
