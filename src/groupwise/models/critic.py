"""A critic: the value of a text so far, read from hidden states by one linear layer."""

from collections.abc import Iterator

import torch
from torch import Tensor

from groupwise.models.packed import Pack
from groupwise.models.policy import Policy


class Critic(torch.nn.Module):
    """V(prompt and the tokens so far), on a backbone of its own or on the policy's.

    The layer starts at zero, so that an untrained critic says 0 everywhere and its advantages are the plain returns.
    """

    def __init__(self, policy: Policy, backbone: Policy | None) -> None:
        super().__init__()
        self.head = torch.nn.Linear(policy.head[0].shape[1], 1, device=policy.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self._backbone = backbone
        if backbone is not None:  # its output layer over the vocabulary is never used, so it is not ours
            self.trunk = backbone.model.base_model

    def values(self, packed: Pack, policy_states: Tensor) -> Tensor:
        """(M,) value of the state before each completion token, with gradient.

        Args:
            packed: the sequences.
            policy_states: (M, d) the policy's `completion_states` of them; read where the backbone is shared.
        """
        states = policy_states if self._backbone is None else self._backbone.completion_states(packed)
        values: Tensor = self.head(states.float())[:, 0]
        return values

    @property
    def shares_backbone(self) -> bool:
        return self._backbone is None

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Names and weights, for a checkpoint."""
        yield from ((name, parameter.detach()) for name, parameter in self.named_parameters())

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take up the weights where `state` left them."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(tensors[name])
