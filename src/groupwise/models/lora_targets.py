"""Which layers of a model a recipe's adapters stand beside."""

import difflib

from torch import nn
from transformers import PreTrainedModel

from groupwise.errors import ModelError
from groupwise.models.lora_config import ALL, LoraConfig


def target_layers(model: PreTrainedModel, lora: LoraConfig) -> dict[str, nn.Linear]:
    """The linear layers that are adapted, by name. It may stand on the meta device.

    Raises:
        ModelError: a target is the head or the embedding, no linear layer, or not there at all; or the rank is larger
            than a layer.
    """
    linear = linear_layers(model)
    chosen = _all_of(model, linear) if lora.adapts_all else _named(model, linear, lora.targets)
    for name, layer in chosen.items():
        if lora.rank > (least := min(layer.in_features, layer.out_features)):
            raise ModelError(
                f"lora.rank = {lora.rank} is more than {name} has, a matrix of {layer.out_features} × "
                f"{layer.in_features}; at most {least} is allowed"
            )
    return chosen


def linear_layers(model: PreTrainedModel) -> dict[str, nn.Linear]:
    """The linear layers of a model's body, by their names in the model."""
    body = model.base_model
    inside = {id(module) for module in body.modules()}
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and id(m) in inside}


def _all_of(model: PreTrainedModel, linear: dict[str, nn.Linear]) -> dict[str, nn.Linear]:
    others = [name for name, weight in model.base_model.named_parameters() if weight.ndim > 2]
    if others or not linear:
        what = f"weights that are no linear layers, such as {others[0]}" if others else "no linear layers"
        raise ModelError(
            f"lora.targets = '{ALL}': {type(model).__name__} has {what}, which adapters would leave out; "
            f"allowed is a list of {_allowed(linear)}"
        )
    return linear


def _named(
    model: PreTrainedModel, linear: dict[str, nn.Linear], targets: tuple[str, ...] | str
) -> dict[str, nn.Linear]:
    chosen: dict[str, nn.Linear] = {}
    for target in targets:
        found = {name: layer for name, layer in linear.items() if is_named(name, target)}
        if not found:
            raise ModelError(_why_not(model, linear, target))
        chosen |= found
    return {name: layer for name, layer in linear.items() if name in chosen}


def is_named(name: str, target: str) -> bool:
    """Whether a module is one that a target means: by its whole name or by the end of it."""
    return name == target or name.endswith(f".{target}")


def _why_not(model: PreTrainedModel, linear: dict[str, nn.Linear], target: str) -> str:
    other = next((module for name, module in model.named_modules() if name and is_named(name, target)), None)
    intro = f"lora.targets: {target!r}"
    if other is None:
        tails = sorted({name.rsplit(".", 1)[-1] for name, _ in model.named_modules() if name in linear})
        nearest = difflib.get_close_matches(target, tails, n=1, cutoff=0.5)
        hint = f"did you mean '{nearest[0]}'?" if nearest else f"allowed are {_allowed(linear)}"
        return f"{intro} is no layer of {type(model).__name__}; {hint}"
    if other is model.get_output_embeddings() or target == "score":
        return f"{intro} is the head, which is not adapted; allowed are {_allowed(linear)}"
    if other is model.get_input_embeddings():
        return f"{intro} is the embedding, which is not adapted; allowed are {_allowed(linear)}"
    return f"{intro} is a {type(other).__name__}, not a linear layer; allowed are {_allowed(linear)}"


def _allowed(linear: dict[str, nn.Linear]) -> str:
    return ", ".join(dict.fromkeys(name.rsplit(".", 1)[-1] for name in linear)) or "none"
