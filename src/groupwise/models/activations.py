"""Activations, which a forward keeps for its backward, and activation checkpointing, with which it keeps fewer.

A checkpointed layer keeps its input alone and computes itself again in the backward (Chen et al. 2016,
arXiv:1604.06174). It computes the same operations in the same order, so the gradient has the same bits; the price is
one more forward of the layers. So memory alone decides, micro-batch by micro-batch, and no result depends on it.

Nothing is paid where no gradient is recorded: in sampling, in scoring, in a reference.
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from groupwise.errors import UnsupportedModelError
from groupwise.models.adapters import is_adapter
from groupwise.models.cores import num_in_hand

Setting = Literal["auto", "on", "off"]

SHARE = 0.5
"""Share of the available memory that activations may take before `auto` drops them. The other half is for what comes
and goes beside them: attention scores, chunks of logits, gradients, the next step's keys and values, other programs."""
FP32 = 4


def head_dim(text: Any) -> int:
    """Return the width of an attention head, from the configuration of a language model."""
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)


def widest(text: Any) -> Any:
    """Return the configuration of a language model's widest layer, which is that of all where they do not differ."""
    layers = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text]
    return max(layers, key=lambda layer: layer.num_attention_heads * head_dim(layer) + _inner_width(layer))


def activation_bytes(text: Any, width: int, num_tokens: int, *, checkpointed: bool, adapted: bool = False) -> int:
    """Return the bytes that the layers keep of `num_tokens` until the backward; products in numbers of `width` bytes.

    With `checkpointed` every layer keeps its input, and one at a time, whose backward it is, the rest. `adapted`:
    adapters alone are trained.
    """
    layer, num_layers = layer_bytes(text, width, num_tokens, adapted=adapted), int(text.num_hidden_layers)
    return num_layers * FP32 * int(text.hidden_size) * num_tokens + layer if checkpointed else num_layers * layer


def layer_bytes(text: Any, width: int, num_tokens: int, *, adapted: bool = False) -> int:
    """Return the bytes that one layer keeps of `num_tokens`; its backward needs half as many again, for gradients.

    With adapters on all linear layers, these keep what the products read, and what comes between their two matrices,
    which is little; norms, whose weights are frozen, keep their input alone.
    """
    text = widest(text)
    d, query = text.hidden_size, text.num_attention_heads * head_dim(text)
    key_value = (getattr(text, "num_key_value_heads", None) or text.num_attention_heads) * head_dim(text)
    # norms keep their fp32 input and normalised input; products keep what they read; rotation keeps its inputs
    of_norms = 4 if adapted else 6
    return int(num_tokens * (FP32 * of_norms * d + width * (3 * query + 4 * key_value + 4 * _inner_width(text))))


def _inner_width(text: Any) -> int:
    """Width of the feed-forward layers that a token meets in a layer: of the model, or of its experts together."""
    width = int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size)
    if not (num_experts := getattr(text, "num_experts_per_tok", None)):
        return width
    shared = getattr(text, "shared_expert_intermediate_size", None) or 0
    return int(num_experts * (getattr(text, "moe_intermediate_size", None) or width) + shared)


def are_dropped(setting: Setting, num_bytes: int, available: float) -> bool:
    """Decide whether activations of `num_bytes`, all that are kept at a time, are computed again instead of kept."""
    return setting == "on" or (setting == "auto" and num_bytes > SHARE * available)


def available_memory(device: torch.device) -> float:
    """Return the bytes that may still be taken on a device without swapping; infinite where that is not known."""
    if device.type == "cuda":
        if not torch.cuda.is_available():
            return float("inf")
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # held by torch for later
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    if _MEMORY.exists():
        for line in _MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class _Checkpointing:
    """The facts by which one model decides whether its layers keep their activations."""

    setting: Setting
    text: Any
    width: int  # Bytes of a number in the matrix products
    adapted: bool  # True where adapters alone are trained


_ATTRIBUTE = "groupwise_checkpointing"
_PREFIX = "Checkpointed"


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model, which transformers marks as what can be computed again in a backward."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def allow_checkpointing(model: PreTrainedModel, setting: Setting, compute_dtype: torch.dtype) -> None:
    """Prepare the layers of a model, so that `drops_activations` can decide for each forward.

    Raises:
        UnsupportedModelError: the setting is "on", and the model has no layers that can be computed again.
    """
    body = model.base_model
    layers = layers_of(body)
    if not layers and setting == "on":
        raise UnsupportedModelError(
            f"{type(model).__name__} has no layers that transformers can compute again in the backward: "
            "set model.activation_checkpointing = off"
        )
    for layer in layers:
        layer.__class__ = _checkpointed(type(layer))  # type: ignore[arg-type]
    width = torch.finfo(compute_dtype).bits // 8
    adapted = any(is_adapter(name) for name, _ in body.named_parameters())
    text = model.config.get_text_config()
    setattr(body, _ATTRIBUTE, _Checkpointing(setting if layers else "off", text, width, adapted))


def drops_activations(body: nn.Module, input_ids: torch.Tensor) -> bool:
    """Decide whether a body's layers compute themselves again in the backward of this forward over ids (B, n)."""
    facts: _Checkpointing | None = getattr(body, _ATTRIBUTE, None)
    if facts is None or not torch.is_grad_enabled():
        return False
    if facts.setting != "auto":
        return facts.setting == "on"
    kept = activation_bytes(facts.text, facts.width, input_ids.numel(), checkpointed=False, adapted=facts.adapted)
    return are_dropped("auto", kept * num_in_hand(), available_memory(input_ids.device))


def return_freed_memory() -> None:
    """Give the system what this process has freed and still holds; where the C library is not glibc, nothing is done.

    What a layer lets go lies between the inputs that are kept, in pieces that often do not fit the next layer. Without
    this, a third of the peak would be such holes.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)


_malloc_trim: Callable[[int], int] | None = (
    getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
)


@cache
def _checkpointed(kind: type[nn.Module]) -> Any:
    """The class of a layer, which with `drop_activations` in a call keeps its input alone.

    A class, where a function in the layer would do: it would hold the layer that holds it, and no model would be freed
    when it is let go. `forward` and not the call is computed again: hooks of the layer run once.
    """
    if kind.__name__.startswith(_PREFIX):
        return kind

    class Checkpointed(kind):  # type: ignore[valid-type, misc]
        def forward(self, *args: Any, drop_activations: bool = False, **named: Any) -> Any:
            if not drop_activations:
                return super().forward(*args, **named)
            compute = super().forward
            on_processor = next(self.parameters()).device.type == "cpu"

            def compute_lean(*args: Any, **named: Any) -> Any:
                if on_processor:
                    return_freed_memory()
                return compute(*args, **named)

            # no dropout: no state of a random generator is to be restored
            return checkpoint(compute_lean, *args, use_reentrant=False, preserve_rng_state=False, **named)

    Checkpointed.__name__ = Checkpointed.__qualname__ = _PREFIX + kind.__name__
    return Checkpointed
