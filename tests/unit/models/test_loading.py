"""What happens to a model when it is loaded: a slow precision is named, weights are aligned."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM

from groupwise.errors import ModelError
from groupwise.models import loading as module
from groupwise.models import rows
from groupwise.models.checkpoint import save_checkpoint, write_plain
from groupwise.models.config import ModelConfig
from groupwise.models.loading import ALIGNMENT, LARGE, bfloat16_cost, compute_dtype, read_tokenizer
from groupwise.models.located import locate
from groupwise.models.policy import Policy, load_policy, make_policy
from groupwise.trainers import load_recipe
from groupwise.trainers.base import with_precision


def test_a_processor_that_is_slow_at_bfloat16_is_named(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "bfloat16_cost", lambda: 15.04)
    with pytest.warns(
        UserWarning, match=r"bfloat16: .* 15\.0 times as long .* model\.compute_dtype = float32 is faster"
    ):
        tiny_policy(compute_dtype="bfloat16")


@pytest.mark.parametrize(("dtype", "cost"), [("bfloat16", 0.5), ("bfloat16", 1.4), ("float32", 15.0)])
def test_nothing_is_said_where_it_is_fast_or_not_asked_for(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, dtype: str, cost: float
) -> None:
    monkeypatch.setattr(module, "bfloat16_cost", lambda: cost)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny_policy(compute_dtype=dtype)


def test_the_cost_is_the_best_time_in_bfloat16_over_the_best_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {torch.float32: [5.0, 2.0, 3.0], torch.bfloat16: [50.0, 30.0, 20.0]}
    monkeypatch.setattr(module.timeit, "repeat", lambda product, **_: seconds[product().dtype])
    assert bfloat16_cost.__wrapped__() == 10.0


def test_loaded_weights_begin_where_torch_lets_its_own_begin(
    tiny_policy: Callable[..., Policy], tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "saved", tiny_policy())
    loaded = load_policy(tmp_path / "saved")
    assert [name for name, weight in loaded.trainable() if weight.data_ptr() % ALIGNMENT] == []
    assert loaded.fingerprint() == tiny_policy().fingerprint()


def test_a_weight_without_a_place_is_named(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "saved", tiny_policy())
    file = tmp_path / "saved" / "model.safetensors"
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.ones(32)}
    save_file(load_file(file) | bias, file, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=r"no place for, .* without them: model\.layers\.0\.self_attn\.q_proj\.bias$"):
        load_policy(tmp_path / "saved")


def test_what_is_written_ends_and_computes_as_it_did_here(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "saved", tiny_policy())
    file, config = tmp_path / "saved" / "model.safetensors", tmp_path / "saved" / "config.json"
    weights, end = load_file(file), tiny_policy().tokenizer.eos_token_id
    save_file(weights | {"lm_head.weight": 2 * weights["model.embed_tokens.weight"]}, file, metadata={"format": "pt"})
    assert json.loads(config.read_text())["tie_word_embeddings"] is True  # and yet there are two
    (tmp_path / "saved" / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
    tokenizer = read_tokenizer(str(tmp_path / "saved"))
    tokenizer.chat_template = {"default": "one", "tool_use": "another"}
    tokenizer.save_pretrained(tmp_path / "saved")
    policy = load_policy(tmp_path / "saved")
    assert policy.stop_ids == {0, end}
    save_checkpoint(tmp_path / "again", policy)
    (tmp_path / "plain").mkdir()
    write_plain(tmp_path / "again", tmp_path / "plain")
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    assert written.generation_config.eos_token_id == sorted({0, end})
    assert written.config.tie_word_embeddings is False
    assert torch.equal(written.lm_head.weight, 2 * weights["model.embed_tokens.weight"])
    assert read_tokenizer(str(tmp_path / "plain")).chat_template == tokenizer.chat_template


def test_longrope_reads_as_much_as_leaves_its_factors_alone(make_model: Callable[..., Any], tokenizer: Any) -> None:
    rope = {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 48, "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }  # fmt: skip
    assert make_policy(make_model("llama", rope_parameters=rope), tokenizer).context_length == 48


def digits_in_threes(folder: Path, changes: dict[str, str]) -> list[int]:
    """Write a tokenizer that cuts numbers into threes, with these settings; return its ids of a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made.train_from_iterator([f"What is {a} x {b}?" for a in range(10, 99) for b in range(10, 99, 7)], trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", **changes}))
    ids: list[int] = made.encode("What is 60 x 64?").ids
    return ids


@pytest.mark.parametrize("changes", [{}, {"tokenizer_class": "Qwen2Tokenizer"}, {"tokenizer_class": "LlamaTokenizer"}])
def test_the_tokenizer_that_runs_is_that_of_the_file_also_when_it_is_saved(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    ids = digits_in_threes(tmp_path, changes)
    tokenizer = read_tokenizer(str(tmp_path))
    assert tokenizer("What is 60 x 64?")["input_ids"] == ids
    tokenizer.save_pretrained(tmp_path / "saved")
    assert Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json")).encode("What is 60 x 64?").ids == ids


def test_a_tokenizer_that_is_not_that_of_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits_in_threes(tmp_path, {})
    monkeypatch.setattr(module, "PreTrainedTokenizerFast", module.AutoTokenizer)
    with pytest.raises(ModelError, match=r"is not that of its tokenizer\.json: 'What is 60 x 64\?\\n' is \["):
        read_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "num_weights", "has", "expected"),
    [
        ({}, LARGE, {"avx512_bf16": True}, "bfloat16"), ({}, LARGE, {"amx_bf16": True}, "bfloat16"),
        ({}, LARGE, {"avx512_f": True, "amx_bf16": False}, "float32"), ({}, LARGE - 1, {"amx_bf16": True}, "float32"),
        ({"compute_dtype": "float32"}, LARGE, {"amx_bf16": True}, "float32"),
        ({"compute_dtype": "bfloat16"}, 1, {}, "bfloat16"), ({"weights_dtype": "bfloat16"}, 1, {}, "bfloat16"),
    ],
)  # fmt: skip
def test_large_models_compute_in_bfloat16_where_the_processor_does(
    config: dict[str, str], num_weights: int, has: dict[str, bool], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    assert compute_dtype(ModelConfig.model_validate({"device": "cpu", **config}), num_weights) == expected


def test_a_run_keeps_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = with_precision(load_recipe("recipes/arithmetic.toml", {"model.device": "cpu"}))
    assert recipe.model_dump()["model"]["compute_dtype"] == "float32"  # the shipped model is small
    monkeypatch.setattr("groupwise.models.loading.LARGE", 1)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    assert with_precision(recipe) == recipe
    elsewhere = with_precision(load_recipe("recipes/arithmetic.toml", {"model.device": "cpu"}))
    assert elsewhere.model_dump()["model"]["compute_dtype"] == "bfloat16"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "gpt_oss"])
def test_weights_read_in_bfloat16_are_those_converted_later(
    architecture: str, make_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    more = {"sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 2}  # all: rounding changes no route
    make_model(architecture, **more).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = ModelConfig(path=str(tmp_path), device="cpu", compute_dtype="bfloat16")
    half = config.model_copy(update={"weights_dtype": "bfloat16"})
    read = rows.read(AutoModelForCausalLM, locate(half.path), half, in_rows=False, adapts=False)[0]
    assert {weight.dtype for weight in read.parameters()} == {torch.float32}  # as in the file, which is not copied
    rounded = load_policy(half).model
    wide = load_policy(config).model
    parameters, buffers = dict(wide.named_parameters()), dict(wide.named_buffers())
    for name, weight in rounded.named_parameters():
        assert torch.equal(weight, parameters[name].to(torch.bfloat16)), name
    for name, buffer in rounded.named_buffers():
        assert torch.equal(buffer, buffers[name].to(buffer.dtype)), name
        assert buffer.dtype is torch.float32 or name.endswith("embed_scale"), name  # it takes its weight's precision


def test_a_run_is_no_model_and_its_models_are_named(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(
        ModelError, match=r"not a Hugging Face model directory; a run's models are in .*run/checkpoints$"
    ):
        module.tokenizer_of(str(tmp_path / "run"))
