"""The size of a model, from its configuration alone: no weight is loaded."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.modeling_layers import GradientCheckpointingLayer

from groupwise.errors import ModelError
from groupwise.models.adapters import target_layers
from groupwise.models.config import LoraConfig, located
from groupwise.models.located import base_path


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Numbers of weights."""

    config: Any
    """The transformers configuration."""
    total: int
    """All of them; a matrix used twice counts once."""
    body: int
    """Those that make hidden states."""
    shapes: tuple[tuple[int, ...], ...]
    """Of every weight."""
    num_layers: int
    layer: int
    """Those of the largest layer."""
    outside: int
    """Those that stand in no layer: embedding, last norm, and the head where it is no other's."""

    def rows(self, ranks: int) -> int:
        """How many of them the first of some ranks holds: of every weight the rows of its share, rounded up."""
        return sum(-(-shape[0] // ranks) * math.prod(shape[1:]) for shape in self.shapes)


def language_model_size(path: str) -> ModelSize:
    """Of a language model.

    Raises:
        ModelError: its configuration cannot be read.
    """
    config = _config(path)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    layers = [_count(module) for module in layers_of(model)]
    total = _count(model)
    return ModelSize(
        config, total, _count(model.base_model), tuple(tuple(weight.shape) for weight in model.parameters()),
        len(layers), max(layers, default=0), total - sum(layers),
    )  # fmt: skip


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a transformers model, which transformers marks as what can be computed again in a backward."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def adapter_weights(path: str, lora: LoraConfig) -> int:
    """Number of weights of the adapters that a recipe puts on a language model: r · (in + out) for every layer.

    Raises:
        ModelError: the model's configuration cannot be read, or a target cannot be adapted.
    """
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(_config(path))
    layers = target_layers(model, lora).values()
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in layers)


def reward_model_size(path: str) -> int:
    """Number of weights of a reward model; adapters of its own, some thousandths of them, are not counted.

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
    location = located(base_path(path))
    try:
        return AutoConfig.from_pretrained(location)
    except Exception as error:
        raise ModelError(f"the configuration of the model {path!r} cannot be read: {error}") from None
