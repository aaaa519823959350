"""Pages of the user's own, with everything that can be wrong about them; and the sources that need no file."""

import json
from gzip import compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from docstrings import Docstrings, docstrings
from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.recall.config import RecallRecipe
from groupwise.recall.extract import extract
from groupwise.recall.page import Page, RawPage, Unreadable
from groupwise.recall.rounds import Rounds
from groupwise.recall.run import run_recall
from groupwise.recall.sources import PageSource, Records, Warc
from web import MadeWeb

TEXT = "Every even number above two seems to be the sum of two primes, which nobody has proved."


def pages(source: PageSource, max_bytes: int = 10_000) -> list[RawPage | Unreadable]:
    return list(source.pages(0, max_bytes))


def test_broken_lines_are_named_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    lines = [
        json.dumps({"url": "https://a.example/x/1", "text": TEXT}).encode(), b"{broken", b"[1, 2]",
        json.dumps({"url": "https://a.example/x/2"}).encode(), b'{"text": "\xff\xfe"}', b"",
        json.dumps({"text": "x" * 100_000}).encode(), json.dumps({"text": TEXT}).encode(),
    ]  # fmt: skip
    path.write_bytes(b"\n".join(lines))
    first, *bad, last = pages(Records(kind="file", path=str(path)))
    assert first == RawPage("https://a.example/x/1", TEXT, False, "pages.jsonl#1")
    assert last == RawPage("pages.jsonl#8", TEXT, False, "pages.jsonl#8")
    reasons = {2: "not JSON", 3: "no JSON object", 4: "no text in field 'text'", 5: "not UTF-8",
               7: "longer than 10,000 bytes"}  # fmt: skip
    assert bad == [Unreadable(f"pages.jsonl#{number}", reason) for number, reason in reasons.items()]


def test_one_page_of_100_megabytes_is_counted_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    good = [{"url": f"https://a.example/x/{i}", "text": f"{TEXT} Number {i} is the case {i * 7}."} for i in range(6)]
    with path.open("wb") as file:
        file.write(b'{"url": "https://big.example/", "text": "' + b"x" * 100_000_000 + b'"}\n')
        for row in (*good, good[0], {"text": ""}):
            file.write(json.dumps(row).encode() + b"\n")
    seed = tmp_path / "seed.jsonl"
    seed.write_text("".join(json.dumps(row) + "\n" for row in good[:3]))
    recipe = parse(RecallRecipe, {
        "directory": str(tmp_path / "out"), "sources": {"mine": {"kind": "file", "path": str(path)}},
        "begin": {"path": str(seed)}, "annotator": "none", "rounds": {"min_score": 0.0},
    })  # fmt: skip
    facts = run_recall(recipe, lambda what, done, total: None)
    assert facts["dropped"] == {"an address that came before": 1, "empty": 1, "longer than 5,000,000 bytes": 1}
    assert facts["pages"] == 9
    assert facts["rounds"][-1]["kept"] == 6 - facts["copies"]["found"]
    assert "precision" not in facts["rounds"][-1]  # nothing is known of these pages
    named = [
        json.loads(line)["place"]
        for line in (tmp_path / "out" / "dropped.jsonl").read_text().splitlines()
        if '"page"' not in line
    ]
    assert named == ["mine/pages.jsonl#1", "mine/pages.jsonl#8", "mine/pages.jsonl#9"]


def test_records_of_two_files_of_one_name_without_addresses_are_not_taken_for_one(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.jsonl").write_text(json.dumps({"text": f"{folder * 50} {TEXT}"}) + "\n")
    sources = {name: {"kind": "file", "path": str(tmp_path / name / "x.jsonl")} for name in ("a", "b")}
    settings = {"begin": {"path": str(tmp_path / "a" / "x.jsonl")}, "annotator": "none"}
    recipe = parse(RecallRecipe, {"directory": str(tmp_path / "out"), "sources": sources, **settings})
    facts = run_recall(recipe, lambda what, done, total: None)
    assert (facts["pages"], facts["dropped"]) == (2, {})


@pytest.mark.parametrize(("rows", "said"), [
    ([{"text": TEXT}, {"content": TEXT}], "a.jsonl, line 2: field 'text' is None; the text of a page is needed"),
    ([{"text": " "}], "line 1: field 'text' is ' '"), ([{"text": [TEXT]}], "line 1: field 'text' is "),
    ([{"text": "\u200b"}], "line 1: field 'text' is "),
    ([], "holds no texts"),
])  # fmt: skip
def test_seed_texts_without_a_text_are_named(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = {"mine": {"kind": "file", "path": str(path)}}
    settings = {"directory": str(tmp_path / "out"), "begin": {"path": str(path)}, "annotator": "none"}
    with pytest.raises(DataError, match=said):
        assert Rounds(parse(RecallRecipe, {"sources": sources, **settings}), tmp_path).seed_texts


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    pq.write_table(pa.table({"url": ["u1", None], "text": [TEXT, None], "other": [1, 2]}), path)
    assert pages(Records(kind="file", path=str(path))) == [
        RawPage("u1", TEXT, False, "pages.parquet#1"), Unreadable("pages.parquet#2", "no text in field 'text'")
    ]  # fmt: skip
    with pytest.raises(DataError, match="has no column 'body'; it has url, text, other"):
        pages(Records(kind="file", path=str(path), text_field="body"))
    path.write_bytes(b"no parquet at all")
    with pytest.raises(DataError, match="no readable Parquet file"):
        pages(Records(kind="file", path=str(path)))
    with pytest.raises(DataError, match="there is no file"):
        pages(Records(kind="file", path=str(tmp_path / "none.jsonl")))


def test_docstrings_are_real_text_of_both_kinds() -> None:
    found = pages(Docstrings(kind="docstrings", mathematics=("mpmath",), others=("logging",)))
    by_kind: dict[bool, list[Any]] = {True: [], False: []}
    page: Any
    for page in found:
        by_kind[page.truth.is_mathematics].append(page.url)
    assert len(by_kind[True]) > 100
    assert len(by_kind[False]) > 5
    assert len({*by_kind[True], *by_kind[False]}) == len(found)
    with pytest.raises(ConfigError, match="the docstrings of no_such_package cannot be read"):
        pages(Docstrings(kind="docstrings", mathematics=("no_such_package",)))


def test_modules_that_cannot_be_imported_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, broken = tmp_path / "half_here", tmp_path / "half_here" / "broken"
    broken.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "whole.py").write_text(f"def f():\n    '''{'A function of x. ' * 20}'''\n")
    (package / "missing.py").write_text("import no_such_package\n")
    (broken / "__init__.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = pages(Docstrings(kind="docstrings", mathematics=("half_here",), others=()))
    named = {one.place: one.reason for one in found if isinstance(one, Unreadable)}
    why = "a module that cannot be imported"
    assert named == {
        "half_here.broken": f"{why} (ZeroDivisionError: division by zero)",
        "half_here.missing": f"{why} (ModuleNotFoundError: No module named 'no_such_package')",
    }
    assert [one.place for one in found if isinstance(one, RawPage)] == ["half_here.whole.f"]


def test_a_source_without_texts_of_its_own_needs_a_seed() -> None:
    with pytest.raises(ConfigError, match=r"begin\.path is empty, and a source of kind docstrings"):
        Docstrings(kind="docstrings").seed_texts(0, 3)
    assert len(MadeWeb().seed_texts(0, 3)) == 3


Sent = tuple[str, list[tuple[str, str]] | None, bytes]


def archive(path: Path, *records: Sent, gzip: bool = True) -> list[int]:
    """Write responses; returns where each begins. None for the headers: there are none."""
    content, starts = b"", list[int]()
    for url, sent, body in records:
        lines = [] if sent is None else ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in sent), "", ""]
        block = "\r\n".join(lines).encode() + body
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nContent-Length: {len(block)}\r\n\r\n"
        starts.append(len(content))
        one = head.encode() + block + b"\r\n\r\n"
        content += compress(one) if gzip else one
    path.write_bytes(content)
    return starts


def html(number: int, body: bytes = b"<p>xxxxxxxxxx", kind: str = "text/html", *more: tuple[str, str]) -> Sent:
    return f"http://a.example/{number}", [("Content-Type", kind), *more], body


def test_warc_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    archive(path, html(0), html(1, kind="image/png"), html(2, b"x" * 50_000, "text/html; charset=utf-8"))
    first, second = pages(Warc(kind="warc", path=str(path)))
    assert first == RawPage("http://a.example/0", b"<p>xxxxxxxxxx", True, "a.warc.gz#1")
    assert isinstance(second, RawPage)
    assert len(second.body) > 10_000
    assert second.charset == "utf-8"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="no readable WARC file"):
        pages(Warc(kind="warc", path=str(path)))
    with pytest.raises(DataError, match="there is no file"):
        pages(Warc(kind="warc", path=str(tmp_path / "none.warc")))


def test_the_encoding_that_a_server_names_is_read(tmp_path: Path) -> None:
    archive(tmp_path / "a.warc", html(0, f"<p>{TEXT} é".encode("latin-1"), "text/html; charset=ISO-8859-1"), gzip=False)
    (raw,) = pages(Warc(kind="warc", path=str(tmp_path / "a.warc")))
    assert isinstance(raw, RawPage)
    found = extract(raw)
    assert isinstance(found, Page)
    assert (found.text, found.replaced) == (f"{TEXT} é", 0)


def test_a_compressed_page_that_is_longer_than_one_read(tmp_path: Path) -> None:
    body = b"".join(b"<p>%d" % number for number in range(40_000))
    archive(tmp_path / "a.warc.gz", html(0, compress(body), "text/html", ("Content-Encoding", "gzip")))
    (raw,) = pages(Warc(kind="warc", path=str(tmp_path / "a.warc.gz")), 10**6)
    assert isinstance(raw, RawPage)
    assert raw.body == body


@pytest.mark.parametrize("gzip", [True, False])
def test_a_record_of_an_archive_without_headers_or_address(tmp_path: Path, gzip: bool) -> None:
    path = tmp_path / "a.warc"
    archive(path, html(0), ("http://a.example/1", None, b""), ("dns:a.example", None, b"1.2.3.4"), html(3), gzip=gzip)
    first, bad, last = pages(Warc(kind="warc", path=str(path)))
    assert bad == Unreadable("a.warc#2", "a response without headers")
    assert [one.url for one in (first, last) if isinstance(one, RawPage)] == [html(0)[0], html(3)[0]]
    if not gzip:
        content = path.read_bytes().replace(b"WARC-Target-URI: http://a.example/0\r\n", b"")
        path.write_bytes(content.replace(b"WARC-Type: response\r\n", b"", 1))
        assert pages(Warc(kind="warc", path=str(path)))[0] == Unreadable(
            "a.warc#1", "a record without a type or a length"
        )
        path.write_bytes(content)
        first = pages(Warc(kind="warc", path=str(path)))[0]
        assert isinstance(first, RawPage)
        assert first.url == "a.warc#1"


@pytest.mark.parametrize("gzip", [True, False])
def test_an_archive_that_ends_anywhere_keeps_what_came_before(tmp_path: Path, gzip: bool) -> None:
    path = tmp_path / "a.warc"
    noise = [" ".join(str(number**7 % 9973) for number in range(part, part + 300)) for part in (0, 300, 600)]
    starts = archive(path, *(html(number, f"<p>{text}".encode()) for number, text in enumerate(noise)), gzip=gzip)
    whole = path.read_bytes()
    assert len(pages(Warc(kind="warc", path=str(path)))) == 3
    for end in range(starts[2] + 1, len(whole) - 12, 17):
        path.write_bytes(whole[:end])
        first, second, last = pages(Warc(kind="warc", path=str(path)))
        assert [isinstance(one, RawPage) for one in (first, second, last)] == [True, True, False]
        assert last.place == "a.warc#3"


def test_bytes_in_an_archive_that_are_spoilt_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    starts = archive(path, *map(html, range(4)), gzip=False)
    content = path.read_bytes()
    path.write_bytes(content[: starts[2]] + b"spoilt " * 9 + b"\r\n" + content[starts[2] + 40 :])
    *good, bad = pages(Warc(kind="warc", path=str(path)))
    assert [one.place for one in good if isinstance(one, RawPage)] == ["a.warc#1", "a.warc#2"]
    assert bad == Unreadable("a.warc#3", "the archive is damaged, and not read from here (ArchiveLoadFailed)")


def test_some_docstrings_are_known_before_the_first_round() -> None:
    source = Docstrings(kind="docstrings", mathematics=("mpmath", "logging"), others=(), known=7)
    known = source.known_texts(3)
    own = {text for _, text in docstrings("mpmath")[0]}
    assert len(known) == len(set(known)) == 7
    assert set(known) <= own  # of the first package alone
    assert known == source.known_texts(3) != source.known_texts(4)
    assert (
        Docstrings(kind="docstrings").known_texts(3)
        == Docstrings(kind="docstrings", mathematics=(), known=3).known_texts(0)
        == []
    )
