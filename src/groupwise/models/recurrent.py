"""Layers that carry a state along a sequence: linear attention, state spaces, short convolutions.

Such a layer takes a packed row for one sequence, and what stands before a completion would leak into it, silently. So
a pack is taken apart: every completion stands behind a copy of its prompt in a row of its own, and shorter rows are
filled behind their end, which no token before it sees. While sampling, a prompt is computed once, and its completions
begin with copies of its state; keys and values of the attention layers between are kept as those of any other model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.errors import UnsupportedModelError
from groupwise.models.attention import Scoring
from groupwise.models.packed import Pack, separate

KINDS = frozenset({"conv", "linear_attention", "hybrid"})
"""Names that transformers gives layers with a state; `hybrid`: one beside attention in the same layer."""
MAX_TOKENS = 4096  # Of the rows that are computed together
FILLED = 1 / 8  # Largest share of a row that is filled


def is_recurrent(body: Any) -> bool:
    """Tell whether a model has layers that carry a state along a sequence."""
    kinds = getattr(body.config.get_text_config(), "layer_types", None) or ()
    return not KINDS.isdisjoint(kinds)


@dataclass(frozen=True, slots=True)
class Rows:
    """The sequences of a pack, each whole and in a row of its own."""

    batches: list[Tensor]  # Each (B, T) packed index of the tokens of B sequences; 0 behind their ends
    places: Tensor  # (N,) index of each packed token in the tokens of all batches

    @classmethod
    def of(cls, packed: Pack) -> "Rows":
        sequences, at, device = list[NDArray[np.int64]](), packed.num_shared, packed.input_ids.device
        for prompt, *completions in packed.shapes:
            ends = at + np.cumsum([prompt, *completions])
            parts = [np.arange(stop - length, stop) for stop, length in zip(ends, (prompt, *completions), strict=True)]
            parts[0] = np.append(np.arange(packed.num_shared), parts[0])
            sequences += [np.concatenate((parts[0], part)) for part in parts[1:]] or parts
            at = int(ends[-1])
        batches, places, offset = list[Tensor](), np.zeros(at, np.int64), 0
        sequences.sort(key=len, reverse=True)
        while sequences:
            longest = len(sequences[0])
            count = sum(len(row) >= longest * (1 - FILLED) for row in sequences)
            count = max(1, min(count, MAX_TOKENS // longest))
            batch = np.zeros((count, longest), np.int64)
            for row, sequence in enumerate(sequences[:count]):
                batch[row, : len(sequence)] = sequence
                places[sequence] = offset + row * longest + np.arange(len(sequence))
            batches.append(torch.from_numpy(batch).to(device))
            sequences, offset = sequences[count:], offset + batch.size
        return cls(batches, torch.from_numpy(places).to(device))


@dataclass(slots=True)
class States:
    """States of a model's layers while sampling, in the place of transformers' own cache.

    A layer asks for its state and gives back the next, or changes it in place. Keys and values pass through: the
    layout keeps them.
    """

    num_slots: int
    num_rows: int
    prompts: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    """(slots, ...) by kind and layer: the state behind each live prompt."""
    rows: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    """(rows, ...) that of each live completion."""
    slot: int | None = None  # Of the prompt that is computed; None: completions are
    live: int = 0  # Completions that are computed

    @contextmanager
    def of_prompt(self, slot: int) -> Iterator["States"]:
        self.slot = slot
        yield self
        self.slot = None

    def of_rows(self, lengths: NDArray[np.int64], slots: NDArray[np.int64]) -> "States":
        """Go on with live completions; those of length 0 begin with the state of their prompt."""
        self.live, new = len(lengths), np.flatnonzero(lengths == 0)
        for name, states in self.prompts.items() if len(new) else ():
            device = states.device
            begun = states.index_select(0, torch.from_numpy(slots[new]).to(device))
            self.rows[name].index_copy_(0, torch.from_numpy(new).to(device), begun)
        return self

    def move_rows(self, sources: Tensor, targets: Tensor) -> None:
        for stored in self.rows.values():
            stored.index_copy_(0, targets, stored.index_select(0, sources))

    def move_prompts(self, sources: Tensor, targets: Tensor) -> None:
        for stored in self.prompts.values():
            stored.index_copy_(0, targets, stored.index_select(0, sources))

    def _kept(self, name: tuple[str, int], state: Tensor) -> None:
        if self.slot is None:
            self.rows[name][: self.live].copy_(state)
            return
        if name not in self.prompts:
            self.prompts[name], self.rows[name] = (
                state.new_zeros(count, *state.shape[1:]) for count in (self.num_slots, self.num_rows)
            )
        self.prompts[name][self.slot].copy_(state[0])

    def _state(self, name: tuple[str, int]) -> Tensor | None:
        return None if self.slot is not None else self.rows[name][: self.live]

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._state((f"convolution {state_idx}", layer_idx))

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, conv_kernel_size: int = 0
    ) -> Tensor:
        """Keep the last columns of a whole prompt (1, C, L), filled with zeros in front."""
        last = conv_states[..., -conv_kernel_size:]
        filled = nn.functional.pad(last, (conv_kernel_size - last.shape[-1], 0))
        self._kept((f"convolution {state_idx}", layer_idx), filled)
        return conv_states

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._state((f"recurrence {state_idx}", layer_idx))

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:
        self._kept((f"recurrence {state_idx}", layer_idx), recurrent_states)
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions are given

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return self.slot is None

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key, value


@dataclass(frozen=True, slots=True)
class _Growing:
    """The layout of one sequence that comes piece by piece; all is computed again for each."""

    seen: dict[int, list[tuple[Tensor, ...]]]  # Queries, keys and values of each piece, by layer

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        pieces = self.seen.setdefault(layer, [])
        pieces.append((query, key, value))
        queries, keys, values = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        layout = separate(1, len(queries))
        return layout.attend(layer, queries, keys, values, scoring)[-len(query) :]


def one_by_one(model: Any, prompt: Sequence[int], completion: Sequence[int], device: torch.device) -> Tensor:
    """Return the states (T, d) that predict T tokens of a completion, each from the layers' states before it.

    Raises:
        UnsupportedModelError: the layers do not ask for their states as transformers' own cache has them.
    """
    states, layout, found = States(1, 1), _Growing({}), list[Tensor]()
    slots, pieces = np.zeros(1, np.int64), [list(prompt), *([token] for token in completion[:-1])]
    for place, piece in enumerate(pieces):
        ids = torch.tensor([piece], device=device)
        positions = torch.arange(len(piece), device=device)[None] + (len(prompt) + place - 1 if place else 0)
        named = {"position_ids": positions, "layout": layout, "use_cache": True, "past_key_values": states}
        try:
            with nullcontext() if place else states.of_prompt(0):
                if place:
                    states.of_rows(np.array([place - 1]), slots)
                found.append(model.base_model(ids, **named).last_hidden_state[:, -1])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            why = str(error).splitlines()[0]
            raise UnsupportedModelError(
                f"{type(model).__name__}: the states of its layers cannot be kept while sampling ({why}), so this "
                "architecture is not supported"
            ) from error
    return torch.cat(found)
