"""Where pages come from: a made web, texts of installed packages, files of records, archives of the web."""

import importlib
import json
import pkgutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from groupwise.artifacts import DataRef
from groupwise.errors import ConfigError, DataError
from groupwise.kinds import Kinds, KindSection
from groupwise.recall.page import RawPage, Truth, Unreadable
from groupwise.tasks.web.made import MadeWeb, seed_texts

Found = RawPage | Unreadable


class PageSource(KindSection):
    """A source of pages."""

    @abstractmethod
    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        """Its pages, always in the same order; one that is longer than `max_bytes` need not be read to its end."""

    def seed_texts(self, seed: int, number: int) -> list[str]:
        """Texts of its own to begin with.

        Raises:
            ConfigError: it has none.
        """
        raise ConfigError(f"begin.path is empty, and a source of kind {self.kind} has no texts of its own: name a file")


class Web(PageSource):
    """A made web, of which the truth is known: six styles of mathematics among everything else (`tasks.web`)."""

    kind: str = "web"
    """Made pages."""
    num_pages: int = Field(20_000, ge=1)
    """Pages; about one in twenty is mathematics."""
    num_domains: int = Field(300, ge=4)
    """Domains."""
    planted: float = Field(0.05, ge=0, le=1)
    """Share of mathematical pages that hold an item of a benchmark, exactly, reformatted, with other numbers or in
    other words."""

    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        made = MadeWeb(self.num_pages, self.num_domains, self.planted, seed)
        for number, page in enumerate(made.pages()):
            planted = [tuple(one) for one in page.planted]
            truth = Truth(page.style, page.is_mathematics, page.language, page.copy_of, planted)
            yield RawPage(page.url, page.html, True, f"web#{number}", truth)

    def seed_texts(self, seed: int, number: int) -> list[str]:
        return seed_texts(seed, number)


class Docstrings(PageSource):
    """Real text: what the functions of installed packages say of themselves."""

    kind: str = "docstrings"
    """Docstrings."""
    mathematics: tuple[str, ...] = ("mpmath", "sympy.ntheory", "sympy.functions", "sympy.combinatorics")
    """Packages whose docstrings are mathematics."""
    others: tuple[str, ...] = ("networkx.algorithms", "asyncio", "email", "http", "logging")
    """Packages whose docstrings are technical, and no mathematics."""
    min_characters: int = Field(200, ge=1)
    """Shorter docstrings are left out."""

    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        for is_mathematics, names in ((True, self.mathematics), (False, self.others)):
            for name in names:
                found, unreadable = docstrings(name, self.min_characters)
                yield from unreadable
                for place, text in found:
                    truth = Truth("docstrings", is_mathematics)
                    url = f"https://{name.partition('.')[0]}.docs.example/{'/'.join(place.split('.')[1:-1])}/{place}"
                    yield RawPage(url, text, False, place, truth)


def docstrings(name: str, min_characters: int) -> tuple[list[tuple[str, str]], list[Unreadable]]:
    """Dotted name and docstring of everything public in a package, each text once; and modules that cannot be imported.

    Both are in the order of the names.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"the docstrings of {name} cannot be read: {error}") from None
    modules = [package, *_modules(package)]
    found: dict[str, str] = {}
    for module in modules:
        if isinstance(module, ModuleType):
            for key, text in _own(module, name.partition(".")[0], min_characters):
                found.setdefault(text, f"{module.__name__}.{key}")
    unreadable = [module for module in modules if isinstance(module, Unreadable)]
    return sorted((place, text) for text, place in found.items()), unreadable


def _own(module: ModuleType, package: str, min_characters: int) -> Iterator[tuple[str, str]]:
    """Name and docstring of what is public in a module and written in the package."""
    for key, member in sorted(vars(module).items()):
        text = getattr(member, "__doc__", None) if not isinstance(member, ModuleType) else None
        is_own = str(getattr(member, "__module__", "") or "").startswith(package)
        if is_own and not key.startswith("_") and isinstance(text, str) and len(text) >= min_characters:
            yield key, text


def _modules(package: ModuleType) -> Iterator[ModuleType | Unreadable]:
    """The modules below a package; what cannot be imported is named with its reason."""
    # a package that cannot be imported is found all the same, and named when it is its turn below
    found = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}.", onerror=lambda name: None)
    for name in sorted(info.name for info in found):
        if any(part in ("tests", "conftest", "__main__", "benchmarks") for part in name.split(".")):
            continue
        try:
            yield importlib.import_module(name)
        except Exception as error:  # whatever code of others raises, for example where a package is not installed
            yield Unreadable(name, f"a module that cannot be imported ({type(error).__name__}: {error})")


class Records(PageSource):
    """Pages in a file of yours: JSON lines or Parquet."""

    kind: str = "file"
    """A file of records."""
    path: DataRef
    """The file: `.parquet`, else one JSON object a line."""
    url_field: str = "url"
    """Field with the page's address; a record without one has its place for it."""
    text_field: str = "text"
    """Field with the page's text."""
    html: bool = False
    """The text is HTML."""

    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        path = Path(self.path)
        if not path.is_file():
            raise DataError(f"there is no file {path}")
        records: Iterator[tuple[str, Mapping[str, Any] | Unreadable]]
        if path.suffix == ".parquet":
            records = _parquet(path, self.url_field, self.text_field)
        else:
            records = _json_lines(path, max_bytes)
        for place, record in records:
            yield record if isinstance(record, Unreadable) else self._page(place, record)

    def _page(self, place: str, record: Mapping[str, Any]) -> Found:
        text = record.get(self.text_field)
        if not isinstance(text, str | bytes):
            return Unreadable(place, f"no text in field '{self.text_field}'")
        return RawPage(str(record.get(self.url_field) or place), text, self.html, place)


def _json_lines(path: Path, max_bytes: int) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    """Records of a file; a line that is longer than a page may be, JSON's escapes counted, is passed over unread."""
    limit, number = 6 * max_bytes + 10_000, 0
    with path.open("rb") as file:
        while line := file.readline(limit):
            number += 1
            place = f"{path.name}#{number}"
            if len(line) == limit and not line.endswith(b"\n"):
                while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                    pass
                yield place, Unreadable(place, f"longer than {max_bytes:,} bytes")
            elif line.strip():
                yield place, _record(place, line)


def _record(place: str, line: bytes) -> Mapping[str, Any] | Unreadable:
    try:
        record = json.loads(line)
    except UnicodeDecodeError:
        return Unreadable(place, "not UTF-8")
    except ValueError:
        return Unreadable(place, "not JSON")
    return record if isinstance(record, dict) else Unreadable(place, "no JSON object")


def _parquet(path: Path, url_field: str, text_field: str) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    try:
        file = pq.ParquetFile(path)
        if text_field not in file.schema_arrow.names:
            raise DataError(f"{path} has no column '{text_field}'; it has {', '.join(file.schema_arrow.names)}")
        columns = [name for name in (url_field, text_field) if name in file.schema_arrow.names]
        number = 0
        for batch in file.iter_batches(64, columns=columns):
            for record in batch.to_pylist():
                number += 1
                yield f"{path.name}#{number}", record
    except pa.ArrowException as error:
        raise DataError(f"{path} is no readable Parquet file: {error}") from None


class Warc(PageSource):
    """Pages of an archive of the web; needs `pip install 'groupwise[warc]'`."""

    kind: str = "warc"
    """A WARC file."""
    path: DataRef
    """The archive, compressed or not: its responses of type HTML are the pages."""

    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        try:
            from warcio.archiveiterator import ArchiveIterator
            from warcio.exceptions import ArchiveLoadFailed
        except ImportError:
            raise ConfigError("kind = \"warc\" needs `pip install 'groupwise[warc]'`") from None
        path = Path(self.path)
        if not path.is_file():
            raise DataError(f"there is no file {path}")
        with path.open("rb") as file:
            try:
                for number, record in enumerate(ArchiveIterator(file), 1):
                    if record.rec_type == "response" and "html" in (
                        record.http_headers.get_header("Content-Type") or ""
                    ):
                        url, body = record.rec_headers.get_header("WARC-Target-URI"), _body(record, max_bytes)
                        yield RawPage(url, body, True, f"{path.name}#{number}")
            except ArchiveLoadFailed as error:
                raise DataError(f"{path} is no readable WARC file: {error}") from None


def _body(record: Any, max_bytes: int) -> bytes:
    """The page, or as much of it as shows that it is too long."""
    parts, total = list[bytes](), 0
    while total <= max_bytes and (part := record.content_stream().read(1 << 16)):
        parts.append(part)
        total += len(part)
    return b"".join(parts)


SOURCES = Kinds(
    "page source",
    {
        "web": f"{__name__}:Web",
        "docstrings": f"{__name__}:Docstrings",
        "file": f"{__name__}:Records",
        "warc": f"{__name__}:Warc",
    },
    base=PageSource,
)
"""Where pages may come from."""
