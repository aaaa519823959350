"""A critic: the value of a text so far, read from hidden states by one linear layer."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from groupwise.models.backbone import precision, states_at
from groupwise.models.packed import Pack
from groupwise.models.policy import Policy


class Critic(nn.Module):
    """V(prompt and the tokens so far), on a backbone of its own or on the policy's.

    The layer starts at zero, so that an untrained critic says 0 everywhere and its advantages are the plain returns.
    """

    def __init__(self, policy: Policy, backbone: Policy | None) -> None:
        super().__init__()
        self.head = nn.Linear(policy.hidden_size, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        # the backbone's output layer over the vocabulary is never used, so it is not ours
        self.trunk: nn.Module | None = None if backbone is None else backbone.model.base_model
        self.compute_dtype = policy.compute_dtype if backbone is None else backbone.compute_dtype

    def forward(self, packed: Pack, policy_states: Tensor | None) -> Tensor:
        states = policy_states
        if self.trunk is not None:
            with precision(self.head.weight.device, self.compute_dtype):
                states = states_at(self.trunk, packed, packed.head_positions)
        if states is None:
            raise ValueError("a critic on the policy's backbone needs the policy's states")
        values: Tensor = self.head(states.float())
        return values  # (M, 1): a hook on the output would be lost on a view

    def values(self, packed: Pack, policy_states: Tensor | None) -> Tensor:
        """(M,) value of the state before each completion token, with gradient.

        Args:
            packed: the sequences.
            policy_states: (M, d) the policy's `completion_states` of them, where the backbone is shared; else None.
        """
        values: Tensor = self(packed, policy_states)
        return values[:, 0]

    @property
    def shares_backbone(self) -> bool:
        return self.trunk is None

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """What an optimizer may change, by name, always in the same order."""
        return [(name, weight) for name, weight in self.named_parameters() if weight.requires_grad]

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Names and weights that are trained, for a checkpoint."""
        yield from ((name, parameter.detach()) for name, parameter in self.trainable())

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the weights that `state` gave."""
        with torch.no_grad():
            for name, parameter in self.trainable():
                parameter.copy_(tensors[name])
