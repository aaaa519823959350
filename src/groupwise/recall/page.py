"""A page on its way: as a source gives it, and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, Self


class Truth(NamedTuple):
    """What is known of a page of a made or chosen source, and never shown to the classifier."""

    style: str
    """A style of mathematics, or a kind of other page."""
    is_mathematics: bool
    language: str = "en"
    copy_of: int | None = None
    """Number, in its source, of the page that it copies."""
    planted: Sequence[Sequence[str]] = ()
    """Items of a benchmark that it holds: the way, the item, the paragraph."""


class RawPage(NamedTuple):
    """A page as its source has it."""

    url: str
    body: bytes | str
    is_html: bool
    place: str
    """Where it stands, for messages: a file with its line, or a source with a number."""
    truth: Truth | None = None
    charset: str = ""
    """The encoding that the server named."""

    def placed(self, source: str) -> Self:
        """The same with its place among all sources; a page without an address has its place for it."""
        place = f"{source}/{self.place}"
        return self._replace(place=place, url=self.url if self.url != self.place else place)


class Unreadable(NamedTuple):
    """What should have been a page."""

    place: str
    reason: str

    def placed(self, source: str) -> Self:
        """The same with its place among all sources."""
        return self._replace(place=f"{source}/{self.place}")


@dataclass(frozen=True, slots=True)
class Page:
    """A page as text."""

    url: str
    text: str
    """Its paragraphs, one a line."""
    place: str
    replaced: int = 0
    """Characters that were not in the page's encoding; each is U+FFFD now."""
    truth: Truth | None = None

    @property
    def paragraphs(self) -> list[str]:
        return self.text.split("\n")

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"truth": self.truth and self.truth._asdict()}

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """From JSON; other keys are left out."""
        own = {field.name: row[field.name] for field in fields(cls)}
        return cls(**own | {"truth": Truth(**row["truth"]) if row["truth"] else None})
