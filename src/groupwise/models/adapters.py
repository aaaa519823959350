"""LoRA (Hu et al. 2021, arXiv:2106.09685): a model's weights stay, and a small product beside each matrix learns.

An adapted layer computes W x + s B A x with A (r, in), B (out, r) and s = alpha / r, where W never changes. B is 0 at
first, so a model with new adapters is the model without them, to the bit. The layers are those of `peft`, put into the
model in place: it stays a transformers model, and every forward of this package goes through them.

The product is never added to W while a model samples or trains. Sampler and trainer then compute the same operations on
the same numbers, W keeps its bits, and nothing is held twice; a sum in bf16 would round small products away.
"""

import difflib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from groupwise.errors import ConfigError, ModelError
from groupwise.models.config import ALL, LoraConfig
from groupwise.randomness import key, uniforms
from groupwise.ranks.sharding import first_row, own_rows, whole_tensor

NAME = "default"
"""What peft calls the adapters of a model, in the names of their weights."""
MARKS = (f".lora_A.{NAME}.", f".lora_B.{NAME}.")
"""Parts of the names of adapters' weights."""
SCORE = "score"
"""The layer of a reward model that makes the score; it is new, so it is trained as a whole and kept with adapters."""


@dataclass(slots=True)
class Adapters:
    """What the adapters of a model are. Their weights are among the model's."""

    config: Any
    """peft's configuration of them, as it will be written."""
    base_fingerprint: str
    """Of the weights that they stand on, as read from their directory."""


def peft() -> Any:
    """The library, which is asked for only where there are adapters.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import peft
    except ImportError:
        raise ConfigError("LoRA needs the library `peft`: pip install 'groupwise[lora]'") from None
    return peft


def new_adapters(
    model: PreTrainedModel, lora: LoraConfig, base: str, base_fingerprint: str, seed: int, *, scores: bool
) -> Adapters:
    """Put new adapters into a model; they alone are trained from here on, and the score of a reward model.

    A is drawn uniformly from ±1/√in, as peft and the paper's code draw it, each number from its own key; B is 0.

    Args:
        model: on a processor, in fp32.
        lora: what is to be adapted, and how.
        base: directory or hub name of the model.
        base_fingerprint: of its weights.
        seed: of A.
        scores: whether the model is a reward model.

    Raises:
        ModelError: a target is not there or cannot be adapted, or the rank is larger than a layer.
    """
    layers = target_layers(model, lora)
    config = peft().LoraConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha) if lora.alpha.is_integer() else lora.alpha,
        lora_dropout=0.0,
        target_modules=sorted({name.rsplit(".", 1)[-1] for name in layers} if lora.adapts_all else lora.targets),
        task_type="SEQ_CLS" if scores else "CAUSAL_LM",
        modules_to_save=[SCORE] if scores else None,
        base_model_name_or_path=base,
    )
    inject(model, config, scores=scores)
    if adapted(model).keys() != layers.keys():
        raise ModelError(f"peft adapts other layers of {base!r} than {', '.join(lora.targets)}")
    with torch.no_grad():
        for name, layer in adapted(model).items():
            first, second = layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
            first.copy_(_first_matrix(name, first.shape, seed))
            second.zero_()
    return Adapters(config, base_fingerprint)


def _first_matrix(name: str, shape: torch.Size, seed: int) -> Tensor:
    numbers = uniforms(key(seed, "lora", name), np.arange(shape.numel()))
    return torch.from_numpy((2 * numbers - 1) / shape[1] ** 0.5).float().view(shape)


def inject(model: PreTrainedModel, config: Any, *, scores: bool) -> None:
    """Put peft's layers into a model, with numbers that are yet to be set; nothing else is trained.

    Raises:
        ModelError: peft does not know what to adapt, or would compute something else than W x + s B A x.
    """
    names = config.modules_to_save
    config.modules_to_save = None  # peft would copy that layer; here it is trained where it stands
    try:
        with torch.random.fork_rng(devices=[]):  # peft draws numbers, which are not used
            peft().inject_adapter_in_model(config, model, NAME)
    except ValueError as error:
        raise ModelError(f"the adapters do not fit the model: {str(error).splitlines()[0]}") from None
    finally:
        config.modules_to_save = names
    plain: Any = peft().tuners.lora.Linear
    switched, layers = _switched(plain), adapted(model)
    for name, layer in layers.items():
        if type(layer) is not plain or layer.lora_variant or layer.lora_bias[NAME]:
            variants = [type(variant).__name__ for variant in layer.lora_variant.values()]
            raise ModelError(
                f"{name} has adapters of a kind that is not supported ({type(layer).__name__}, "
                f"{', '.join(variants) or 'with a bias'}); allowed is plain LoRA on linear layers"
            )
        layer.__class__ = switched
        for part in (layer.lora_A[NAME], layer.lora_B[NAME]):
            if part.weight.is_meta:  # beside weights that are yet to be read; adapters are small, and whole until then
                part.to_empty(device="cpu")
        layer.cast_input_dtype_enabled = False  # the precision around a forward decides
    for weight_name, weight in model.named_parameters():
        weight.requires_grad_(is_adapter(weight_name) or (scores and weight_name.startswith(f"{SCORE}.")))


def adapted(model: nn.Module) -> dict[str, Any]:
    """The adapted layers of a model, by name."""
    kind = peft().tuners.lora.LoraLayer
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def is_adapter(name: str) -> bool:
    """Whether a weight of this name is an adapter's."""
    return any(mark in name for mark in MARKS)


def plain_name(name: str) -> str:
    """Return the name that a weight has in a model without adapters."""
    return name.replace(".base_layer.", ".")


@torch.no_grad()
def plain_weights(model: PreTrainedModel, *, added: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Names and weights of the plain model W + s B A; those with adapters in fp32, whatever the precision of W.

    Unless adapters are `added`, of the model that they stand on. All ranks have to ask.
    """
    layers, end = adapted(model), ".base_layer.weight"
    for name, weight in model.named_parameters():
        if not is_adapter(name):
            is_adapted = added and name.endswith(end)
            summed = _sum(layers[name.removesuffix(end)]) if is_adapted else whole_tensor(weight.detach())
            yield plain_name(name), summed


def _sum(layer: Any) -> Tensor:
    """W + s B A of an adapted layer, in fp32 at least."""
    parts = (layer.base_layer, layer.lora_A[NAME], layer.lora_B[NAME])
    weight, first, second = (whole_tensor(part.weight) for part in parts)
    dtype = torch.promote_types(weight.dtype, torch.float32)
    product = second.to(dtype) @ first.to(dtype)
    total: Tensor = weight.to(dtype) + layer.scaling[NAME] * product
    return total


@torch.no_grad()
def merge(model: PreTrainedModel) -> None:
    """Make of a model with adapters the plain model W + s B A, added up in fp32; it can be trained as a whole."""
    for layer in adapted(model).values():
        layer.base_layer.weight.copy_(_sum(layer))
    strip(model)


@torch.no_grad()
def products(model: PreTrainedModel) -> dict[str, tuple[float, Tensor, Tensor]]:
    """What adapters add, as (s, B, A), by the name that the weight will have without them."""
    return {
        f"{name}.weight": (layer.scaling[NAME], layer.lora_B[NAME].weight.detach(), layer.lora_A[NAME].weight.detach())
        for name, layer in adapted(model).items()
    }


@torch.no_grad()
def add_product(weight: Tensor, product: tuple[float, Tensor, Tensor]) -> None:
    """W + s B A, in this rank's rows of W; the product is made whole, so that it has the bits of a whole one."""
    scale, second, first = product
    rows, start = own_rows(weight.detach()), first_row(weight)
    added = (second.float() @ first.float())[start : start + len(rows)]
    rows.copy_(rows.float() + scale * added.to(rows.device))


def strip(model: PreTrainedModel) -> None:
    """Take the adapters out of a model, which can then be trained as a whole."""
    for name, layer in adapted(model).items():
        model.set_submodule(name, layer.base_layer)
    if hasattr(model, "peft_config"):
        del model.peft_config
    model.requires_grad_(True)


# ------------------------------------------------------------------------------------- the model without its adapters


_switch = threading.local()


@contextmanager
def adapters_used(used: bool) -> Iterator[None]:
    """While the context is open, layers that this thread computes use their adapters, or are without them the base's.

    Of this thread alone: micro-batches are computed side by side, and one may ask the reference while another
    differentiates the policy. Outside of such a context adapters are used.
    """
    before = getattr(_switch, "off", False)
    _switch.off = not used
    try:
        yield
    finally:
        _switch.off = before


@cache
def _switched(kind: type[nn.Module]) -> Any:
    """The class of an adapted layer that `adapters_used` switches."""

    class Switched(kind):  # type: ignore[valid-type, misc]
        @property
        def disable_adapters(self) -> bool:
            return getattr(_switch, "off", False) or bool(super().disable_adapters)

    Switched.__name__ = Switched.__qualname__ = kind.__name__
    return Switched


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
