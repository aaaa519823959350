"""Models whose weights lie on all ranks in shares."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from groupwise.errors import UnsupportedModelError
from groupwise.models.activations import layers_of, return_freed_memory
from groupwise.models.backbone import Backbone
from groupwise.models.policy import Critic, Policy
from groupwise.models.rows import fill, refuse_bfloat16
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import settle, shard

B = TypeVar("B", bound=Backbone)

ENTRIES = ("states", "hidden", "next_logits", "teach", "divergence", "eager_logits", "eager_states")
"""Methods by which root modules are entered, beside their `forward`."""


def sharded(model: B) -> B:
    """Return the model with this rank's rows of its weights alone, read now if they are not; in one process as it is.

    Raises:
        UnsupportedModelError: its layers cannot be told apart, or it was unread and computes otherwise than it should.
        ConfigError: its weights are in bf16.
        ModelError: it was unread, and a file is damaged.
        InvariantError: the ranks read or made other weights.
    """
    if RANKS.size == 1:
        return model
    refuse_bfloat16(any(weight.dtype is torch.bfloat16 for _, weight in model.state()))
    root, unread, device = model.root, model.unread, model.device
    if unread is None:
        RANKS.agree("the weights that they loaded or made", model.fingerprint())
        root.computes_on = device
    shard(root, _layers(model.model), [name for name in ENTRIES if hasattr(root, name)], device)
    made = replace(model, unread=None)
    if unread is not None:
        fill(root, model.model, unread)
        made.check_forward()  # type: ignore[attr-defined]
        settle(root)
        if device.type == "cpu":
            return_freed_memory()  # what that gathered
    return made


def shard_critic(critic: Critic, backbone: Policy | None) -> None:
    """Leave this rank its rows of a critic, and read them if they are not; in one process it stays as it is.

    Its backbone is not compared with transformers' own forward: it is the model that the policy starts from, of which
    that is known.
    """
    if RANKS.size == 1:
        return
    shard(critic, [] if critic.trunk is None else _layers(critic.trunk), (), critic.head.weight.device)
    if backbone is not None and backbone.unread is not None:
        fill(critic, backbone.model, backbone.unread)


def _layers(model: nn.Module) -> list[nn.Module]:
    layers = layers_of(model)
    if not layers:
        raise UnsupportedModelError(f"{type(model).__name__} has no layers that ranks could share out")
    return layers
