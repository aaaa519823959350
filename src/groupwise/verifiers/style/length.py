"""Length of a completion in tokens, against the limit it was sampled with."""

import math
from typing import Annotated

from pydantic import Field

from groupwise.errors import ConfigError
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.parts import StylePart

Bounded = Annotated[float, Field(ge=-1, le=1)]
Penalty = Annotated[float, Field(ge=-1, le=0)]


class LengthPart(StylePart):
    """A measure of the length of completions; they need a limit."""

    def length_fault(self, max_tokens: int | None) -> str:
        """Without a limit there is nothing to measure against."""
        return "" if max_tokens else f": kind {self.kind!r} needs the token limit of the completions"


class OverlongPart(LengthPart):
    """Soft overlong punishment in [-1, 0] (DAPO, arXiv:2503.14476, equation 13).

    0                                  for |y| <= L_max - L_cache
    (L_max - L_cache - |y|) / L_cache  up to L_max
    -1                                 beyond
    """

    cache_tokens: int = Field(ge=1)
    """L_cache: the punishment grows over this many tokens before the limit (DAPO: 4096 of 20480)."""

    def measure(self, request: Request, verdict: Verdict) -> float | None:
        """The punishment; None where nobody counted the tokens."""
        if request.num_tokens is None:
            return None
        spare = _limit(request) - self.cache_tokens - request.num_tokens
        return min(0.0, max(-1.0, spare / self.cache_tokens))

    def length_fault(self, max_tokens: int | None) -> str:
        """L_cache may not be longer than the limit."""
        if max_tokens is not None and self.cache_tokens > max_tokens:
            return (
                f".cache_tokens = {self.cache_tokens} is more than the token limit of the completions; at most "
                f"{max_tokens} is allowed"
            )
        return super().length_fault(max_tokens)


class CosineLengthPart(LengthPart):
    """Cosine length reward in [-1, 1] (Yeo et al. 2025, arXiv:2502.03373, section 4).

    long + (short - long) (1 + cos(pi |y| / L_max)) / 2, with one pair (short, long) for correct answers and one for all
    others, and `truncated` at the limit. The paper's rewards hold correctness too: right 2 to 1, wrong -10 to 0, out of
    tokens -10. Here the accuracy part pays for correctness, so what is left is right 1 to 0, wrong below 0.
    """

    correct_short: Bounded = 1.0
    """For a correct answer of length 0."""
    correct_long: Bounded = 0.0
    """For a correct answer at the token limit."""
    wrong_short: Penalty = -1.0
    """For a wrong answer of length 0."""
    wrong_long: Penalty = 0.0
    """For a wrong answer at the token limit."""
    truncated: Penalty = -1.0
    """For a completion that ran into the token limit."""

    def measure(self, request: Request, verdict: Verdict) -> float | None:
        """The reward; None where nobody counted the tokens."""
        if request.num_tokens is None:
            return None
        if request.truncated:
            return self.truncated
        is_correct = verdict.outcome is Outcome.CORRECT
        short, long = (self.correct_short, self.correct_long) if is_correct else (self.wrong_short, self.wrong_long)
        share = min(1.0, request.num_tokens / _limit(request))
        return long + (short - long) * (1 + math.cos(math.pi * share)) / 2


def _limit(request: Request) -> int:
    if request.max_tokens is None:
        raise ConfigError("a part measures length, but nobody said how long completions may be (max_tokens)")
    return request.max_tokens
