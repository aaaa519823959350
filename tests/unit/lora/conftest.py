"""Tiny models on disk, and adapters on them that have learnt something."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.policy import Policy, start_policy

pytest.importorskip("peft", reason="needs peft: pip install 'groupwise[lora]'")


@pytest.fixture(scope="session")
def base(tiny_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory of a plain model with a tied head."""
    path = tmp_path_factory.mktemp("lora") / "base"
    save_checkpoint(path, tiny_policy())
    return str(path)


@pytest.fixture(scope="session")
def start() -> Callable[..., Policy]:
    """start(path, lora={}, seed=0, **model config) -> what a run would train, its B away from 0 with `learnt=True`."""

    def make(
        path: str, lora: dict[str, Any] | None = None, *, seed: int = 0, learnt: bool = False, **config: Any
    ) -> Policy:
        settings = LoraConfig.model_validate({"rank": 4, "alpha": 8, **(lora or {})})
        model = ModelConfig.model_validate({"path": path, "device": "cpu", **config})
        policy = start_policy(model, settings, seed)
        if learnt:
            move(policy, seed)
        return policy

    return make


def move(policy: Policy, seed: int = 0) -> None:
    """Numbers for B as training would leave them, only larger."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.trainable():
            if ".lora_B." in name:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
