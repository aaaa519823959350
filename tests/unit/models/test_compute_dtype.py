"""The precision of products where the recipe leaves it to the machine."""

import pytest
import torch

from groupwise.models.config import ModelConfig
from groupwise.models.loading import LARGE, compute_dtype
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
