"""Models whose weights lie on all ranks in shares, with the methods of those that one process has whole."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from groupwise.errors import UnsupportedModelError
from groupwise.models.activations import layers_of, return_freed_memory
from groupwise.models.backbone import Backbone, fingerprint, no_progress_bars
from groupwise.models.located import is_kept_with, write_adapters
from groupwise.models.policy import Critic, Policy
from groupwise.models.reward_model import RewardModel
from groupwise.models.rows import fill, refuse_bfloat16
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import settle, shard, whole, whole_tensor

B = TypeVar("B", bound=Backbone)

ENTRIES = ("states", "hidden", "next_logits", "teach", "divergence", "eager_logits", "eager_states")
"""Methods by which root modules are entered, beside their `forward`."""


class Sharded(Backbone):
    """A model of whose weights this rank has some rows. All ranks call everything here."""

    __slots__ = ()

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    def whole(self) -> AbstractContextManager[None]:
        return whole(self.root)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        settle(self.root)
        yield from ((name, whole_tensor(weight.detach())) for name, weight in self.model.named_parameters())

    def plain_state(self) -> Iterator[tuple[str, Tensor]]:
        settle(self.root)
        yield from super().plain_state()

    def fingerprint(self) -> str:
        settle(self.root)
        return fingerprint(self.model.named_parameters())

    def gathered(self) -> "Gathered":
        settle(self.root)
        adapters, weights = self.root.adapters, {}
        for name, weight in self.model.named_parameters():
            if adapters is None or is_kept_with(adapters, name):
                tensor = whole_tensor(weight.detach())
                weights[name] = tensor.cpu() if RANKS.is_first else tensor[:0]
        return Gathered(self, weights)

    def copy(self) -> Self:
        raise NotImplementedError("a sharded model is not copied: load the checkpoint a second time")


class ShardedPolicy(Sharded, Policy):
    """A policy in shares."""

    __slots__ = ()


class ShardedRewardModel(Sharded, RewardModel):
    """A reward model in shares."""

    __slots__ = ()


class Gathered:
    """The weights of a checkpoint, on the first rank; `save` there writes what one process would."""

    def __init__(self, model: Sharded, weights: dict[str, Tensor]) -> None:
        self._model, self._weights = model, weights

    def save(self, directory: Path) -> None:
        model, adapters = self._model.model, self._model.root.adapters
        if adapters:
            write_adapters(self._weights.items(), adapters, directory)
        else:
            named = dict(model.named_buffers())
            buffers = {name: tensor for name, tensor in model.state_dict().items() if name in named}
            with no_progress_bars():
                model.save_pretrained(directory, state_dict=self._weights | buffers)
        self._model.tokenizer.save_pretrained(directory)


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
    kind: Any = ShardedPolicy if isinstance(model, Policy) else ShardedRewardModel
    made: B = kind(**{field.name: getattr(model, field.name) for field in fields(model)} | {"unread": None})
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
