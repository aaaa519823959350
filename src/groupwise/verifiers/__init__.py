"""Verifiers: they read the answer in a completion and judge it against the reference answer. No torch here.

To add one: a module here, and a line in `table.py`. A verifier of your own needs neither:
`kind = "rewards.py:reward"`.
"""

from collections.abc import Mapping
from typing import Any

from groupwise.errors import ConfigError
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, extraction_of, verdict
from groupwise.verifiers.composition import ComposedVerifier, second_verifiers
from groupwise.verifiers.equations import StepVerifier
from groupwise.verifiers.overlap import OverlappedScoring
from groupwise.verifiers.parts import check_lengths
from groupwise.verifiers.score import check_failures, failure_share, part_statistics, score, spot_check
from groupwise.verifiers.table import VERIFIERS


def verifier_config(section: VerifierConfig | Mapping[str, Any] | str) -> VerifierConfig:
    """A verifier's settings from its kind or its table."""
    config = VERIFIERS.read(section)
    assert isinstance(config, VerifierConfig)
    return config


def make_verifier(section: VerifierConfig | Mapping[str, Any] | str) -> Verifier:
    """The verifier of a section, a table or a kind alone, with its parts around it.

    Raises:
        ConfigError: there is no such verifier, or it is its own second opinion; the message says what is allowed.
    """
    config = verifier_config(section)
    is_plain = not config.parts and config.cap_wrong is None
    verifier = _make_plain(config) if is_plain else _compose(config)
    return StepVerifier(verifier, config) if config.steps == "equations" else verifier


def _compose(config: VerifierConfig) -> Verifier:
    sections = second_verifiers(config.parts)
    if config.kind in {section.kind for section in sections.values()}:
        raise ConfigError(f"the verifier is {config.kind!r} already; a second opinion must come from another one")
    main_config = config.model_copy(update={"parts": {}, "cap_wrong": None})
    return ComposedVerifier(
        _make_plain(main_config), config, {part: _make_plain(section) for part, section in sections.items()}
    )


def _make_plain(config: VerifierConfig) -> Verifier:
    verifier: Verifier = VERIFIERS.find(config.kind)(config)
    return verifier


__all__ = [
    "VERIFIERS", "ComposedVerifier", "Finding", "OverlappedScoring", "Request", "Verifier", "VerifierConfig",
    "check_failures", "check_lengths", "extraction_of", "failure_share", "make_verifier", "part_statistics", "score",
    "second_verifiers", "spot_check", "verdict", "verifier_config",
]  # fmt: skip
