"""Models whose weights lie on all ranks in shares, behind the same face as those that one process has whole."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from groupwise.errors import ConfigError, UnsupportedModelError
from groupwise.models.adapter_files import is_kept_with, write_adapters
from groupwise.models.backbone import Backbone, bit_sums, digest, no_progress_bars
from groupwise.models.critic import Critic
from groupwise.models.policy import Policy
from groupwise.models.reward_model import RewardModel
from groupwise.models.size import layers_of
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import own_rows, settle, shard, whole, whole_tensor

B = TypeVar("B", bound=Backbone)

ENTRIES = ("states", "hidden", "next_logits", "teach", "divergence")
"""Methods by which root modules are entered, beside their `forward`."""


class Sharded(Backbone):
    """What a model does differently when this rank has rows of its weights only. All ranks call everything here."""

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
        """That of the whole weights: sums over bit patterns are exact, so the ranks' sums add up to theirs."""
        settle(self.root)
        named = list(self.model.named_parameters())
        sums = torch.stack([bit_sums(own_rows(weight)) for _, weight in named])
        return digest([name for name, _ in named], RANKS.total(sums))

    def gathered(self) -> "Gathered":
        settle(self.root)
        adapters, found = self.root.adapters, {}
        for name, weight in self.model.named_parameters():
            if adapters is None or is_kept_with(adapters, name):
                tensor = whole_tensor(weight.detach())
                found[name] = tensor.cpu() if RANKS.is_first else tensor[:0]
        return Gathered(self, found)

    def copy(self) -> Self:
        raise NotImplementedError("a sharded model is not copied: load the checkpoint a second time")


class ShardedPolicy(Sharded, Policy):
    """A policy of which every rank has some rows."""

    __slots__ = ()


class ShardedRewardModel(Sharded, RewardModel):
    """A reward model of which every rank has some rows."""

    __slots__ = ()


class Gathered:
    """What a checkpoint holds of a model's weights, on the first rank; `save` there writes what one process would."""

    def __init__(self, model: Sharded, weights: dict[str, Tensor]) -> None:
        self._model, self._weights = model, weights

    def save(self, directory: Path) -> None:
        """Write a directory that loads unchanged in transformers and vLLM; of adapters one that loads in peft."""
        model, adapters = self._model.model, self._model.root.adapters
        if adapters:
            write_adapters(self._weights.items(), adapters, directory)
            self._model.tokenizer.save_pretrained(directory)
            return
        buffers = {name: tensor for name, tensor in model.state_dict().items() if name in dict(model.named_buffers())}
        with no_progress_bars():
            model.save_pretrained(directory, state_dict=self._weights | buffers)
        self._model.tokenizer.save_pretrained(directory)


def sharded(model: B) -> B:
    """The model with this rank's rows of its weights alone; in one process the model as it is.

    Raises:
        UnsupportedModelError: its layers cannot be told apart.
        ConfigError: its weights are in bf16.
    """
    if RANKS.size == 1:
        return model
    refuse_bfloat16(any(weight.dtype is torch.bfloat16 for _, weight in model.state()))
    RANKS.agree("the weights that they loaded or made", model.fingerprint())
    entries = [name for name in ENTRIES if hasattr(model.root, name)]
    model.root.computes_on = model.device
    shard(model.root, _layers(model.model), entries, model.device)
    kind = ShardedPolicy if isinstance(model, Policy) else ShardedRewardModel
    return kind(**{field.name: getattr(model, field.name) for field in fields(model)})  # type: ignore[return-value]


def refuse_bfloat16(is_used: bool) -> None:
    """Ranks hold their shares of the weights in fp32.

    Raises:
        ConfigError: the weights are in bf16.
    """
    if is_used:
        raise ConfigError(
            'model.weights_dtype = "bfloat16" is for one process: ranks keep fp32 weights in shares; allowed among '
            'ranks is compute_dtype = "bfloat16" alone'
        )


def shard_critic(critic: Critic) -> None:
    """Leave this rank its rows of a critic; in one process it stays as it is."""
    if RANKS.size > 1:
        layers = [] if critic.trunk is None else _layers(critic.trunk)
        shard(critic, layers, (), critic.head.weight.device)


def _layers(model: nn.Module) -> list[nn.Module]:
    found = layers_of(model)
    if not found:
        raise UnsupportedModelError(f"{type(model).__name__} has no layers that ranks could share out")
    return found
