"""Reward parts beside the answer: what a recipe may set under `[verifier.parts.NAME]`, and what contradicts itself.

A part has a measure (bounded, see each kind) and earns weight times measure where its gate is open.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from groupwise.config import Section
from groupwise.errors import ConfigError

Bounded = Annotated[float, Field(ge=-1, le=1)]
Penalty = Annotated[float, Field(ge=-1, le=0)]
PartName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


class Part(Section):
    """Fields common to all parts."""

    weight: float = Field(ge=0, allow_inf_nan=False)
    """What a measure of 1 earns. 0: measured, not paid."""
    gate: Literal["always", "correct", "format"] = "always"
    """When it counts: `always`, only where the answer is `correct`, or only where the part of kind `format` is right.
    Penalties have gates too."""


class FormatPart(Part):
    """1 for one `<think>` with content and an answer after it, and nothing else; 0 otherwise."""

    kind: Literal["format"] = "format"
    """Says that the section is of this kind."""


class LanguagePart(Part):
    """Share (0 to 1) of the words that are in the problem's language (DeepSeek-R1, arXiv:2501.12948, section 2.3.2)."""

    kind: Literal["language"] = "language"
    """Says that the section is of this kind."""


class OverlongPart(Part):
    """Soft overlong punishment in [-1, 0] (DAPO, arXiv:2503.14476, equation 13)."""

    kind: Literal["overlong"] = "overlong"
    """Says that the section is of this kind."""
    cache_tokens: int = Field(ge=1)
    """L_cache: the punishment grows over the last so many tokens before the limit (DAPO: 4096 of 20480)."""


class CosineLengthPart(Part):
    """Cosine length reward in [-1, 1] (Yeo et al. 2025, arXiv:2502.03373, section 4).

    The paper's rewards hold correctness too: right 2 to 1, wrong -10 to 0, out of tokens -10. Here the accuracy part
    pays for correctness, so what is left is right 1 to 0, wrong below 0.
    """

    kind: Literal["cosine_length"] = "cosine_length"
    """Says that the section is of this kind."""
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


class RepetitionPart(Part):
    """Repetition penalty in [-1, 0]: the share of n-grams that stood before; -1 where the text ends in a loop."""

    kind: Literal["repetition"] = "repetition"
    """Says that the section is of this kind."""
    ngram: int = Field(default=20, ge=1)
    """Length of the n-grams in words, symbols and Chinese or Japanese characters. Short ones recur in good working: at
    20 the published solutions of MATH lose 0.007 on average, at 8 already 0.05."""


class VerifierPart(Part):
    """The opinion of a second verifier: 1 if it says correct, 0 if not, or in between where it grades (the judge)."""

    kind: Literal["verifier"] = "verifier"
    """Says that the section is of this kind."""
    verifier: str
    """Its name, for example `judge`; it is set up like the first."""
    weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """What its opinion earns, with `combine = "add"`. 0: it only measures how often the two disagree."""
    combine: Literal["add", "all", "any"] = "add"
    """`add`: it earns a part of its own. `all`: an answer is correct only if it says so too. `any`: if either does.
    Several decide in the order of the recipe."""

    @model_validator(mode="after")
    def _earns_or_decides(self) -> Self:
        if self.combine != "add" and (self.weight or self.gate != "always"):
            raise ValueError(
                f"combine = {self.combine!r} decides what is correct and earns nothing of its own: allowed are "
                'weight = 0 and gate = "always" (or combine = "add")'
            )
        return self


AnyPart = FormatPart | LanguagePart | OverlongPart | CosineLengthPart | RepetitionPart | VerifierPart
PartConfig = Annotated[AnyPart, Field(discriminator="kind")]
Parts = Mapping[str, AnyPart]

RESERVED = ("accuracy", "cap", "kl", "partial", "rubric")
"""Parts that a verdict may have anyway; no part of a recipe has these names."""


def format_part(parts: Parts) -> str | None:
    """Name of the part that says whether the format is right."""
    return next((name for name, part in parts.items() if part.kind == "format"), None)


def second_verifiers(parts: Parts) -> dict[str, str]:
    """Names of the second verifiers by part name."""
    return {name: part.verifier for name, part in parts.items() if isinstance(part, VerifierPart)}


def contradiction(parts: Parts, format_reward: float, correct_reward: float, cap_wrong: float | None) -> str | None:
    """What cannot be meant, as a sentence that says what is allowed; None where all is well."""
    for name, part in parts.items():
        if name in RESERVED:
            return f"parts.{name}: the names {', '.join(RESERVED)} are taken; any other is allowed"
        if part.gate == "format" and format_part(parts) is None:
            return f'parts.{name}: gate = "format" needs a part with kind = "format" (its weight may be 0)'
    if format_reward and ("format" in parts or format_part(parts)):
        return f"format_reward = {format_reward:g} and a part for the format are both set; allowed is one of them"
    if cap_wrong is not None and cap_wrong >= correct_reward:
        return f"cap_wrong = {cap_wrong:g} must be below correct_reward = {correct_reward:g}, or it caps nothing"
    return None


def check_lengths(parts: Parts, max_tokens: int | None) -> None:
    """Whether the parts that measure length can do so with completions of at most `max_tokens` tokens.

    Raises:
        ConfigError: there is no limit, or L_cache is longer than it.
    """
    for name, part in parts.items():
        if part.kind not in ("overlong", "cosine_length"):
            continue
        if max_tokens is None:
            raise ConfigError(f"verifier.parts.{name}: kind {part.kind!r} needs the token limit of the completions")
        if part.kind == "overlong" and part.cache_tokens > max_tokens:
            raise ConfigError(
                f"verifier.parts.{name}.cache_tokens = {part.cache_tokens} is more than the token limit of the "
                f"completions; at most {max_tokens} is allowed"
            )
