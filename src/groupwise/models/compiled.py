"""Layers compiled by torch for training and scoring (`model.compile`): few loops do what lies between their products.

Attention is left out: it is ours, and calls a fused kernel. Sampling is left out, too: its steps are too small to pay
for the checks that a compiled call makes (docs/performance.md).

Everything is compiled when a model is placed, in the thread that places it, because torch cannot compile in one thread
while another runs what is compiled, and micro-batches run side by side. On a processor the loops take one thread each,
so what they add up does not depend on the number of threads.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models import attention
from groupwise.models.adapters import is_adapter
from groupwise.models.packed import Pack, Sequences, pack
from groupwise.ranks.group import RANKS

FEWEST_TOKENS = 2
"""In a compiled row: torch compiles a dimension of 1 apart."""

_ATTRIBUTE = "groupwise_compiled"


def allow_compiling(model: PreTrainedModel) -> None:
    """Prepare the layers of a model, so that `takes_compiled` may say for each forward which of their forms it takes.

    Raises:
        UnsupportedModelError: the model has adapters, or no layers of transformers' usual form, or lies on ranks.
    """
    if any(is_adapter(name) for name, _ in model.named_parameters()):
        raise UnsupportedModelError(
            "model.compile = true with [lora]: allowed where all weights are trained, because layers that switch their "
            "adapters on and off would be compiled anew in the middle of a step"
        )
    if RANKS.size > 1:
        raise UnsupportedModelError(
            f"model.compile = true in a run of {RANKS.size} ranks: allowed in one process, because layers that lie on "
            "several ranks gather their weights around the call that would be compiled"
        )
    layers = [module for module in model.base_model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no layers that could be compiled one by one: set model.compile = false"
        )
    AttentionInterface.register(attention.NAME, torch.compiler.disable(attention.groupwise_attention))
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # else a layer would be computed uncompiled without a word
    for layer in layers:
        layer.__class__ = _compiled(type(layer))  # type: ignore[arg-type]
    setattr(model.base_model, _ATTRIBUTE, True)


def is_compiled(body: nn.Module) -> bool:
    """Whether the layers of a body have a compiled form."""
    return getattr(body, _ATTRIBUTE, False)


def takes_compiled(body: nn.Module, input_ids: Tensor) -> bool:
    """Whether a forward of a body over ids (1, N) is to take the compiled layers."""
    return is_compiled(body) and input_ids.shape[1] >= FEWEST_TOKENS


def compile_now(body: nn.Module, forward: Callable[[Pack], Tensor]) -> None:
    """Compile the layers of a body for training, for scoring, and for a frozen copy of it.

    Args:
        body: on its device, none of its weights frozen.
        forward: states of a pack, in the body's precision.

    Raises:
        ModelError: torch cannot compile here.
    """
    from torch._dynamo.exc import BackendCompilerFailed  # takes two seconds

    device = next(body.parameters()).device
    packed = pack([Sequences([0, 0], [[0, 0, 0], [0, 0]]), Sequences([0, 0, 0], [[0, 0]])], device)
    weights = list(body.parameters())
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's compiler warns of its own code
            torch.autograd.grad(forward(packed).sum(), weights, allow_unused=True)
            with torch.no_grad():
                forward(packed)
                for weight in weights:
                    weight.requires_grad_(False)
                forward(packed)
    except BackendCompilerFailed as error:
        raise ModelError(
            f"model.compile = true, but torch cannot compile here: {str(error).splitlines()[0]} "
            "(on a processor it needs a C++ compiler, such as g++, and Python's headers; on a GPU triton)"
        ) from error
    finally:
        for weight in weights:
            weight.requires_grad_(True)


@cache
def _compiled(kind: type[nn.Module]) -> Any:
    """The class of a layer, which with `compiled` in a call takes its compiled form.

    A class, so that a copy of the model has it, too. Programs belong to the class: layers of one shape share them.
    """
    with warnings.catch_warnings(action="ignore"):  # torch imports its compiler here, which warns of its own code
        program: Callable[..., Any] = torch.compile(kind.forward, dynamic=True, options={"cpp.threads": 1})

    class Compiled(kind):  # type: ignore[valid-type, misc]
        def forward(self, *args: Any, compiled: bool = False, **named: Any) -> Any:
            return program(self, *args, **named) if compiled else super().forward(*args, **named)

    Compiled.__name__ = Compiled.__qualname__ = "Compiled" + kind.__name__
    return Compiled
