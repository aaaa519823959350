"""What a policy and a reward model share: a transformers model, its tokenizer, and the packed forward of its body."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models import attention
from groupwise.models.packed import Pack


@dataclass(frozen=True, slots=True)
class Backbone:
    """A model whose body computes packed rows."""

    model: PreTrainedModel
    tokenizer: Any
    stop_ids: frozenset[int]
    """Token ids that end a completion (a model may have several)."""
    compute_dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def context_length(self) -> int:
        """Most tokens a prompt and its completion may have together."""
        return int(getattr(self.model.config.get_text_config(), "max_position_embeddings", 1 << 30))

    @contextmanager
    def precision(self) -> Iterator[None]:
        """The precision in which this model computes, wherever it is used."""
        enabled = self.compute_dtype is not torch.float32
        with torch.autocast(self.device.type, dtype=self.compute_dtype, enabled=enabled):
            yield

    def hidden(self, input_ids: Tensor, position_ids: Tensor, layout: attention.Layout) -> Tensor:
        """Final hidden states (N, d) of a packed row."""
        out = self.model.base_model(input_ids, position_ids=position_ids, layout=layout, use_cache=False)
        states: Tensor = out.last_hidden_state[0]
        return states

    def hidden_at(self, packed: Pack, positions: Tensor) -> Tensor:
        """(M, d) final hidden states at positions (M,) of a pack; a position may be asked for more than once.

        Gathered as an embedding is, whose backward adds what falls on one position in a fixed order. That of plain
        indexing adds with atomics from several threads: two runs would round differently.
        """
        states = self.hidden(packed.input_ids, packed.position_ids, packed.layout)
        return torch.nn.functional.embedding(positions, states)

    def freeze(self) -> Self:
        """Its weights are never trained: a reference, a reward."""
        self.model.requires_grad_(False)
        return self
