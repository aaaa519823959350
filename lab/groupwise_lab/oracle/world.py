"""A toy world: a few prompts, every sequence of a few tokens, any reward for each; nothing is sampled, all is summed.

Token 0 stops. A sequence ends with it or at the length limit (then it is truncated). The policy is a table of logits,
one row per state (prompt, tokens so far): it can be any distribution over sequences, and every gradient is exact.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from groupwise.randomness import key, uniforms

STOP = 0


@dataclass(frozen=True)
class World:
    """Sequences, states and rewards. S sequences per prompt, K states in all, V tokens."""

    num_tokens: int
    max_length: int
    parts: Tensor
    """(P, S, R) float64 reward of every sequence of every prompt, in parts that sum to it."""

    @cached_property
    def rewards(self) -> Tensor:
        """(P, S) reward of every sequence of every prompt."""
        return self.parts.sum(-1)

    def paying(self, parts: Tensor) -> "World":
        """The same world with other rewards (P, S, R)."""
        return World(self.num_tokens, self.max_length, parts)

    @cached_property
    def sequences(self) -> list[tuple[int, ...]]:
        """All S sequences: with a stop at their end and nowhere else, or as long as allowed without one."""
        sequences = []
        for length in range(1, self.max_length + 1):
            for tokens in product(range(self.num_tokens), repeat=length):
                if STOP not in tokens[:-1] and (tokens[-1] == STOP or length == self.max_length):
                    sequences.append(tokens)
        return sequences

    @cached_property
    def prefixes(self) -> list[tuple[int, ...]]:
        """Return the prefixes of a token."""
        return sorted({sequence[:t] for sequence in self.sequences for t in range(len(sequence))})

    @property
    def num_prompts(self) -> int:
        return len(self.parts)

    @property
    def num_states(self) -> int:
        return self.num_prompts * len(self.prefixes)

    @cached_property
    def lengths(self) -> Tensor:
        """(S,) tokens of each sequence."""
        return torch.tensor([len(sequence) for sequence in self.sequences])

    @cached_property
    def truncated(self) -> Tensor:
        """(S,) True where the limit ended it."""
        return torch.tensor([sequence[-1] != STOP for sequence in self.sequences])

    @cached_property
    def states(self) -> Tensor:
        """(P, S, L) state in which each token stands; what is beyond a sequence's end is 0 and must be masked."""
        row_of = {prefix: number for number, prefix in enumerate(self.prefixes)}
        rows = [[row_of[s[:t]] if t < len(s) else 0 for t in range(self.max_length)] for s in self.sequences]
        return torch.tensor(rows) + len(row_of) * torch.arange(self.num_prompts)[:, None, None]

    @cached_property
    def tokens(self) -> Tensor:
        """(S, L) the tokens; 0 beyond a sequence's end."""
        return torch.tensor([[*s, *[0] * (self.max_length - len(s))] for s in self.sequences])

    @cached_property
    def mask(self) -> Tensor:
        """(S, L) True on a sequence's tokens."""
        return torch.arange(self.max_length) < self.lengths[:, None]

    def token_logprobs(self, theta: Tensor) -> Tensor:
        """(P, S, L) log-probability of each token under the logits (K, V); 0 beyond a sequence's end."""
        return theta.log_softmax(-1)[self.states, self.tokens] * self.mask

    def probabilities(self, theta: Tensor) -> Tensor:
        """(P, S) probability of each sequence."""
        return self.token_logprobs(theta).sum(-1).exp()

    def objective(self, theta: Tensor) -> Tensor:
        """J = mean over prompts of Σ π(y) R(y): what training is to raise."""
        return (self.probabilities(theta) * self.rewards).sum(-1).mean()

    def gradient(self, theta: Tensor) -> Tensor:
        """(K, V) the true ∇J."""
        leaf = theta.detach().requires_grad_()
        return torch.autograd.grad(self.objective(leaf), leaf)[0]

    def visits(self, theta: Tensor) -> Tensor:
        """(K,) expected number of visits to each state by one sample of its prompt."""
        return self._sum_by_state(self.probabilities(theta).detach())

    def values(self, theta: Tensor) -> Tensor:
        """(K,) expected reward from each state on: a perfect critic."""
        return self._sum_by_state(self.probabilities(theta).detach() * self.rewards) / self.visits(theta)

    def _sum_by_state(self, amounts: Tensor) -> Tensor:
        """Amounts (P, S) of sequences summed at all states (K,) that they pass."""
        at = (amounts[..., None] * self.mask).flatten()
        return torch.zeros(self.num_states, dtype=torch.float64).index_add(0, self.states.flatten(), at)


def num_sequences(num_tokens: int, max_length: int) -> int:
    """S, without making a world."""
    lengths: list[int] = [(num_tokens - 1) ** before for before in range(max_length)]
    return sum(lengths) + (num_tokens - 1) * lengths[-1]


def random_logits(world: World, *purpose: int | str, spread: float = 1.0) -> Tensor:
    """(K, V) float64 normal logits of an arbitrary policy; the same for the same purpose."""
    numbers = uniforms(key("oracle", *purpose), range(world.num_states * world.num_tokens))
    normal: Tensor = torch.special.ndtri(torch.from_numpy(numbers))
    return normal.view(world.num_states, -1) * spread
