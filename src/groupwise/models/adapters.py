"""LoRA (Hu et al. 2021, arXiv:2106.09685): a model's weights stay, and a small product beside each matrix learns.

An adapted layer computes W x + s B A x with A (r, in), B (out, r) and s = alpha / r, where W never changes. B is 0 at
first, so a model with new adapters is the model without them, to the bit. The layers are those of `peft`, put into the
model in place: it stays a transformers model, and every forward of this package goes through them.

The product is never added to W while a model samples or trains. Sampler and trainer then compute the same operations on
the same numbers, W keeps its bits, and nothing is held twice; a sum in bf16 would round small products away.
"""

import difflib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from groupwise.errors import ConfigError, ModelError
from groupwise.models.config import ALL, LoraConfig
from groupwise.randomness import key, uniforms
from groupwise.ranks.sharding import first_row, own_rows, whole_tensor

NAME = "default"  # peft's name for the adapters of a model, in the names of their weights
MARKS = (f".lora_A.{NAME}.", f".lora_B.{NAME}.")  # Parts of the names of adapters' weights
SCORE = "score"
"""The layer of a reward model that makes the score; it is new, so it is trained as a whole and kept with adapters."""


@dataclass(slots=True)
class Adapters:
    """Settings of a model's adapters; their weights are among the model's."""

    config: Any  # peft's, as it will be written
    base_fingerprint: str | None
    """Fingerprint of the weights that they stand on; None until those are read."""


class Product(NamedTuple):
    """s B A of an adapted layer."""

    scale: float
    second: Tensor  # B (out, r)
    first: Tensor  # A (r, in)


def peft() -> Any:
    """Import the library, which only models with adapters need."""
    try:
        import peft
    except ImportError:
        raise ConfigError("LoRA needs the library `peft`: pip install 'groupwise[lora]'") from None
    return peft


def new_adapters(model: PreTrainedModel, lora: LoraConfig, base: str, seed: int, *, scores: bool) -> Any:
    """Put new adapters into a model and return peft's configuration of them; they and a score are all that is trained.

    A is drawn uniformly from ±1/√in, as peft and the paper's code draw it, each number from its own key; B is 0.
    The model is on a processor, in fp32; `base` is its directory or hub name, and it `scores` if it is a reward model.

    Raises:
        ModelError: a target is not there or cannot be adapted, or the rank is larger than a layer.
    """
    layers = target_layers(model, lora)
    config = peft().LoraConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha) if lora.alpha.is_integer() else lora.alpha,
        lora_dropout=0.0,
        target_modules=sorted({_last(name) for name in layers} if lora.targets == ALL else lora.targets),
        task_type="SEQ_CLS" if scores else "CAUSAL_LM",
        modules_to_save=[SCORE] if scores else None,
        base_model_name_or_path=base,
    )
    inject(model, config, scores=scores)
    if adapted(model).keys() != layers.keys():
        raise ModelError(f"peft adapts other layers of {base!r} than {', '.join(lora.targets)}")
    with torch.no_grad():
        for name, layer in adapted(model).items():
            first = layer.lora_A[NAME].weight
            numbers = uniforms(key(seed, "lora", name), np.arange(first.numel()))
            first.copy_(torch.from_numpy((2 * numbers - 1) / first.shape[1] ** 0.5).float().view(first.shape))
            layer.lora_B[NAME].weight.zero_()
    return config


def inject(model: PreTrainedModel, config: Any, *, scores: bool) -> None:
    """Put peft's layers into a model, with numbers that are yet to be set; nothing else is trained."""
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
        what = [type(variant).__name__ for variant in layer.lora_variant.values()]
        what += ["with a bias"] if layer.lora_bias.get(NAME) else []
        what += ["on the head"] if layer is model.get_output_embeddings() else []
        if what or type(layer) is not plain:
            raise ModelError(
                f"{name} has adapters of a kind that is not supported ({', '.join([type(layer).__name__, *what])}); "
                "allowed is plain LoRA on linear layers"
            )
        layer.__class__ = switched
        for part in (layer.lora_A[NAME], layer.lora_B[NAME]):
            if part.weight.is_meta:  # beside weights that are yet to be read; adapters are small, and whole until then
                part.to_empty(device="cpu")
        layer.cast_input_dtype_enabled = False  # the precision around a forward decides
    for weight_name, weight in model.named_parameters():
        weight.requires_grad_(is_adapter(weight_name) or (scores and weight_name.startswith(f"{SCORE}.")))


def adapted(model: nn.Module) -> dict[str, Any]:
    """Return the adapted layers of a model, by name."""
    kind = peft().tuners.lora.LoraLayer
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def is_adapter(name: str) -> bool:
    """Tell from its name whether a weight is an adapter's."""
    return any(mark in name for mark in MARKS)


def plain_name(name: str) -> str:
    """Return the name that a weight has in a model without adapters."""
    return name.replace(".base_layer.", ".")


@torch.no_grad()
def plain_weights(model: PreTrainedModel, *, added: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Yield names and weights of the plain model W + s B A; the adapted ones in fp32, whatever the precision of W.

    Unless adapters are `added`, they are those of the model that the adapters stand on. All ranks have to ask.
    """
    layers, end = adapted(model), ".base_layer.weight"
    for name, weight in model.named_parameters():
        if is_adapter(name):
            continue
        whole = whole_tensor(weight.detach())
        if added and name.endswith(end):
            scale, *factors = product_of(layers[name.removesuffix(end)])
            dtype = torch.promote_types(whole.dtype, torch.float32)
            second, first = (whole_tensor(factor).to(dtype) for factor in factors)
            whole = whole.to(dtype) + scale * (second @ first)
        yield plain_name(name), whole


def strip(model: PreTrainedModel) -> dict[str, Product]:
    """Take the adapters out of a model, which can then be trained as a whole; return what they added, by the weight."""
    found = {}
    for name, layer in adapted(model).items():
        found[f"{name}.weight"] = product_of(layer)
        model.set_submodule(name, layer.base_layer)
    if hasattr(model, "peft_config"):
        del model.peft_config
    model.requires_grad_(True)
    return found


def product_of(layer: Any) -> Product:
    """Return s B A of an adapted layer."""
    return Product(layer.scaling[NAME], layer.lora_B[NAME].weight.detach(), layer.lora_A[NAME].weight.detach())


@torch.no_grad()
def add_products(model: PreTrainedModel, products: Mapping[str, Product]) -> None:
    """Add s B A, in fp32 at least, to this rank's rows of W; a product is computed whole, so it has the same bits."""
    for name, product in products.items():
        weight = model.get_parameter(name)
        rows, start = own_rows(weight.detach()), first_row(weight)
        dtype = torch.promote_types(weight.dtype, torch.float32)
        added = (product.second.to(dtype) @ product.first.to(dtype))[start : start + len(rows)]
        rows.copy_(rows.to(dtype) + product.scale * added.to(rows.device))


_switch = threading.local()


@contextmanager
def adapters_used(used: bool) -> Iterator[None]:
    """Let layers that this thread computes use their adapters, or compute the base's, while the context is open.

    It holds for this thread alone: micro-batches are computed side by side, and one may ask the reference while another
    differentiates the policy. Outside of such a context adapters are used.
    """
    before = getattr(_switch, "off", False)
    _switch.off = not used
    try:
        yield
    finally:
        _switch.off = before


def are_used() -> bool:
    """Tell whether layers that this thread computes use their adapters."""
    return not getattr(_switch, "off", False)


@cache
def _switched(kind: type[nn.Module]) -> Any:
    """The class of an adapted linear layer that `adapters_used` switches.

    `models.activations` changes the class of the layers around it; no module gets both, so the order is free.
    """

    class Switched(kind):  # type: ignore[valid-type, misc]
        @property
        def disable_adapters(self) -> bool:
            return not are_used() or bool(super().disable_adapters)

    Switched.__name__ = Switched.__qualname__ = kind.__name__
    return Switched


def target_layers(model: PreTrainedModel, lora: LoraConfig) -> dict[str, nn.Linear]:
    """Return the linear layers of the body that a recipe adapts, by name. The model may stand on the meta device.

    Raises:
        ModelError: a target is the head or the embedding, no linear layer, or not there at all; or the rank is larger
            than a layer.
    """
    inside = {id(module) for module in model.base_model.modules()}
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and id(m) in inside}
    if lora.targets == ALL:
        others = [name for name, weight in model.base_model.named_parameters() if weight.ndim > 2]
        if others or not linear:
            what = f"weights that are no linear layers, such as {others[0]}" if others else "no linear layers"
            raise ModelError(
                f"lora.targets = '{ALL}': {type(model).__name__} has {what}, which adapters would leave out; "
                f"allowed is a list of {_allowed(linear)}"
            )
        chosen = linear
    else:
        for target in lora.targets:
            if not any(_is_named(name, target) for name in linear):
                raise ModelError(_why_not(model, linear, target))
        chosen = {n: layer for n, layer in linear.items() if any(_is_named(n, target) for target in lora.targets)}
    for name, layer in chosen.items():
        if lora.rank > (least := min(layer.in_features, layer.out_features)):
            raise ModelError(
                f"lora.rank = {lora.rank} is more than {name} has, a matrix of {layer.out_features} × "
                f"{layer.in_features}; at most {least} is allowed"
            )
    return chosen


def _why_not(model: PreTrainedModel, linear: dict[str, nn.Linear], target: str) -> str:
    other = next((module for name, module in model.named_modules() if name and _is_named(name, target)), None)
    stacks = [w.shape for name, w in model.named_parameters() if w.ndim > 2 and _is_named(name, target)]
    hint = f"allowed are {_allowed(linear)}"
    if other is None and stacks:
        what = f"one weight of {' × '.join(map(str, stacks[0]))}, not a linear layer"
    elif other is None:
        what = f"no layer of {type(model).__name__}"
        if nearest := difflib.get_close_matches(target, sorted(set(map(_last, linear))), n=1, cutoff=0.5):
            hint = f"did you mean '{nearest[0]}'?"
    elif other is model.get_output_embeddings() or target == SCORE:
        what = "the head, which is not adapted"
    elif other is model.get_input_embeddings():
        what = "the embedding, which is not adapted"
    else:
        what = f"a {type(other).__name__}, not a linear layer"
    return f"lora.targets: {target!r} is {what}; {hint}"


def _is_named(name: str, target: str) -> bool:
    """True where the target is the module's whole name or the end of it."""
    return name == target or name.endswith(f".{target}")


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _allowed(linear: dict[str, nn.Linear]) -> str:
    return ", ".join(dict.fromkeys(map(_last, linear))) or "none"
