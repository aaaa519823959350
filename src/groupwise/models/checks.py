"""Whether the packed forward computes a model rightly: what is known to differ is refused, the rest is compared."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.errors import UnsupportedModelError
from groupwise.models import attention
from groupwise.models.backbone import precision


def refuse_unsupported(model: PreTrainedModel) -> None:
    """Refuse by name, from the configuration, what the packed forward would compute wrongly."""
    config = model.config.get_text_config()
    name = type(model).__name__
    if sliding := sorted(set(getattr(config, "layer_types", None) or []) - {"full_attention"}):
        raise UnsupportedModelError(f"{name} has layers of type {', '.join(sliding)}; only full_attention is supported")
    uses_window = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None) is not None
    if uses_window:
        raise UnsupportedModelError(
            f"{name} uses sliding-window attention (window {config.sliding_window}): not supported"
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None) is not None:
            raise UnsupportedModelError(f"{name} soft-caps its logits ({key}={getattr(config, key)}): not supported")
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModelError(f"{name} does not dispatch through transformers' attention interface")


@torch.no_grad()
def compare_with_eager(
    model: PreTrainedModel, compute_dtype: torch.dtype, ours: Callable[[], Tensor], theirs: Callable[[], Tensor]
) -> None:
    """Compare what the packed forward makes of some tokens with what transformers' own eager attention makes of them.

    Args:
        model: computes both.
        compute_dtype: in which precision; it decides how much may differ.
        ours: in the packed forward.
        theirs: the same, every sequence alone.

    Raises:
        UnsupportedModelError: they differ.
    """
    with precision(model.device, compute_dtype):
        packed = ours().float()
        model.set_attn_implementation("eager")
        alone = theirs().float()
        model.set_attn_implementation(attention.NAME)
    difference = (packed - alone).abs().max().item()
    allowed = (1e-3 if compute_dtype is torch.float32 else 0.25) * max(1.0, alone.abs().max().item())
    if not difference <= allowed:
        raise UnsupportedModelError(
            f"{type(model).__name__}: the packed forward differs from transformers' eager forward by {difference:.2g} "
            f"(allowed {allowed:.2g}), so this architecture is not supported"
        )
