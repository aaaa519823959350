"""Reward parts beside the answer, as a recipe sets them under `[verifier.parts.NAME]`, and what contradicts itself.

A part has a measure (bounded, see each kind) and earns weight times measure where its gate is open. To add a style: a
module in `style/`, and a line in `PARTS`.
"""

import ast
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints

from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.places import Place
from groupwise.errors import ConfigError
from groupwise.types import Verdict

if TYPE_CHECKING:
    from groupwise.verifiers.base import Request

PartName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


class Part(KindSection):
    """Settings common to all parts."""

    weight: float = Field(ge=0, allow_inf_nan=False)
    """What a measure of 1 earns. 0: measured, not paid."""
    gate: Literal["always", "correct", "format"] = "always"
    """When it counts: `always`, only where the answer is `correct`, or only where the part of kind `format` is right.
    Penalties have gates too."""

    def length_fault(self, max_tokens: int | None) -> str:
        """Why it cannot measure completions of at most `max_tokens` tokens; empty if it can."""
        return ""


class StylePart(Part):
    """A measure of the text itself: a pure function of the request, its verdict and its own settings."""

    @abstractmethod
    def measure(self, request: "Request", verdict: Verdict) -> float | None:
        """A bounded number; None if the request does not hold what is measured (nobody counted its tokens)."""


def _adopt(place: Place) -> Any:
    """A user's own part; a user's function or verifier becomes a second verifier."""
    if isinstance(place.definition(), ast.ClassDef):
        target = place.load()
        if isinstance(target, type) and issubclass(target, Part):
            return target
    from groupwise.verifiers.composition import VerifierPart

    return VerifierPart


PARTS = Kinds(
    "reward part",
    {
        "format": "groupwise.verifiers.style.format:FormatPart",
        "language": "groupwise.verifiers.style.language:LanguagePart",
        "overlong": "groupwise.verifiers.style.length:OverlongPart",
        "cosine_length": "groupwise.verifiers.style.length:CosineLengthPart",
        "repetition": "groupwise.verifiers.style.repetition:RepetitionPart",
        "calls": "groupwise.verifiers.style.calls:CallsPart",
        "verifier": "groupwise.verifiers.composition:VerifierPart",
    },
    adopt=_adopt,
    base=Part,
)
"""Where each kind is defined."""

Parts = Mapping[str, Part]

RESERVED = ("accuracy", "cap", "kl", "partial", "rubric")
"""Parts that a verdict may have anyway; no part of a recipe has these names."""


def format_part(parts: Parts) -> str | None:
    """Name of the part that says whether the format is right."""
    return next((name for name, part in parts.items() if part.kind == "format"), None)


def contradiction(parts: Parts, format_reward: float, correct_reward: float, cap_wrong: float | None) -> str | None:
    """What contradicts itself, as a sentence that says what is allowed; None if nothing does."""
    for name, part in parts.items():
        if name in RESERVED:
            return f"parts.{name}: the names {', '.join(RESERVED)} are taken; any other is allowed"
        if part.gate == "format" and format_part(parts) is None:
            return f'parts.{name}: gate = "format" needs a part with kind = "format" (its weight may be 0)'
    if format_reward and ("format" in parts or format_part(parts)):
        return f"format_reward = {format_reward:g} and a part for the format are both set; only one of them is allowed"
    if cap_wrong is not None and cap_wrong >= correct_reward:
        return f"cap_wrong = {cap_wrong:g} must be below correct_reward = {correct_reward:g}, or it caps nothing"
    return None


def check_lengths(parts: Parts, max_tokens: int | None) -> None:
    """Whether the parts that measure length can do so with completions of at most `max_tokens` tokens.

    Raises:
        ConfigError: there is no limit, or L_cache is longer than it.
    """
    for name, part in parts.items():
        if fault := part.length_fault(max_tokens):
            raise ConfigError(f"verifier.parts.{name}{fault}")
