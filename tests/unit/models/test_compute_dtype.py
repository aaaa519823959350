"""The precision of products where the recipe leaves it to the machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.models.config import ModelConfig
from groupwise.models.loading import LARGE, compute_dtype
from groupwise.models.policy import load_policy
from groupwise.trainers import load_recipe
from groupwise.trainers.base import with_precision


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
    rounded = load_policy(config.model_copy(update={"weights_dtype": "bfloat16"})).model
    wide = load_policy(config).model
    parameters, buffers = dict(wide.named_parameters()), dict(wide.named_buffers())
    for name, weight in rounded.named_parameters():
        assert torch.equal(weight, parameters[name].to(torch.bfloat16)), name
    for name, buffer in rounded.named_buffers():
        assert torch.equal(buffer, buffers[name].to(buffer.dtype)), name
        assert buffer.dtype is torch.float32 or name.endswith("embed_scale"), name  # it takes its weight's precision
