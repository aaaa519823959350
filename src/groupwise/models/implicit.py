"""An implicit process reward model: how much likelier a language model finds a text than the model it was trained from.

Trained on outcomes alone as r = β log π(y|x) / π_ref(y|x), the sum up to a step's end is the log-odds that the answer
will be right (Yuan et al. 2024, "Free process rewards without process labels", arXiv:2412.01981, proposition 3.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.errors import ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy
from groupwise.models.reward_model import RewardModel, load_reward_model


@dataclass(frozen=True, slots=True)
class ImplicitRewardModel:
    """Two language models of one tokenizer that score steps as a `RewardModel` does."""

    policy: Policy
    """π, which is trained."""
    reference: Policy
    """π_ref, frozen."""
    beta: float
    """β; what one nat more than the reference's counts as log-odds (PRIME, arXiv:2502.01456: 0.05)."""

    @property
    def tokenizer(self) -> Any:
        """The policy's."""
        return self.policy.tokenizer

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and completion."""
        return min(self.policy.context_length, self.reference.context_length)

    @property
    def device(self) -> torch.device:
        """Where both compute."""
        return self.policy.device

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """The policy's weights."""
        return self.policy.trainable()

    def step_scores(self, sequences: Sequence[Sequences], ends: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """(N,) β Σ log π/π_ref up to every step's end, in order, with the policy's gradient; arguments as there."""
        packed = pack(sequences, self.device)
        with torch.no_grad():
            reference = self.reference.token_logprobs(packed).logprobs
        ratios = self.policy.token_logprobs(packed).logprobs - reference
        pieces = ratios.split([len(completion) for sequence in sequences for completion in sequence.completions])
        each = zip(pieces, (of_one for of_each in ends for of_one in of_each), strict=True)
        return self.beta * torch.stack([piece[:end].sum() for piece, of_one in each for end in of_one])


def load_scorer(
    config: ModelConfig, reference: str = "", beta: float = 0.05, frozen: bool = True
) -> RewardModel | ImplicitRewardModel:
    """Load a process reward model: with a head, or where a reference is named an implicit one, frozen or not.

    Raises:
        ModelError: it cannot be loaded, or has another tokenizer than its reference.
    """
    if not reference:
        return load_reward_model(config).freeze()
    policy = load_policy(config)
    found = ImplicitRewardModel(policy.freeze() if frozen else policy, load_policy(config.at(reference)).freeze(), beta)
    if found.tokenizer.get_vocab() != found.reference.tokenizer.get_vocab():
        raise ModelError(
            f"{config.path!r} and its reference {reference!r} have different tokenizers: their log-probabilities are "
            "not of the same tokens; allowed is the model that it was trained from"
        )
    return found
