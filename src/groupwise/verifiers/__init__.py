"""Verifiers: they read the answer in a completion and judge it against the reference answer. No torch here.

To add one: a module here, and a line in `table.py`. A verifier of your own needs neither:
`kind = "rewards.py:reward"`.
"""

from collections.abc import Mapping
from typing import Any

from groupwise.errors import ConfigError
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, check_lengths, extraction_of, verdict
from groupwise.verifiers.composition import ComposedVerifier, second_verifiers
from groupwise.verifiers.scoring import OverlappedScoring, check_failures, part_statistics, score, spot_check
from groupwise.verifiers.table import VERIFIERS


def verifier_config(section: VerifierConfig | Mapping[str, Any] | str) -> VerifierConfig:
    """Read a verifier's settings from its kind or its table."""
    config: VerifierConfig = VERIFIERS.read(section, base=VerifierConfig)
    return config


def make_verifier(section: VerifierConfig | Mapping[str, Any] | str) -> Verifier:
    """Make the verifier of a section, a table or a kind, with its parts around it (ConfigError: there is none)."""
    config = verifier_config(section)
    sections = second_verifiers(config.parts)
    if config.kind in {section.kind for section in sections.values()}:
        raise ConfigError(f"the verifier is {config.kind!r} already; a second opinion must come from another one")
    main: Verifier = VERIFIERS.find(config.kind)(config.model_copy(update={"parts": {}, "cap_wrong": None}))
    if not config.parts and config.cap_wrong is None and config.steps == "none":
        return main
    return ComposedVerifier(main, config, {part: VERIFIERS.find(other.kind)(other) for part, other in sections.items()})


__all__ = [
    "VERIFIERS", "ComposedVerifier", "Finding", "OverlappedScoring", "Request", "Verifier", "VerifierConfig",
    "check_failures", "check_lengths", "extraction_of", "make_verifier", "part_statistics", "score",
    "second_verifiers", "spot_check", "verdict", "verifier_config",
]  # fmt: skip
