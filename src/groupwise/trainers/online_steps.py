"""An implicit process reward model that goes on learning from the outcomes of the completions that it judges.

PRIME (Cui et al. 2025, arXiv:2502.01456): cross-entropy on outcomes, at every step of the policy, so that the model
keeps up with what the policy writes now. It learns after it has judged (`after`), so that nothing of a step's outcomes
is in the worth of that step's prefixes, or before (`before`, PRIME's recipe), which makes its scores those of the
newest model and its baselines biased.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from groupwise.models.steps import EncodedSteps, ImplicitRewardModel, Prefixes
from groupwise.trainers.process_reward_model import process_reward_model_gradient
from groupwise.training.optimizer import Optimizer, OptimizerConfig

MAX_GRAD_NORM = 10.0
"""Of the model's gradient (PRIME: 10)."""
_WEIGHT, _MOMENT = "weight:", "moment:"


@dataclass(frozen=True, slots=True)
class OnlineModel:
    """A model that is trained beside the policy; a checkpoint keeps its weights and its optimizer's moments."""

    model: ImplicitRewardModel
    optimizer: Optimizer
    tokens_per_micro_batch: int

    @classmethod
    def of(cls, model: ImplicitRewardModel, lr: float, tokens_per_micro_batch: int) -> "OnlineModel":
        """The model at the beginning of a run."""
        config = OptimizerConfig(lr=lr, max_grad_norm=MAX_GRAD_NORM)
        return cls(model, Optimizer(model.trainable(), config, num_steps=1), tokens_per_micro_batch)

    def learn(self, prefixes: Sequence[Prefixes], right: Sequence[Sequence[bool]]) -> float:
        """One update on the outcomes of whole completions; returns the mean cross-entropy before it, in nats.

        Args:
            prefixes: of each group its prompt and completions, each up to its end.
            right: of each of these completions, whether its answer is.
        """
        rows = [
            EncodedSteps(list(group.sequences.prompt), list(ids), [len(ids)], [float(is_right)])
            for group, of_group in zip(prefixes, right, strict=True)
            for ids, is_right in zip(group.sequences.completions, of_group, strict=True)
        ]
        if not rows:
            return 0.0
        loss, _, _ = process_reward_model_gradient(self.model, rows, self.tokens_per_micro_batch)
        self.optimizer.update(self.optimizer.updates_done)
        return loss

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """What it learns with, by the names in a checkpoint."""
        return [(_WEIGHT + name, weight) for name, weight in self.model.trainable()]

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors for a checkpoint."""
        yield from ((name, weight.detach()) for name, weight in self.trainable())
        yield from ((_MOMENT + name, moment) for name, moment in self.optimizer.state().items())

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` gave."""
        with torch.no_grad():
            for name, weight in self.trainable():
                weight.copy_(tensors[name])
        moments = {name.removeprefix(_MOMENT): tensor for name, tensor in tensors.items() if name.startswith(_MOMENT)}
        updates = max((int(tensor) for name, tensor in moments.items() if name.endswith(".step")), default=0)
        self.optimizer.load_state(moments, updates)
