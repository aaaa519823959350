"""Phrases by which a completion says what it does: it checks itself, turns back, tries another way.

Regular expressions by behaviour and language, without regard to case. All languages are looked for in every completion,
because a model trained by reward mixes them.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field

from groupwise.config import Section

PHRASES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "checks": {
        "en": (r"\bwait\b", r"\b(?:double|re)[- ]?check", r"\b(?:let me|let's|to) (?:check|verify)\b",
               r"\bcheck(?:ing)?:"),
        "zh": ("等一下", "等等", "检查", "验证", "验算"),
    },
    "backtracks": {
        "en": (r"\b(?:that|this|it)(?:['’]s| is| was)(?: not|n['’]t) (?:right|correct)\b(?!-)",
               r"(?<!if )\b(?:that|this|it)(?:['’]s| is| was) (?:wrong|incorrect)\b",
               r"\b(?:let me|let['’]s|i(?:['’]ll| will| must| should| need to)) (?:redo|start again|go back)\b",
               r"\bstart(?:ing)? over\b", r"\bi made an? (?:\w+ )?(?:mistake|error)\b",
               # a check that ends in "No."; after a question mark it answers a question
               r"\bcheck\b[^?\n]{0,400}[.!] no[.!](?!\w)"),
        "zh": ("(?<!对)不对(?![称等应齐])", "重新(?:计?算|来|开始|做|考虑)", "[算弄搞]错了"),
    },
    "another_way": {
        "en": (r"\banother (?:way|approach|method)\b", r"\balternatively\b",
               r"\b(?:a )?different(?:ly| way| approach)\b"),
        "zh": ("另一种", "换一种", "换个方法"),
    },
})  # fmt: skip
"""The embedded phrases; languages by their ISO 639-1 code."""


def search(pattern: str, text: str) -> re.Match[str] | None:
    """The first place where a phrase occurs."""
    return re.search(pattern, text, re.IGNORECASE)


def _is_phrase(pattern: str) -> str:
    try:
        match = search(pattern, "")
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    if match:
        raise ValueError(f"{pattern!r} matches the empty text, so it would be found in every completion")
    return pattern


Phrases = dict[str, tuple[Annotated[str, AfterValidator(_is_phrase)], ...]]


class PhrasesConfig(Section):
    """Phrases to add: regular expressions by language, for example `en = ["hold on"]`."""

    checks: Phrases = Field(default_factory=dict)
    """The completion checks itself."""
    backtracks: Phrases = Field(default_factory=dict)
    """It says that it went wrong and goes back."""
    another_way: Phrases = Field(default_factory=dict)
    """It announces a second way to the answer."""


class BehaviourConfig(Section):
    """Phrases that reports look for in completions; training does not read them."""

    extend: bool = True
    """Your phrases are added to the embedded ones; false: they replace those of the same behaviour and language."""
    patterns: PhrasesConfig = PhrasesConfig()
    """Phrases to look for beside the embedded ones, or in their place."""

    def phrases(self) -> dict[str, dict[str, tuple[str, ...]]]:
        phrases = {name: dict(table) for name, table in PHRASES.items()}
        for name, table in phrases.items():
            additions: Phrases = getattr(self.patterns, name)
            for language, patterns in additions.items():
                table[language] = (*(table.get(language, ()) if self.extend else ()), *patterns)
        return phrases
