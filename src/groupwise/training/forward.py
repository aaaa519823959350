"""Numbers per token of every completion, without gradient: values of a critic, the divergence from a reference."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.models.cores import shared_out
from groupwise.models.packed import Pack, Sequences, micro_batch_tokens, micro_batches, pack
from groupwise.models.policy import Policy
from groupwise.training.config import LossConfig
from groupwise.types import Group, ScoredGroup

Arrays = list[NDArray[np.float32]]  # One array (T,) per completion of a group


def sequences_of(group: Group) -> Sequences:
    """Return a group as the model reads it; only sampled tokens are predicted."""
    completions = group.completions
    return Sequences(group.prompt.token_ids, [c.token_ids for c in completions], [c.sampled for c in completions])


@torch.no_grad()
def per_token(
    groups: Sequence[Group], compute: Callable[[Pack], Tensor], budget: int, device: torch.device
) -> list[Arrays]:
    """Run `compute`, which gives (M,) for the M sampled tokens of a pack, over all completions of the groups.

    The arrays are (T,), 0 at tokens that were not sampled. `budget`: most tokens in one forward, 0 for the device's
    default; a larger group stands alone.
    """
    sequences = [sequences_of(group) for group in groups]
    sizes = [sequence.num_read for sequence in sequences]
    arrays: list[Arrays] = []
    chunks = list(micro_batches(sizes, micro_batch_tokens(budget, device)))

    def values_of(chunk: range) -> NDArray[np.float32]:
        values: NDArray[np.float32] = compute(pack([sequences[i] for i in chunk], device)).float().cpu().numpy()
        return values

    for chunk, values in zip(chunks, shared_out(values_of, chunks, device), strict=True):
        lengths = [completion.num_tokens for i in chunk for completion in groups[i].completions]
        pieces = iter(np.split(values, np.cumsum(lengths)[:-1]))
        arrays += [[completion.spread(next(pieces)) for completion in groups[i].completions] for i in chunk]
    return arrays


def token_penalties(groups: Sequence[Group], reference: Policy, config: LossConfig, temperature: float) -> list[Arrays]:
    """Return β · KL estimate of every token of every completion, under the distribution that sampled it."""
    estimator = KL_ESTIMATORS[config.kl_estimator]
    logprobs = per_token(
        groups,
        lambda packed: reference.token_logprobs(packed, temperature).logprobs,
        config.tokens_per_micro_batch,
        reference.device,
    )
    return [
        [
            (config.kl_coef * estimator(torch.from_numpy(completion.sampling_logprobs), torch.from_numpy(ref))).numpy()
            for completion, ref in zip(group.completions, references, strict=True)
        ]
        for group, references in zip(groups, logprobs, strict=True)
    ]


def with_kl_part(
    scored: Sequence[ScoredGroup], reference: Policy | None, config: LossConfig, temperature: float
) -> list[ScoredGroup]:
    """Add the reward part `kl` = -β Σₜ KLₜ to every verdict, where the recipe asks for it (`loss.kl_in = "reward"`)."""
    if reference is None or config.kl_in != "reward":
        return list(scored)
    penalties = token_penalties([group.group for group in scored], reference, config, temperature)
    return [
        replace(
            group,
            verdicts=tuple(
                replace(verdict, parts={**verdict.parts, "kl": -float(penalty.sum())})
                for verdict, penalty in zip(group.verdicts, group_penalties, strict=True)
            ),
        )
        for group, group_penalties in zip(scored, penalties, strict=True)
    ]
