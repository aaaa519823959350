"""What the rounds work on, made once: pages as text, their copies, domains and n-grams, and the first seed."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import DataError
from groupwise.recall.collection import domain, pattern
from groupwise.recall.config import RecallConfig
from groupwise.recall.extract import extract, plain_text
from groupwise.recall.lines import as_json, write_lines
from groupwise.recall.near_duplicates import duplicates, signature
from groupwise.recall.page import Page, Unreadable
from groupwise.recall.words import exact_words, features, ngrams, words
from groupwise.runs.atomic import write_file
from groupwise.runs.jsonl import read_jsonl

Progress = Callable[[str, int, int], None]
EVERY = 200
"""Pages between two calls of the progress."""


@dataclass(frozen=True)
class Prepared:
    """The pages of a recall; each property is made when it is first asked for, or read from the directory."""

    config: RecallConfig
    directory: Path
    progress: Progress = field(default=lambda what, done, total: None)

    @cached_property
    def pages(self) -> list[Page]:
        """All pages, copies too, in the order of their sources."""
        path = self.directory / "pages.jsonl"
        if not path.exists():
            self._extract(path)
        return [Page.read(row.fields) for row in read_jsonl(path)]

    def _extract(self, path: Path) -> None:
        pages, dropped = dict[str, Page](), list[Unreadable]()
        for name, source in self.config.sources.items():
            for number, raw in enumerate(source.pages(self.config.seed, self.config.extract.max_bytes)):
                placed = raw.placed(name)
                found = placed if isinstance(placed, Unreadable) else extract(placed, self.config.extract)
                if isinstance(found, Unreadable):
                    dropped.append(found)
                elif (first := pages.setdefault(found.url, found)) is not found:
                    dropped.append(Unreadable(found.place, f"the address of {first.place}"))
                if number % EVERY == 0:
                    self.progress(f"pages of {name}", number, number + EVERY)
            self.progress(f"pages of {name}", 1, 1)
        write_lines(self.directory / "dropped.jsonl", (one._asdict() for one in dropped))
        if not pages:
            raise DataError(
                f"the sources have no page of {self.config.extract.min_characters} characters or more; "
                f"{self.directory / 'dropped.jsonl'} names what they have ({len(dropped):,}), and why it is none"
            )
        write_lines(path, (page.as_dict() for page in pages.values()))

    @cached_property
    def copies(self) -> dict[int, int]:
        """Number of every copy -> that of the page it copies."""
        path, how = self.directory / "copies.json", self.config.dedup
        if not path.exists():
            signatures = [
                signature(ngrams(exact_words(page.text), how.ngram), how.bands * how.rows)
                for page in self._counted("near copies")
            ]
            write_file(
                path, as_json({str(k): v for k, v in duplicates(signatures, how.bands, how.min_agreement).items()})
            )
        return {int(copy): original for copy, original in json.loads(path.read_text("utf-8")).items()}

    @cached_property
    def unique(self) -> list[int]:
        """Numbers of the pages that are no copies."""
        return [number for number in range(len(self.pages)) if number not in self.copies]

    @cached_property
    def domains(self) -> dict[int, str]:
        """The domain of every page that is no copy."""
        return {number: domain(self.pages[number].url) for number in self.unique}

    @cached_property
    def patterns(self) -> dict[str, list[int]]:
        """Pages that are no copies, by their URL pattern."""
        found = defaultdict[str, list[int]](list)
        for number in self.unique:
            found[pattern(self.pages[number].url)].append(number)
        return found

    def features_of(self, text: str) -> NDArray[np.int64]:
        """What the classifier sees of a text; the address is no part of it."""
        how = self.config.classifier
        return features(words(text, how.symbols), how.ngrams, how.buckets)

    @cached_property
    def features(self) -> list[NDArray[np.int64]]:
        """The same of every page."""
        return [self.features_of(page.text) for page in self._counted("n-grams")]

    @cached_property
    def seed_texts(self) -> list[str]:
        """What the first round begins with."""
        begin, sources = self.config.begin, list(self.config.sources.values())
        known = [plain_text(text) for source in sources for text in source.known_texts(self.config.seed)]
        if not begin.path:
            texts = sources[0].seed_texts(self.config.seed, begin.num_texts)
            return [*map(plain_text, texts), *known]
        rows = [row.fields for row in read_jsonl(Path(begin.path))][: begin.num_texts]
        texts = [plain_text(str(row.get("text") or "")) for row in rows]  # cleaned as pages are
        if not any(texts):
            raise DataError(f"{begin.path} has no record with `text`")
        return [*texts, *known]

    def _counted(self, what: str) -> Iterable[Page]:
        """The pages, with progress."""
        for number, page in enumerate(self.pages):
            if number % EVERY == 0:
                self.progress(what, number, len(self.pages))
            yield page
        self.progress(what, len(self.pages), len(self.pages))
