"""The size of a model, from its configuration alone: no weight is loaded."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from groupwise.errors import ModelError
from groupwise.models.config import located


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Numbers of weights."""

    config: Any
    """The transformers configuration."""
    total: int
    """All of them; a matrix used twice counts once."""
    body: int
    """Those that make hidden states."""


def language_model_size(path: str) -> ModelSize:
    """Of a language model.

    Raises:
        ModelError: its configuration cannot be read.
    """
    config = _config(path)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    return ModelSize(config, _count(model), _count(model.base_model))


def reward_model_size(path: str) -> int:
    """Number of weights of a reward model.

    Raises:
        ModelError: its configuration cannot be read.
    """
    config = _config(path)
    config.num_labels = 1
    with torch.device("meta"):
        return _count(AutoModelForSequenceClassification.from_config(config))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _config(path: str) -> Any:
    location = located(path)
    try:
        return AutoConfig.from_pretrained(location)
    except Exception as error:
        raise ModelError(f"the configuration of the model {path!r} cannot be read: {error}") from None
