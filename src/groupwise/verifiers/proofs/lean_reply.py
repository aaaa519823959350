"""What Lean says about a file, wherever it runs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from groupwise.verifiers.base import Finding

_SEVERITIES = ("error", "warning", "info", "information", "trace")


class Message(NamedTuple):
    """Something that Lean said."""

    is_error: bool
    text: str


Reply = tuple[Message, ...] | Finding
"""All that Lean said about a file, or the finding that stands without it."""


class LeanBackend(Protocol):
    """Compiles files with Lean."""

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        """One reply per file, in the same order."""

    def close(self) -> None:
        """End what was started; it may be used again."""


def read_message(fields: Mapping[str, Any]) -> Message:
    """A message of Lean's JSON form.

    Raises:
        ValueError, KeyError, TypeError: it is not of that form.
    """
    severity, text = fields["severity"], fields["data"]
    if severity not in _SEVERITIES or not isinstance(text, str):
        raise ValueError(f"a message of severity {severity!r:.40}")
    return Message(severity == "error", text)
