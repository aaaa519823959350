"""The size of a model, from its configuration alone: no weight is loaded."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from groupwise.errors import ModelError, told_as
from groupwise.models.activations import head_dim, layers_of, widest
from groupwise.models.adapters import target_layers
from groupwise.models.config import LoraConfig
from groupwise.models.located import locate


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Numbers of weights."""

    config: Any
    total: int  # A matrix used twice counts once
    body: int  # Weights that make hidden states
    shapes: tuple[tuple[int, ...], ...]  # Of every weight
    num_layers: int
    layer: int
    outside: int  # Weights in no layer: embedding, last norm, and the head where it is not tied

    def cached(self, width: int) -> int:
        """Return the bytes of the keys and values of one token, with `width` bytes a number."""
        text = widest(self.config.get_text_config())
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        return int(2 * text.num_hidden_layers * heads * head_dim(text) * width)

    def rows(self, ranks: int) -> int:
        """Return how many weights the first of some ranks holds: the rows of its share of each, rounded up."""
        return sum(-(-shape[0] // ranks) * math.prod(shape[1:]) for shape in self.shapes)


def language_model_size(path: str) -> ModelSize:
    """Count the weights of a language model."""
    model = _model(path)
    layers, total = [_count(module) for module in layers_of(model)], _count(model)
    return ModelSize(
        config=model.config,
        total=total,
        body=_count(model.base_model),
        shapes=tuple(tuple(weight.shape) for weight in model.parameters()),
        num_layers=len(layers),
        layer=max(layers, default=0),
        outside=total - sum(layers),
    )


def adapter_weights(path: str, lora: LoraConfig) -> int:
    """Count the weights of the adapters that a recipe puts on a language model: r · (in + out) for every layer."""
    layers = target_layers(_model(path), lora).values()
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in layers)


def reward_model_size(path: str) -> int:
    """Count the weights of a reward model, but for its adapters, some thousandths of them."""
    return _count(_model(path, AutoModelForSequenceClassification, num_labels=1))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _model(path: str, kind: Any = AutoModelForCausalLM, **changes: int) -> Any:
    """The model of a configuration with these changes, without numbers."""
    location = locate(path).weights
    with told_as(ModelError, f"the configuration of the model {path!r} cannot be read", Exception):
        config = AutoConfig.from_pretrained(location, **changes)
    with torch.device("meta"):
        return kind.from_config(config)
