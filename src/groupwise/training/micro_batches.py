"""An update's groups as packed micro-batches: rows, tensors, weights and the one global denominator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.algorithms.objective import BatchSize, token_weights
from groupwise.errors import InvariantError
from groupwise.models.packed import Pack, Sequences, micro_batch_tokens, micro_batches, num_shared, pack
from groupwise.ranks.group import RANKS
from groupwise.training.config import LossConfig
from groupwise.training.invariants import check_weights
from groupwise.training.tokens import Arrays, Place
from groupwise.types import AdvantagedGroup, Completion, CriticView, FinishReason, Outcome, TokenValues, Verdict


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward and backward; per-token tensors are (M,) in the order of the pack's targets, the sampled tokens."""

    packed: Pack
    lengths: Tensor
    advantages: Tensor
    weights: Tensor
    """Weight of each token's loss; over all micro-batches of an update the loss is Σ weight · token loss."""
    sampling_logprobs: Tensor
    old_logprobs: Tensor | None
    """The trainer's before the step's first update; None: the sampler's are as good."""
    values: Tensor | None  # The critic's, when sampled; None without one
    returns: Tensor | None
    value_weight: float  # Weight of each token's value loss: 1 / tokens of the update
    places: tuple[Place, ...]  # (B,) group and completion of each, among the groups that were packed


class _Row(NamedTuple):
    """A completion that is trained on, with its arrays."""

    completion: Completion
    advantages: TokenValues
    critic: CriticView | None
    old_logprobs: TokenValues | None
    place: Place


def make_micro_batches(
    groups: Sequence[AdvantagedGroup],
    config: LossConfig,
    max_tokens: int,
    device: torch.device,
    old_logprobs: Sequence[Arrays] | None = None,
    shares: bool = True,  # The model computes once what all prompts of a micro-batch begin with: it is counted once
) -> list[MicroBatch]:
    """Pack an update's groups. The denominator counts every judged completion, also of groups without signal."""
    rows_of = [_rows(group, i, config, old_logprobs[i] if old_logprobs else None) for i, group in enumerate(groups)]
    batch = BatchSize(
        num_completions=sum(len(rows) for rows in rows_of),
        num_tokens=sum(row.completion.num_tokens for rows in rows_of for row in rows),
        max_tokens=max_tokens,
    )
    # with a KL term, an entropy bonus or a critic every completion has a gradient, also where all advantages are zero
    always = config.objective.kl_coef > 0 or config.entropy_coef > 0
    contributing = [
        (group.scored.group.prompt.token_ids, rows)
        for group, rows in zip(groups, rows_of, strict=True)
        if rows and (any(np.any(row.advantages) for row in rows) or group.critic or always)
    ]
    shared = num_shared([prompt for prompt, _ in contributing]) if shares and RANKS.partial_sums == 1 else 0

    def own_tokens(prompt: tuple[int, ...], rows: Sequence[_Row] = ()) -> int:
        return len(prompt) - shared + sum(row.completion.num_read for row in rows)

    budget = micro_batch_tokens(config.tokens_per_micro_batch, device, shared)
    budget = RANKS.portion(budget, sum(own_tokens(*piece) for piece in contributing))
    pieces = []
    for prompt, rows in contributing:
        # a group that is larger than a micro-batch is cut between completions; its prompt is then computed again
        cuts = micro_batches([row.completion.num_read for row in rows], max(1, budget - own_tokens(prompt)))
        pieces += [(prompt, [rows[i] for i in cut]) for cut in cuts]
    chunks = micro_batches([own_tokens(*piece) for piece in pieces], budget)
    micros = [_micro_batch([pieces[i] for i in chunk], batch, config.aggregation, device) for chunk in chunks]
    lengths = [row.completion.num_tokens for _, rows in contributing for row in rows]
    check_weights([micro.weights for micro in micros], lengths, batch, config.aggregation)
    return micros


def _rows(group: AdvantagedGroup, index: int, config: LossConfig, old_logprobs: Arrays | None) -> list[_Row]:
    completions = group.scored.group.completions
    views = group.critic or (None,) * len(completions)
    old: Sequence[NDArray[np.float32] | None] = old_logprobs or [None] * len(completions)
    return [
        _Row(completion, advantages, view, before, (index, i))
        for i, (completion, advantages, view, before) in enumerate(
            zip(completions, group.advantages, views, old, strict=True)
        )
        if advantages is not None
        and not (config.truncated == "mask" and completion.finish_reason is FinishReason.LENGTH)
        and not (config.void_turns == "drop" and is_void(completion, group.scored.verdicts[i]))
    ]


def is_void(completion: Completion, verdict: Verdict) -> bool:
    """Tell whether the last turn has neither an answer nor a whole call."""
    called = completion.finish_reason is FinishReason.TOOL_LIMIT
    return verdict.outcome is Outcome.UNPARSABLE and not called


def _micro_batch(
    pieces: Sequence[tuple[tuple[int, ...], list[_Row]]], batch: BatchSize, aggregation: str, device: torch.device
) -> MicroBatch:
    rows = [row for _, part in pieces for row in part]
    lengths = torch.tensor([row.completion.num_tokens for row in rows])
    sampled = [row.completion.sampled for row in rows]
    sequences = [
        Sequences(prompt, [row.completion.token_ids for row in part], [row.completion.sampled for row in part])
        for prompt, part in pieces
    ]

    def tensor(arrays: Sequence[TokenValues]) -> Tensor:
        values = [array[mask] for array, mask in zip(arrays, sampled, strict=True)]
        return torch.from_numpy(np.concatenate(values).astype(np.float32, copy=False)).to(device)

    def tensor_of_all(arrays: Sequence[TokenValues | None]) -> Tensor | None:
        present = [array for array in arrays if array is not None]
        return tensor(present) if len(present) == len(rows) else None

    return MicroBatch(
        packed=pack(sequences, device),
        lengths=lengths.to(device),
        advantages=tensor([row.advantages for row in rows]),
        weights=token_weights(lengths, batch, aggregation).to(device),
        sampling_logprobs=torch.from_numpy(_sampling_logprobs([row.completion for row in rows])).to(device),
        old_logprobs=tensor_of_all([row.old_logprobs for row in rows]),
        values=tensor_of_all([row.critic.values if row.critic else None for row in rows]),
        returns=tensor_of_all([row.critic.returns if row.critic else None for row in rows]),
        value_weight=1 / batch.num_tokens,
        places=tuple(row.place for row in rows),
    )


def _sampling_logprobs(completions: Sequence[Completion]) -> NDArray[np.float32]:
    """The sampler's log-probabilities of all sampled tokens; one never written (0 beside entropy) is a fault."""
    logprobs = np.concatenate([completion.sampling_logprobs[completion.sampled] for completion in completions])
    # an engine that measures no entropy may give any log-probability
    entropy = np.concatenate(
        [np.zeros(c.num_tokens, np.float32) if c.entropy is None else c.entropy[c.sampled] for c in completions]
    )
    valid = np.isfinite(logprobs) & (logprobs <= 0) & ((logprobs < 0) | (entropy < 1e-3))
    if not valid.all():
        raise InvariantError(
            f"{(~valid).sum()} sampled tokens have an impossible log-probability, for example {logprobs[~valid][0]}"
        )
    return logprobs
