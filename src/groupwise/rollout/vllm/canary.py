"""The canary: a proof that a server samples from the weights that it was given.

Every server scores a fixed text and draws a few next tokens after a fixed prompt; the trainer computes the same once,
when the weights are published. The text shows the weights, but never reads the prefix cache; the draws do, and show
keys and values that were left of older weights.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import InvariantError
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.randomness import bits, key

Logprobs = NDArray[np.float32]
Tokens = tuple[int, ...]

BOUNDS = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest difference of a log-probability between server and trainer, in nats, by the lower precision of the two."""
TEXT_TOKENS = 2 * 128 + 16
"""Length of the fixed text: two blocks of a processor's prefix cache (128 tokens each) and some more."""
DRAWS = 4
"""Next tokens that a server draws after the prompt."""
HELD_BACK = 8
"""Tokens at the text's end that the prompt does not have."""
CLEARLY = 2.0
"""Ratio of the distances to two versions that is no accident of rounding."""


class Reading(NamedTuple):
    """Log-probabilities and draws of a server."""

    text: Logprobs
    """(T - 1,) log-probabilities of the text's tokens but the first, at temperature 1."""
    tokens: NDArray[np.int64]
    logprobs: Logprobs


class Proof(NamedTuple):
    """Differences between a server and the trainer, in nats."""

    text: float
    sampled: float
    before: float | None
    is_clear: bool
    """True where the text tells these weights from the ones before; a small update moves it less than rounding does."""


class Canary(NamedTuple):
    """The fixed text, and what the trainer says of it with these weights and with those before."""

    text: Tokens
    new: Logprobs
    old: Logprobs | None
    next: Logprobs
    """(V,) of every token after the prompt, at the temperature."""
    bound: float
    temperature: float

    @property
    def prompt(self) -> Tokens:
        return self.text[:-HELD_BACK]

    @classmethod
    def of(cls, policy: Policy, before: "Canary | None", dtype: str, temperature: float = 0.7) -> "Canary":
        """Compute what a server in this precision must say of these weights; all ranks call it.

        The temperature of the draws is not 1, at which a server that leaves it out would not be seen.
        """
        text = fixed_text(policy)
        lowest = {dtype, str(policy.compute_dtype).removeprefix("torch.")}
        bound = max(BOUNDS[name] for name in lowest)
        new = trainer_logprobs(policy, text[:1], text[1:])
        after = next_logprobs(policy, text[:-HELD_BACK], temperature)
        return cls(text, new, before.new if before else None, after, bound, temperature)


def fixed_text(policy: Policy) -> Tokens:
    """Tokens drawn from the whole vocabulary, always the same; no stop token is among them."""
    length = min(TEXT_TOKENS, policy.context_length - 1)  # a server wants room for one more token
    drawn = bits(key("canary"), np.arange(2 * length)) % np.uint64(policy.vocabulary)
    return tuple(token for token in drawn.tolist() if token not in policy.stop_ids)[:length]


@torch.no_grad()
def trainer_logprobs(policy: Policy, prompt: Tokens, tokens: Tokens, temperature: float = 1.0) -> Logprobs:
    """(T,) the trainer's log-probabilities of tokens after a prompt."""
    packed = pack([Sequences(prompt, [np.array(tokens)])], policy.device)
    logprobs: Logprobs = policy.token_logprobs(packed, temperature).logprobs.float().cpu().numpy()
    return logprobs


@torch.no_grad()
def next_logprobs(policy: Policy, prompt: Tokens, temperature: float) -> Logprobs:
    """(V,) the trainer's log-probabilities of every token that may come after a prompt."""
    packed = pack([Sequences(prompt, [np.array([0])])], policy.device)
    states = policy.completion_states(packed)
    with policy.precision():
        logits = policy.next_logits(states)[0].float()
    found: Logprobs = torch.log_softmax(logits / temperature, -1).cpu().numpy()
    return found


def judge(reading: Reading, canary: Canary, server: str) -> Proof:
    """Compare a reading with the canary; raises InvariantError where the server reads other weights."""
    ours = canary.next[reading.tokens]
    new = np.abs(reading.text - canary.new)
    old = None if canary.old is None else np.abs(reading.text - canary.old)
    sampled = float(np.abs(reading.logprobs - ours).max())
    from_new, from_old = float(new.mean()), float("inf") if old is None else float(old.mean())
    is_clear = old is not None and max(from_new, from_old) > CLEARLY * min(from_new, from_old)
    proof = Proof(float(new.max()), sampled, None if old is None else float(old.max()), is_clear)
    if not proof.text <= canary.bound:
        raise _refused(server, proof, canary, "does not have the weights that were published")
    if from_new > CLEARLY * from_old:
        raise _refused(server, proof, canary, "still has the weights from before")
    if not proof.sampled <= canary.bound:
        raise _refused(server, proof, canary, "has the new weights, but does not sample from them as it was told")
    return proof


def _refused(server: str, proof: Proof, canary: Canary, why: str) -> InvariantError:
    before = "" if proof.before is None else f", {proof.before:.2g} from those before"
    return InvariantError(
        f"the server {server} {why}: its log-probabilities of the fixed text are up to {proof.text:.2g} nats from the "
        f"trainer's{before}, those of what it draws up to {proof.sampled:.2g} (allowed: {canary.bound:.2g})"
    )
