"""Sources of pages: files of records, archives of the web."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.schema import DataRef
from groupwise.errors import ConfigError, DataError
from groupwise.recall.extract import charset_in
from groupwise.recall.page import RawPage, Unreadable

Found = RawPage | Unreadable
CUT_OFF = "a record that is cut off"


class PageSource(KindSection):
    """A source of pages."""

    @abstractmethod
    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        """Yield the pages, always in the same order; one longer than `max_bytes` need not be read to its end."""

    def seed_texts(self, seed: int, number: int) -> list[str]:
        raise ConfigError(f"begin.path is empty, and a source of kind {self.kind} has no seed texts: name a file")

    def known_texts(self, seed: int) -> list[str]:
        return []


class Records(PageSource):
    """Pages in a file: JSON lines or Parquet."""

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
        try:
            for place, record in records:
                yield record if isinstance(record, Unreadable) else self._page(place, record)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from None

    def _page(self, place: str, record: Mapping[str, Any]) -> Found:
        text = record.get(self.text_field)
        if not isinstance(text, str | bytes):
            return Unreadable(place, f"no text in field '{self.text_field}'")
        url = record.get(self.url_field)
        url = url.decode("utf-8", "replace") if isinstance(url, bytes) else url
        return RawPage(str(url) if isinstance(url, str | int | float) and url else place, text, self.html, place)


def _json_lines(path: Path, max_bytes: int) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
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
                try:
                    record = json.loads(line)
                except UnicodeDecodeError:
                    yield place, Unreadable(place, "not UTF-8")
                except json.JSONDecodeError:
                    yield place, Unreadable(place, "not JSON")
                except (ValueError, RecursionError):
                    yield place, Unreadable(place, "JSON with a number too long or brackets too deep")
                else:
                    yield place, record if isinstance(record, dict) else Unreadable(place, "no JSON object")


def _parquet(path: Path, url_field: str, text_field: str) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is no readable Parquet file: {error}") from None
    with file:
        if text_field not in names:
            raise DataError(f"{path} has no column '{text_field}'; it has {', '.join(names)}")
        columns, start = [name for name in (url_field, text_field) if name in names], 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            found = start
            for found, record in enumerate(_row_group(file, group, columns), start + 1):
                place = f"{path.name}#{found}"
                yield place, Unreadable(place, record) if isinstance(record, str) else record
            for number in range(found + 1, end + 1):
                place = f"{path.name}#{number}"
                yield place, Unreadable(place, "in a damaged part of the file")
            start = end


def _row_group(file: Any, group: int, columns: list[str]) -> Iterator[Mapping[str, Any] | str]:
    try:
        for batch in file.iter_batches(64, row_groups=[group], columns=columns):
            for values in zip(*(map(_value, column) for column in batch.columns), strict=True):
                broken = next((value for value in values if isinstance(value, Exception)), None)
                if isinstance(broken, UnicodeDecodeError):
                    yield "not UTF-8"
                elif broken:
                    yield f"a broken value ({type(broken).__name__})"
                else:
                    yield dict(zip(batch.schema.names, values, strict=True))
    except (pa.ArrowException, OSError, ValueError):
        return


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except Exception as error:
        return error


class Warc(PageSource):
    """Pages of a web archive; needs `pip install 'groupwise[warc]'`."""

    path: DataRef
    """The archive, compressed or not: its responses of type HTML are the pages."""

    def pages(self, seed: int, max_bytes: int) -> Iterator[Found]:
        try:
            from warcio.archiveiterator import ArchiveIterator
        except ImportError:
            raise ConfigError("kind = \"warc\" needs `pip install 'groupwise[warc]'`") from None
        path = Path(self.path)
        if not path.is_file():
            raise DataError(f"there is no file {path}")
        number = 0
        try:
            with path.open("rb") as file:
                # records are parsed below, so that a damaged one does not stop the others
                records = ArchiveIterator(file, no_record_parse=True)
                reader = records.reader
                for number, record in enumerate(records, 1):
                    if found := _of_record(record, f"{path.name}#{number}", max_bytes):
                        yield found
            if number and not reader.num_block_read:  # a compressed record began, and nothing of it could be unpacked
                yield Unreadable(f"{path.name}#{number + 1}", CUT_OFF)
        except Exception as error:  # of the archive's reader, which cannot find the next record
            if not number:
                raise DataError(f"{path} is no readable WARC file: {error}") from None
            why = f"the archive is damaged, and not read from here ({type(error).__name__})"
            yield Unreadable(f"{path.name}#{number + 1}", why)


def _of_record(record: Any, place: str, max_bytes: int) -> Found | None:
    if record.rec_type is None or record.length is None:
        return Unreadable(place, "a record without a type or a length")
    found = _response(record, place, max_bytes) if record.rec_type == "response" else None
    while record.raw_stream.read(1 << 16):  # to its end
        pass
    return Unreadable(place, CUT_OFF) if record.raw_stream.limit else found


def _response(record: Any, place: str, max_bytes: int) -> Found | None:
    from warcio.statusandheaders import StatusAndHeadersParser

    url = record.rec_headers.get_header("WARC-Target-URI") or record.rec_headers.get_header("uri") or place
    if url != place and not url.lower().startswith(("http:", "https:")):
        return None  # an answer of the domain name system, for example
    try:
        headers = StatusAndHeadersParser(["HTTP/"], verify=False).parse(record.raw_stream)
        record.http_headers = headers  # by which its content is unpacked
        kind = headers.get_header("Content-Type") or ""
        if "html" not in kind:
            return None
        stream, parts, total = record.content_stream(), list[bytes](), 0
        while total <= max_bytes and (part := stream.read(1 << 16)):  # no further than shows that it is too long
            parts.append(part)
            total += len(part)
        return RawPage(url, b"".join(parts), True, place, charset=charset_in(kind))
    except EOFError:
        return Unreadable(place, "a response without headers")
    except Exception as error:  # whatever unpacking raises
        return Unreadable(place, f"a record that cannot be read ({type(error).__name__})")


SOURCES = Kinds(
    "page source",
    {"docstrings": "worlds/docstrings.py:Docstrings", "file": f"{__name__}:Records", "warc": f"{__name__}:Warc"},
)
