"""Verifiers: they read the answer in a completion and judge it against the reference answer. No torch here.

To add one: a module beside `math.py`, and a line in `VERIFIERS`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from groupwise.errors import ConfigError
from groupwise.verifiers.answered import AnsweredVerifier
from groupwise.verifiers.base import Finding, Request, Verifier, VerifierConfig, verdict
from groupwise.verifiers.code import CodeVerifier
from groupwise.verifiers.composition import ComposedVerifier
from groupwise.verifiers.countdown import CountdownVerifier
from groupwise.verifiers.equations import StepVerifier
from groupwise.verifiers.judge.verifier import JudgeVerifier
from groupwise.verifiers.logic import LOGIC_VERIFIERS
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.number import NumberVerifier
from groupwise.verifiers.overlap import OverlappedScoring
from groupwise.verifiers.parts import check_lengths, second_verifiers
from groupwise.verifiers.proofs.coq import CoqVerifier
from groupwise.verifiers.proofs.equational import EquationalVerifier
from groupwise.verifiers.proofs.lean import LeanVerifier
from groupwise.verifiers.proofs.propositional import PropositionalVerifier
from groupwise.verifiers.routed import RoutedVerifier
from groupwise.verifiers.score import check_failures, failure_share, part_statistics, score, spot_check

VERIFIERS: Mapping[str, type[Verifier]] = MappingProxyType(
    {
        "math": MathVerifier,
        "number": NumberVerifier,
        "countdown": CountdownVerifier,
        "code": CodeVerifier,
        "judge": JudgeVerifier,
        **LOGIC_VERIFIERS,
        "propositional_proof": PropositionalVerifier,
        "equational_proof": EquationalVerifier,
        "coq": CoqVerifier,
        "lean": LeanVerifier,
        "answered": AnsweredVerifier,
        "routed": RoutedVerifier,
    }
)
"""Name, as a task states it, to class."""


def make_verifier(name: str, config: VerifierConfig | None = None) -> Verifier:
    """The verifier of that name, with the parts of the configuration around it.

    Raises:
        ConfigError: there is no such verifier, or it is its own second opinion; the message says what is allowed.
    """
    config = config if config is not None else VerifierConfig()
    is_plain = not config.parts and config.cap_wrong is None
    made = _plain(name, config) if is_plain else _composed(name, config)
    return StepVerifier(made, config) if config.steps == "equations" else made


def _composed(name: str, config: VerifierConfig) -> Verifier:
    second = second_verifiers(config.parts)
    if name in second.values():
        raise ConfigError(f"the task's verifier is {name!r} already; a second opinion must come from another one")
    alone = config.model_copy(update={"parts": {}, "cap_wrong": None})
    # a second verifier's reward is its opinion, 0 to 1; what that earns is the part's weight
    opinion = alone.model_copy(update={"correct_reward": 1.0, "format_reward": 0.0, "partial_credit": 0.0})
    others = {part: _plain(verifier, opinion) for part, verifier in second.items()}
    return ComposedVerifier(_plain(name, alone), config, others)


def _plain(name: str, config: VerifierConfig) -> Verifier:
    if name not in VERIFIERS:
        raise ConfigError(f"there is no verifier {name!r}; known are {', '.join(sorted(VERIFIERS))}")
    return VERIFIERS[name](config)


__all__ = [
    "VERIFIERS", "CodeVerifier", "ComposedVerifier", "CountdownVerifier", "Finding", "JudgeVerifier", "MathVerifier",
    "OverlappedScoring", "Request", "Verifier", "VerifierConfig", "check_failures", "check_lengths", "failure_share",
    "make_verifier", "part_statistics", "score", "spot_check", "verdict",
]  # fmt: skip
