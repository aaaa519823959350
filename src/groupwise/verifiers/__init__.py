"""Verifiers: they read the answer in a completion and judge it against the reference answer. No torch here.

To add one: a module beside `math.py`, and a line in `VERIFIERS`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from groupwise.errors import ConfigError
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.countdown import CountdownVerifier
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.score import check_failures, failure_share, score

VERIFIERS: Mapping[str, type[Verifier]] = MappingProxyType({"math": MathVerifier, "countdown": CountdownVerifier})
"""Name, as a task states it, to class."""


def make_verifier(name: str, config: VerifierConfig | None = None) -> Verifier:
    """The verifier of that name.

    Raises:
        ConfigError: there is no such verifier; the message names those there are.
    """
    if name not in VERIFIERS:
        raise ConfigError(f"there is no verifier {name!r}; known are {', '.join(sorted(VERIFIERS))}")
    return VERIFIERS[name](config)


__all__ = [
    "VERIFIERS", "CountdownVerifier", "Finding", "MathVerifier", "Request", "Verifier", "VerifierConfig",
    "check_failures", "failure_share", "make_verifier", "score", "verdict",
]  # fmt: skip
