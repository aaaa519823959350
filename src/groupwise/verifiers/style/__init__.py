"""Style: pure functions of a request, its verdict and their dials to a bounded number. None of them pays for words.

To add one: its section in `verifiers/parts.py`, a function here, and a line in `STYLES`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from groupwise.types import Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.style.format import tag_format
from groupwise.verifiers.style.language import language_consistency
from groupwise.verifiers.style.length import cosine_length, overlong
from groupwise.verifiers.style.repetition import repetition

Style = Callable[[Request, Verdict, Any], float | None]
"""The measure; None where the request does not hold what is measured (nobody counted its tokens)."""

STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "format": tag_format,
        "language": language_consistency,
        "overlong": overlong,
        "cosine_length": cosine_length,
        "repetition": repetition,
    }
)
"""Kind of part to function."""

__all__ = ["STYLES", "Style", "cosine_length", "language_consistency", "overlong", "repetition", "tag_format"]
