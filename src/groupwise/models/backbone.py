"""Shared by policies and reward models: the root module around a transformers model, and what others may ask of it.

The root is the one way to the weights. Whoever computes with them calls the root or one of its public methods, its
entries, from outside; an entry calls no other entry. So a hook around the entries sees every use of every weight.
"""

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from groupwise.errors import UnsupportedModelError
from groupwise.models import attention, experts
from groupwise.models.activations import drops_activations
from groupwise.models.adapters import Adapters, Product, adapters_used, plain_weights
from groupwise.models.attention import Layout
from groupwise.models.cores import Sharing
from groupwise.models.experts import Routers
from groupwise.models.located import AdapterFiles, is_kept_with, write_adapters
from groupwise.models.packed import Pack, separate
from groupwise.models.recurrent import Rows, States, is_recurrent
from groupwise.models.rounded import Rounded
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import is_sharded, own_rows, settle, whole, whole_tensor


class Place(NamedTuple):
    """A weight's place on disk."""

    file: Path
    name: str


@dataclass(slots=True)
class Unread:
    """A model whose weights are still in their files; `models.rows` reads them."""

    path: str  # As the recipe gives it
    device: torch.device  # Device that will compute
    places: dict[str, Place]  # Of every weight, by the name that it has without adapters
    same: list[tuple[Place, Place]]
    """Weights that the model has once and the files twice, which must be equal."""
    adapters: Adapters | None = None
    """Their base is compared with `files` and fingerprinted once it is read."""
    files: AdapterFiles | None = None
    products: dict[str, Product] = field(default_factory=dict)
    """Added to the weights of these names once they are read."""


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Hide the bars of transformers, which would stand between a caller's own lines; left as they were found."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def precision(device: torch.device, dtype: torch.dtype, keep: bool = True) -> AbstractContextManager[None]:
    """Return the context of matrix products in this precision; with `keep`, converted weights stay until it ends."""
    enabled = dtype is not torch.float32
    return torch.autocast(device.type, dtype=dtype, enabled=enabled, cache_enabled=None if keep else False)


def head_states(body: nn.Module, packed: Pack) -> Tensor:
    """Return the (M, d) final hidden states that predict the targets of a pack; a position may occur more than once.

    Gathered as an embedding is, whose backward adds what falls on one position in a fixed order. That of plain
    indexing adds with atomics from several threads: two runs would round differently.
    """
    device = packed.input_ids.device
    if is_recurrent(body):
        rows = Rows.of(packed)
        states = []
        for batch in rows.batches:  # (B, T) sequences that begin at position 0
            count, length = batch.shape
            position_ids = torch.arange(length, device=device).expand(count, -1)
            alone = separate(count, length)
            states.append(_states(body, packed.input_ids[0][batch], position_ids, alone).flatten(0, 1))
        return nn.functional.embedding(rows.places[packed.head_positions], torch.cat(states))
    row = _states(body, packed.input_ids, packed.position_ids, packed.layout)[0]
    return nn.functional.embedding(packed.head_positions, row)


def _states(
    body: nn.Module, ids: Tensor, position_ids: Tensor, layout: Layout, of_layers: States | None = None
) -> Tensor:
    named = {"position_ids": position_ids, "layout": layout, "use_cache": of_layers is not None}
    if of_layers is not None:
        named["past_key_values"] = of_layers
    if drops_activations(body, ids):
        named["drop_activations"] = True
    states: Tensor = body(ids, **named).last_hidden_state
    return states


class Root(nn.Module):
    """The owner of the weights of a transformers model."""

    def __init__(self, model: PreTrainedModel, compute_dtype: torch.dtype, adapters: Adapters | None = None) -> None:
        super().__init__()
        self.model = model
        self.compute_dtype = compute_dtype
        self.adapters = adapters
        self.routers = Routers(model)
        self.computes_on: torch.device | None = None
        """Device that computes, if the weights may lie elsewhere."""

    @property
    def device(self) -> torch.device:
        return self.computes_on or self.model.device

    def hidden(
        self, input_ids: Tensor, position_ids: Tensor, layout: Layout, states_of_layers: States | None = None
    ) -> Tensor:
        return _states(self.model.base_model, input_ids, position_ids, layout, states_of_layers)

    def states(self, packed: Pack) -> Tensor:
        return self._states_of(packed)

    def _states_of(self, packed: Pack) -> Tensor:
        with precision(self.device, self.compute_dtype):
            return head_states(self.model.base_model, packed)


@dataclass(frozen=True, slots=True)
class Backbone:
    """A model whose body computes packed rows, and its tokenizer."""

    root: Root  # For this package alone
    tokenizer: Any
    stop_ids: frozenset[int]  # Token ids that end a completion (a model may have several)
    is_base: bool = False
    """True for the model that the adapters stand on: the same weights, computed without adapters."""
    unread: Unread | None = None  # Weights that are still to be read; `models.sharded.sharded` does it

    @property
    def model(self) -> PreTrainedModel:
        """The transformers model; for this package alone."""
        return self.root.model

    @property
    def adapters(self) -> Adapters | None:
        return self.root.adapters

    @property
    def compute_dtype(self) -> torch.dtype:
        return self.root.compute_dtype

    @property
    def device(self) -> torch.device:
        return self.root.device

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence; with LongRoPE as many as its short factors are for.

        A longer one would change the factors of all that are computed beside it.
        """
        text = self.model.config.get_text_config()
        rope = getattr(text, "rope_parameters", None) or {}
        is_long = rope.get("rope_type") == "longrope"
        key = "original_max_position_embeddings"
        return int(rope[key] if is_long else getattr(text, "max_position_embeddings", 1 << 30))

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def routers(self) -> Routers:
        return self.root.routers

    @property
    def identity(self) -> object:
        """The same object for all that compute with these very weights: a weak key for what is kept beside them."""
        return self.root

    def precision(self, keep: bool = True) -> AbstractContextManager[None]:
        """Return the context of this model's precision; with `keep`, converted weights stay until it ends."""
        return precision(self.device, self.compute_dtype, keep)

    @property
    def is_recurrent(self) -> bool:
        """Tell whether layers carry a state along a sequence, so that no packed row can be computed."""
        return is_recurrent(self.model)

    def hidden(
        self, input_ids: Tensor, position_ids: Tensor, layout: Layout, states_of_layers: States | None = None
    ) -> Tensor:
        """Return the (N, d) final hidden states of a packed row (1, N), in the precision around the call.

        Layers with a state read and write `states_of_layers`, of one prompt (1, N) or of N rows (N, 1).
        """
        # the view is made here: a hook on the root's output would be lost on it
        with self.as_meant():
            return self.root.hidden(input_ids, position_ids, layout, states_of_layers).flatten(0, 1)

    @torch.no_grad()
    def compare_with_eager(self, ours: Callable[[], Tensor], theirs: Callable[[], Tensor]) -> None:
        """Compare what the packed forward computes with what transformers' own does of every sequence alone."""
        with self.precision(), _short_windows(self.model):
            packed = ours().float()
            self.model.set_attn_implementation("eager")
            if has_experts := self.model._can_set_experts_implementation():
                self.model.set_experts_implementation("eager")
            alone = theirs().float()
            self.model.set_attn_implementation(attention.NAME)
            if has_experts:
                self.model.set_experts_implementation(experts.NAME)
        difference = (packed - alone).abs().max().item()
        allowed = (1e-3 if self.compute_dtype is torch.float32 else 0.25) * max(1.0, alone.abs().max().item())
        if not difference <= allowed:
            raise UnsupportedModelError(
                f"{type(self.model).__name__}: the packed forward differs from transformers' eager forward by "
                f"{difference:.2g} (allowed {allowed:.2g}), so this architecture is not supported"
            )

    def as_meant(self) -> AbstractContextManager[None]:
        """Return the context with the adapters, or without them, in which the root has to be called."""
        return adapters_used(not self.is_base) if self.root.adapters else nullcontext()

    def rounded(self, *, in_place: bool = False) -> Rounded:
        """Return a reusable context in which linear layers compute with weights in the precision of their products.

        They are converted now, once, and belong to this moment; without it they are converted in every forward. On a
        device where steps are recorded `in_place` they are renewed by `refresh`, and lie where they lay.
        """
        is_mine = in_place or (self.device.type == "cpu" and RANKS.size == 1)
        has_another = self.compute_dtype is not torch.float32
        return Rounded(self.model if is_mine and has_another else None, self.compute_dtype, in_place=in_place)

    def addresses(self) -> tuple[object, ...]:
        """Return where the body's weights lie, and its precision; a recorded forward is valid while it is the same."""
        body = self.model.base_model
        lie = (tensor.data_ptr() for tensor in (*body.parameters(), *body.buffers()))
        return (self.compute_dtype, self.is_base, *lie)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, weight) for name, weight in self.model.named_parameters() if weight.requires_grad]

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and whole weights; of a model in shares, here as below, all ranks have to ask."""
        settle(self.root)
        yield from ((name, whole_tensor(weight.detach())) for name, weight in self.model.named_parameters())

    def plain_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and weights of a plain model that computes the same, for an engine elsewhere.

        Adapters are added to the weights, in fp32, unless this is the model that they stand on.
        """
        settle(self.root)
        yield from plain_weights(self.model, added=not self.is_base) if self.root.adapters else self.state()

    def fingerprint(self) -> str:
        settle(self.root)
        return fingerprint(self.model.named_parameters())

    def save(self, directory: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write a directory that loads unchanged in transformers and vLLM; adapters alone, which load in peft.

        In place of its own weights those that were gathered, where they are given.
        """
        if self.root.adapters:
            named = self.model.named_parameters() if weights is None else weights.items()
            write_adapters(named, self.root.adapters, directory)
        else:
            names = dict(self.model.named_buffers())
            buffers = {name: tensor for name, tensor in self.model.state_dict().items() if name in names}
            state = None if weights is None else {**weights, **buffers}
            with no_progress_bars():
                self.model.save_pretrained(directory, state_dict=state)
        self.tokenizer.save_pretrained(directory)

    def whole(self) -> AbstractContextManager[None]:
        """Return a context in which forwards need no other rank; for sampling, of which ranks do more or less."""
        return nullcontext() if RANKS.size == 1 else whole(self.root)

    def gathered(self) -> Mapping[str, Tensor] | None:
        """Return weights in shares whole, for the first rank to `save`; every rank has to ask. None in one process."""
        if RANKS.size == 1:
            return None
        settle(self.root)
        adapters, weights = self.root.adapters, dict[str, Tensor]()
        for name, weight in self.model.named_parameters():
            if adapters is None or is_kept_with(adapters, name):
                tensor = whole_tensor(weight.detach())
                weights[name] = tensor.cpu() if RANKS.is_first else tensor[:0]
        return weights

    def copy(self) -> Self:
        return replace(self, root=copy.deepcopy(self.root))

    def twin(self) -> Self:
        """Return the same model with new copies of its adapters, on the very weights that these stand on."""
        shared = {id(weight): weight for weight in self.model.parameters() if not weight.requires_grad}
        return replace(self, root=copy.deepcopy(self.root, shared))

    def freeze(self) -> Self:
        self.root.requires_grad_(False)
        return self


@contextmanager
def _short_windows(model: PreTrainedModel, size: int = 3) -> Iterator[None]:
    """Make all attention windows this short meanwhile: sequences shorter than a window would not notice it."""
    holders: list[Any] = [model.config.get_text_config(), *model.modules()]
    windows = [(h, h.sliding_window) for h in holders if isinstance(getattr(h, "sliding_window", None), int)]
    try:
        for holder, _ in windows:
            holder.sliding_window = size
        yield
    finally:
        for holder, window in windows:
            holder.sliding_window = window


FINGERPRINT_PIECE = 1 << 16
"""Numbers of a tensor that are summed at a time: 512 KiB as int64, which a core's cache holds."""


@torch.no_grad()
def fingerprint(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Return 16 hex digits that change when any of the named weights changes by one bit.

    Integer sums of the bit patterns and of their squares (modulo 2^64) per tensor: exact, independent of the order
    of summation and so of thread count, device, pieces and ranks; cheap enough for every step. Of weights that lie on
    ranks in shares it is that of the whole weights, and all ranks have to call it.
    """
    names, sums, in_shares = list[str](), list[Tensor](), False
    with Sharing():
        for name, weight in weights:
            in_shares |= is_sharded(weight)
            names.append(name)
            sums.append(_bit_sums(own_rows(weight)))
    totals = torch.stack(sums) if sums else torch.zeros(0, 2)
    digest = hashlib.sha256()
    for name, (total, squares) in zip(names, (RANKS.total(totals) if in_shares else totals).tolist(), strict=True):
        digest.update(f"{name}:{total}:{squares}".encode())
    return digest.hexdigest()[:16]


def _bit_sums(weight: Tensor) -> Tensor:
    """(2,) sums of the bit patterns of a tensor and of their squares, modulo 2^64.

    On a processor by NumPy: no pool of threads, which in thousands of short sums would mostly wait for each other.
    """
    bits = weight.detach().contiguous().view(torch.int32 if weight.element_size() == 4 else torch.int16).flatten()
    sums = torch.zeros(2, dtype=torch.int64, device=bits.device)
    if bits.device.type == "cpu":
        for piece in np.split(bits.numpy(), range(FINGERPRINT_PIECE, len(bits), FINGERPRINT_PIECE)):
            wide = piece.astype(np.int64)
            sums += torch.tensor([wide.sum(), np.dot(wide, wide)])
    else:
        for numbers in bits.split(FINGERPRINT_PIECE << 6):
            numbers = numbers.long()
            sums += torch.stack([numbers.sum(), numbers.square_().sum()])
    return sums
