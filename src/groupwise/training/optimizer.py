"""AdamW with warm-up, decay and gradient clipping."""

import math
from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from groupwise.config import ReadIf, Section
from groupwise.errors import InvariantError
from groupwise.models.cores import Sharing

FALLS = ReadIf(lambda optimizer: optimizer.schedule != "constant", "a schedule that falls: linear or cosine")


class OptimizerConfig(Section):
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101) and its schedule."""

    lr: float = Field(1e-6, ge=0)
    """Peak learning rate. 1e-6 is DeepSeekMath's for a 7 B model; the shipped 1.7 M model wants some 1e-4."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decay of the running mean and of the running square of the gradient."""
    eps: float = Field(1e-8, ge=0)
    """Added to the root of the running square."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled decay of matrices; vectors (norms, biases) are never decayed."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate rises linearly from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate falls from the end of warm-up to the last step."""
    final_lr_share: Annotated[float, Field(ge=0, le=1), FALLS] = 0.0
    """Share of `lr` that the schedule falls to; the step after the last would reach it."""
    max_grad_norm: float = Field(1.0, ge=0)
    """The gradient's norm over all parameters is cut to this; 0 switches clipping off."""


class Optimizer:
    """AdamW and its schedule as one object: `update(step)` is one optimizer step."""

    def __init__(
        self,
        weights: Iterable[tuple[str, Tensor]],
        config: OptimizerConfig,
        num_steps: int,
        critic: Iterable[tuple[str, Tensor]] = (),
        critic_lr: float = 0.0,
    ) -> None:
        self.config = config
        self.num_steps = num_steps
        """Steps in the whole run; the schedule ends there."""
        self.updates_done = 0
        """Updates so far: the policy's version."""
        of_policy, of_critic = ([weight for _, weight in named] for named in (weights, critic))
        self._parts = [of_policy, of_critic] if of_critic else [of_policy]
        """Policy, then the critic if there is one; each is clipped by its own norm."""
        groups = []
        for parameters, lr in zip(self._parts, (config.lr, critic_lr), strict=False):
            matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
            vectors = [parameter for parameter in parameters if parameter.ndim < 2]
            groups.append({"params": matrices, "weight_decay": config.weight_decay, "lr": lr, "peak": lr})
            groups.append({"params": vectors, "weight_decay": 0.0, "lr": lr, "peak": lr})
        self.adamw = torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)

    def update(self, step: int) -> float:
        """Clip, step, clear, at the rate of this step; returns the policy gradient's norm before clipping.

        Raises:
            InvariantError: the gradient is not finite; the weights are left as they were.
        """
        with Sharing():
            return self._update(step)

    def _update(self, step: int) -> float:
        limit = self.config.max_grad_norm or math.inf
        norms = [clip_grad_norm_(parameters, limit, foreach=True).item() for parameters in self._parts]
        if not all(math.isfinite(norm) for norm in norms):
            raise InvariantError(
                f"the gradient's norm is {norms[0]} at update {self.updates_done}; the weights are unchanged"
                if len(norms) == 1
                else f"the norms of the policy's and the critic's gradient are {norms} at update "
                f"{self.updates_done}; the weights are unchanged"
            )
        share = learning_rate_share(self.config, step, self.num_steps)
        for group in self.adamw.param_groups:
            group["lr"] = group["peak"] * share
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self.updates_done += 1
        return norms[0]

    def lr(self, step: int) -> float:
        """The policy's learning rate of a step (0-based)."""
        return self.config.lr * learning_rate_share(self.config, step, self.num_steps)

    def state(self) -> dict[str, Tensor]:
        """Running moments by parameter index, for a checkpoint."""
        states = self.adamw.state_dict()["state"]
        return {
            f"{index}.{name}": torch.as_tensor(value)
            for index, state in states.items()
            for name, value in state.items()
        }

    def load_state(self, tensors: dict[str, Tensor], updates_done: int) -> None:
        """Restore the moments that `state` gave."""
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            index, name = key.split(".", 1)
            states.setdefault(int(index), {})[name] = tensor
        self.adamw.load_state_dict({"state": states, "param_groups": self.adamw.state_dict()["param_groups"]})
        self.updates_done = updates_done


def learning_rate_share(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """Share of the peak rate at a step (0-based): linear warm-up, then the schedule down."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps))
    shape = {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[config.schedule]
    return 1.0 if config.schedule == "constant" else config.final_lr_share + (1 - config.final_lr_share) * shape
