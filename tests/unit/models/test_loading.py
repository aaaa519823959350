"""What happens to a model when it is loaded: a slow precision is named, weights are aligned."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from groupwise.models import loading as module
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.loading import ALIGNMENT, bfloat16_cost
from groupwise.models.policy import Policy, load_policy


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
