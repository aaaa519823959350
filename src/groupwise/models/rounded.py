"""Linear layers of a model that samples, in the precision of its products: converted once, ordered, side by side."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

TOGETHER = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
"""Names of layers of one module that read the same states in all models of transformers that have them."""


class Rounded:
    """The context that `Backbone.rounded` returns."""

    def __init__(self, model: nn.Module | None, dtype: torch.dtype) -> None:
        self._products = dict[nn.Linear, Callable[[Tensor], Tensor]]()
        for module in model.modules() if model else ():
            linear = {n: m for n, m in module.named_children() if type(m) is nn.Linear and m.weight.dtype is not dtype}
            for names in TOGETHER:
                layers = [linear[name] for name in names if name in linear]
                if len(layers) == len(names) and len({layer.bias is None for layer in layers}) == 1:
                    self._products |= zip(layers, _Together(layers, dtype).products(), strict=True)
                    linear = {name: layer for name, layer in linear.items() if name not in names}
            self._products |= {layer: _product([layer], dtype) for layer in linear.values()}

    def __enter__(self) -> None:
        for layer, product in self._products.items():
            layer.forward = product  # type: ignore[method-assign, assignment]

    def __exit__(self, *error: object) -> None:
        for layer in self._products:
            layer.__dict__.pop("forward", None)


class _Together:
    """Layers that read the same states, in one product: the first that is asked computes all and the others take."""

    def __init__(self, layers: Sequence[nn.Linear], dtype: torch.dtype) -> None:
        self._product, self._widths = _product(layers, dtype), [layer.out_features for layer in layers]
        self._states: Tensor | None = None
        self._parts = dict[int, Tensor]()

    def products(self) -> list[Callable[[Tensor], Tensor]]:
        return [partial(self._take, number) for number in range(len(self._widths))]

    def _take(self, number: int, states: Tensor) -> Tensor:
        if states is not self._states or number not in self._parts:
            self._states, self._parts = states, dict(enumerate(self._product(states).split(self._widths, -1)))
        part = self._parts.pop(number)
        if not self._parts:
            self._states = None  # nothing is kept behind the last
        return part


def _product(layers: Sequence[nn.Linear], dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the forward of linear layers side by side, with weights converted and as oneDNN orders them.

    The plain forward would order them anew in every call. What one layer computes is that forward's to the bit; several
    may be summed in another order.
    """
    weight = torch.cat([layer.weight.detach().to(dtype) for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias.detach().to(dtype) for layer in layers])
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return lambda states: nn.functional.linear(states.to(dtype), weight, bias)
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight, 32)  # rows: a hint
    return lambda states: torch.ops.mkldnn._linear_pointwise(states.to(dtype), ordered, bias, "none", [], "")
