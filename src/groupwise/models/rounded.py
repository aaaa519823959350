"""Linear layers of a model that samples, in the precision of its products: converted, side by side, adapters beside."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from groupwise.models.adapters import Product, are_used, product_of

TOGETHER = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
"""Names of layers of one module that read the same states in all models of transformers that have them."""


MOST_TWICE = 512 << 20
"""Bytes of weights that are in the precision of products and yet copied, since oneDNN is faster with its own order."""


def num_twice(num_bytes: int, device: torch.device) -> int:
    """Return how many bytes of such weights sampling copies: all or none."""
    return num_bytes if _has_orders(device) and num_bytes <= MOST_TWICE else 0


def _has_orders(device: torch.device) -> bool:
    has_library = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return has_library and device.type == "cpu"


class Rounded:
    """The context that `Backbone.rounded` returns."""

    def __init__(self, model: nn.Module | None, dtype: torch.dtype, *, in_place: bool = False) -> None:
        """Convert a model's weights; with `in_place`, `refresh` can renew them where they lie."""
        self._products = list[_Product]()
        self._forwards = dict[nn.Module, Callable[[Tensor], Tensor]]()
        modules = list(model.modules()) if model else []
        adapted = [module for module in modules if hasattr(module, "lora_A")]
        inside = {part for layer in adapted for part in layer.modules() if part is not layer}
        linear = [m for m in modules if m in adapted or (type(m) is nn.Linear and m not in inside)]
        weights = {layer: _base(layer).weight for layer in linear}
        same = [weight for weight in weights.values() if weight.dtype is dtype]
        is_twice = not in_place and bool(same) and num_twice(sum(weight.nbytes for weight in same), same[0].device) > 0
        copied = {layer for layer, weight in weights.items() if is_twice or weight.dtype is not dtype}
        for module in modules:
            layers = {name: each for name, each in module.named_children() if each in copied or each in adapted}
            for names in TOGETHER:  # of weights that are copied; others would lie in memory twice
                of_names = [layers[n] for n in names if n in layers and layers[n] in copied]
                if len(of_names) == len(names) and len({_base(layer).bias is None for layer in of_names}) == 1:
                    self._products.append(_Product(of_names, dtype, not in_place))
                    self._forwards |= zip(of_names, _Together(self._products[-1]).forwards(), strict=True)
                    layers = {name: layer for name, layer in layers.items() if name not in names}
            for layer in layers.values():
                self._products.append(_Product([layer], dtype, not in_place and layer in copied))
                self._forwards[layer] = self._products[-1]

    def refresh(self) -> None:
        """Convert the weights as they are now, to where those of before lie."""
        for product in self._products:
            product.refresh()

    def __enter__(self) -> None:
        for layer, forward in self._forwards.items():
            layer.forward = forward

    def __exit__(self, *error: object) -> None:
        for layer in self._forwards:
            layer.__dict__.pop("forward", None)


def _base(layer: nn.Module) -> nn.Linear:
    base: nn.Linear = getattr(layer, "base_layer", layer)  # type: ignore[arg-type]
    return base


class _Together:
    """Layers that read the same states, in one product: the first that is asked computes all and the others take."""

    def __init__(self, product: "_Product") -> None:
        self._product = product
        self._states: Tensor | None = None
        self._parts = dict[int, Tensor]()

    def forwards(self) -> list[Callable[[Tensor], Tensor]]:
        return [partial(self._take, number) for number in range(len(self._product.widths))]

    def _take(self, number: int, states: Tensor) -> Tensor:
        if states is not self._states or number not in self._parts:
            self._states, self._parts = states, dict(enumerate(self._product(states).split(self._product.widths, -1)))
        part = self._parts.pop(number)
        if not self._parts:
            self._states = None  # nothing is kept behind the last
        return part


class _Product:
    """The forward of linear layers side by side, with weights converted, on a processor as oneDNN orders them.

    The plain forward would order or convert them anew in every call. What one layer computes is that forward's to the
    bit (with adapters where s is a power of 2); several may be summed in another order.
    """

    def __init__(self, layers: Sequence[nn.Module], dtype: torch.dtype, is_copied: bool) -> None:
        self._layers, self._dtype = layers, dtype
        self.widths = [_base(layer).out_features for layer in layers]
        self._is_ordered = is_copied and _has_orders(_base(layers[0]).weight.device)
        self._numbers = self._converted()

    def _converted(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Weights (out, in), A (rank, in) and s B (out, rank) of the adapters, biases (out,)."""
        bases = [_base(layer) for layer in self._layers]
        nothing = [Product(1.0, base.weight.new_zeros(base.out_features, 0), base.weight[:0]) for base in bases]
        adapters = [
            product_of(layer) if layer is not base else none
            for layer, base, none in zip(self._layers, bases, nothing, strict=True)
        ]
        weight = _joined([base.weight.detach().to(self._dtype) for base in bases])
        if self._is_ordered:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight, 32)  # rows: a hint
        first = torch.cat([adapter.first for adapter in adapters])
        second = torch.block_diag(*(adapter.scale * adapter.second for adapter in adapters))
        biases = [base.bias.detach().to(self._dtype) for base in bases if base.bias is not None]
        return weight, first.to(self._dtype), second.to(self._dtype), _joined(biases) if biases else None

    @torch.no_grad()
    def refresh(self) -> None:
        for kept, new in zip(self._numbers, self._converted(), strict=True):
            if kept is not None and new is not None and kept.data_ptr() != new.data_ptr():
                kept.copy_(new)

    def __call__(self, states: Tensor) -> Tensor:
        weight, first, second, bias = self._numbers
        states = states.to(self._dtype)
        if self._is_ordered:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
        else:
            out = nn.functional.linear(states, weight, bias)
        if len(first) and are_used():
            out += nn.functional.linear(nn.functional.linear(states, first), second)
        return out


def _joined(rows: list[Tensor]) -> Tensor:
    return torch.cat(rows) if len(rows) > 1 else rows[0]
