"""The divergence from the reference as a penalty in the reward."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.models.policy import Policy
from groupwise.training.forward import Arrays, per_token
from groupwise.training.loss_config import LossConfig
from groupwise.types import Group, ScoredGroup


def token_penalties(groups: Sequence[Group], reference: Policy, config: LossConfig, temperature: float) -> list[Arrays]:
    """β · KL estimate of every token of every completion, under the distribution that sampled it."""
    estimator = KL_ESTIMATORS[config.kl_estimator]
    found = per_token(
        groups,
        lambda packed: reference.token_logprobs(packed, temperature).logprobs,
        config.tokens_per_micro_batch,
        reference.device,
    )
    return [
        [
            (config.kl_coef * estimator(torch.from_numpy(one.sampling_logprobs), torch.from_numpy(ref))).numpy()
            for one, ref in zip(group.completions, references, strict=True)
        ]
        for group, references in zip(groups, found, strict=True)
    ]


def with_kl_part(
    scored: Sequence[ScoredGroup], reference: Policy | None, config: LossConfig, temperature: float
) -> list[ScoredGroup]:
    """Add the reward part `kl` = -β Σₜ KLₜ to every verdict, where the recipe asks for it (`loss.kl_in = "reward"`)."""
    if reference is None or config.kl_in != "reward":
        return list(scored)
    penalties = token_penalties([one.group for one in scored], reference, config, temperature)
    return [
        replace(
            one,
            verdicts=tuple(
                replace(verdict, parts={**verdict.parts, "kl": -float(penalty.sum())})
                for verdict, penalty in zip(one.verdicts, found, strict=True)
            ),
        )
        for one, found in zip(scored, penalties, strict=True)
    ]
