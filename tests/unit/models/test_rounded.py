"""Layers that sample compute what they would alone, and those that read the same states compute once."""

import pytest
import torch
from torch import Tensor, nn

from groupwise.models import rounded
from groupwise.models.rounded import Rounded


class Attention(nn.Module):
    def __init__(self, names: tuple[str, ...], bias: tuple[bool, ...]) -> None:
        super().__init__()
        for width, (name, has_bias) in enumerate(zip(names, bias, strict=True), 1):
            self.add_module(name, nn.Linear(32, 16 * width, bias=has_bias))


@pytest.mark.parametrize(
    ("names", "bias", "products"),
    [
        (("q_proj", "k_proj", "v_proj"), (False, False, False), 1),
        (("v_proj", "q_proj", "k_proj"), (True, True, True), 1),
        (("gate_proj", "up_proj", "down_proj"), (False, False, False), 2),
        (("q_proj", "k_proj", "v_proj"), (True, True, False), 3),
        (("q_proj", "k_proj"), (False, False), 2),
    ],
)
@torch.inference_mode()
def test_layers_that_read_the_same_states_are_one_product(
    names: tuple[str, ...], bias: tuple[bool, ...], products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, computed, compute = Attention(names, bias), list[Tensor](), rounded._Product.__call__
    counted = lambda product, states: (computed.append(states), compute(product, states))[1]  # noqa: E731
    monkeypatch.setattr(rounded._Product, "__call__", counted)
    used = Rounded(module, torch.bfloat16)
    layers = [getattr(module, name) for name in names]
    for _ in range(2):
        states = torch.randn(5, 32)
        alone = [
            nn.functional.linear(
                states.bfloat16(), layer.weight.bfloat16(), None if layer.bias is None else layer.bias.bfloat16()
            )
            for layer in layers
        ]
        with used:
            for layer, expected in zip(layers, alone, strict=True):
                torch.testing.assert_close(layer(states), expected)
    assert len(computed) == 2 * products
    assert all(together._states is None for together in _together(used))  # nothing is kept behind the last
    assert layers[0](states).dtype is torch.float32


@pytest.mark.skipif(not rounded._has_orders(torch.device("cpu")), reason="oneDNN has no order of its own here")
@torch.inference_mode()
def test_weights_in_the_precision_of_products_are_copied_where_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    module, states = Attention(("q_proj", "k_proj"), (False, False)).bfloat16(), torch.randn(5, 32).bfloat16()
    plain = [layer(states) for layer in module.children()]
    monkeypatch.setattr(rounded, "MOST_TWICE", 2 * 32 * (16 + 32))
    with Rounded(module, torch.bfloat16):
        torch.testing.assert_close([layer(states) for layer in module.children()], plain)
    assert len(Rounded(module, torch.bfloat16)._products) == 2
    monkeypatch.setattr(rounded, "MOST_TWICE", 2 * 32 * (16 + 32) - 1)
    assert not Rounded(module, torch.bfloat16)._products


@torch.inference_mode()
def test_a_layer_asked_again_computes_again() -> None:
    module = Attention(("q_proj", "k_proj", "v_proj"), (False,) * 3)
    states, others = torch.randn(2, 5, 32)
    with Rounded(module, torch.bfloat16):
        first, _ = module.q_proj(states), module.k_proj(states)
        torch.testing.assert_close(module.q_proj(states), first, rtol=0, atol=0)
        assert not torch.equal(module.v_proj(others), module.v_proj(states))


def _together(used: Rounded) -> set[rounded._Together]:
    return {take.func.__self__ for take in used._forwards.values() if hasattr(take, "func")}
