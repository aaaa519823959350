"""Length of a completion in tokens, against the limit it was sampled with."""

import math

from groupwise.errors import ConfigError
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.parts import CosineLengthPart, OverlongPart


def overlong(request: Request, verdict: Verdict, part: OverlongPart) -> float | None:
    """Soft overlong punishment in [-1, 0]; None where nobody counted the tokens.

        0                                  for |y| <= L_max - L_cache
        (L_max - L_cache - |y|) / L_cache  up to L_max
        -1                                 beyond

    Source: DAPO, arXiv:2503.14476, equation 13.
    """
    if request.num_tokens is None:
        return None
    spare = _limit(request) - part.cache_tokens - request.num_tokens
    return min(0.0, max(-1.0, spare / part.cache_tokens))


def cosine_length(request: Request, verdict: Verdict, part: CosineLengthPart) -> float | None:
    """Cosine length reward in [-1, 1]; None where nobody counted the tokens.

    long + (short - long) (1 + cos(pi |y| / L_max)) / 2, with one pair (short, long) for correct answers and one for all
    others, and `truncated` at the limit. Source: Yeo et al. 2025, arXiv:2502.03373, section 4.
    """
    if request.num_tokens is None:
        return None
    if request.truncated:
        return part.truncated
    is_correct = verdict.outcome is Outcome.CORRECT
    short, long = (part.correct_short, part.correct_long) if is_correct else (part.wrong_short, part.wrong_long)
    done = min(1.0, request.num_tokens / _limit(request))
    return long + (short - long) * (1 + math.cos(math.pi * done)) / 2


def _limit(request: Request) -> int:
    if request.max_tokens is None:
        raise ConfigError("a part measures length, but nobody said how long completions may be (max_tokens)")
    return request.max_tokens
