"""Extraction: encodings, menus, formulas, and pages that are none."""

import json
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.config import parse
from groupwise.errors import CheckpointError, DataError
from groupwise.recall import extract as extraction
from groupwise.recall.config import RecallRecipe
from groupwise.recall.extract import decoded, extract, html_text, plain_text
from groupwise.recall.page import Page, RawPage, Unreadable
from groupwise.recall.run import run_recall
from groupwise.runs.jsonl import read_jsonl

TEXT = "The sum of the first numbers, é and 小, is written in closed form here."


def extracted(body: bytes | str, is_html: bool = False, **settings: int) -> Page | Unreadable:
    return extract(RawPage("https://a.example/1", body, is_html, "file#1"), **settings)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_encodings(encoding: str) -> None:
    named = "<meta charset=gb18030>" if encoding == "gb18030" else ""
    assert html_text(decoded(f"{named}<p>{TEXT}".encode(encoding))) == TEXT


def test_a_broken_encoding_is_counted_or_left_out() -> None:
    few = extracted(("x" * 200).encode() + b"\xff\xfe")
    assert isinstance(few, Page)
    assert few.replaced == 2
    assert extracted(b"\xff" * 100) == Unreadable("file#1", "not in the encoding it says")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"\n \t\n", "empty"),
        (b"too short", "shorter than 40 characters"),
        (b"x" * 5_000_001, "longer than 5,000,000 bytes"),
    ],
)
def test_what_is_no_page_says_why(body: bytes, reason: str) -> None:
    assert extracted(body) == Unreadable("file#1", reason)


def test_menus_and_scripts_go_and_paragraphs_stay() -> None:
    source = """<html><head><title>T</title><style>p{}</style></head><body><nav><ul><li>Home</li></ul></nav>
    <script>if (1 < 2) { x() }</script><p>One &amp; two.</p><table><tr><td>3</td><td>4</td></tr></table>
    first<br>second<div>third</div><footer>All rights</footer></body></html>"""
    assert html_text(source) == "One & two.\n3 4\nfirst\nsecond\nthird"


def test_formulas_and_braces_stay() -> None:
    source = (
        r'<p>x<sup>2</sup> {a} <script type="math/tex">\frac{1}{2}</script> '
        r'<math><semantics><mi>y</mi><annotation encoding="application/x-tex">\sqrt{y}</annotation></semantics></math> '
        r'<img class="tex" alt="a&lt;b"></p>'
    )
    assert html_text(source) == r"x^2 {a} $\frac{1}{2}$ $\sqrt{y}$ $a<b$"


def test_elements_that_nobody_closed_swallow_nothing_else() -> None:
    assert html_text("<nav><svg>menu</nav><p>text</p>") == "text"
    assert html_text("<p>one</nav></p><p>two") == "one\ntwo"


def test_control_characters_and_odd_line_ends_are_cleaned() -> None:
    assert plain_text("a\x00b\u2028c\r\n\n  d\te ") == "ab\nc\nd e"


SENTENCE = "Every even number above two seems to be the sum of two primes, which nobody has proved."
GOOD = [
    {"url": f"https://a.example/x/{n}", "text": f"{SENTENCE} {n} {' '.join(f'w{n}q{k}' for k in range(20))}"}
    for n in range(6)
]


def lines(*rows: Any) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def run(folder: Path, pages: Path, seed: bytes = b"", **source: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Figures, and what became no page."""
    (folder / "seed.jsonl").write_bytes(seed or lines(*GOOD[:3]))
    recipe = parse(RecallRecipe, {
        "directory": str(folder / "out"), "sources": {"mine": {"kind": "file", "path": str(pages), **source}},
        "begin": {"path": str(folder / "seed.jsonl")}, "annotator": "none", "rounds": {"min_score": 0.0},
    })  # fmt: skip
    facts = run_recall(recipe, lambda what, done, total: None)
    return facts, [row.fields for row in read_jsonl(folder / "out" / "dropped.jsonl") if "page" not in row.fields]


def page(text: str, url: str = "https://b.example/1") -> dict[str, str]:
    return {"url": url, "text": text}


OTHER = "<p>other words entirely, of which there are enough for a page of their own"
DROPPED: dict[str, tuple[Any, str]] = {
    "long number of a character": (page(f"<p>&#{'9' * 5000};{OTHER}"), "cannot be parsed (ValueError)"),
    "brackets": (page(OTHER, "http://[bad/x"), "no address"),
    "one bracket": (page(OTHER, "http://a]b/"), "no address"),
    "sign in host": (page(OTHER, "https://ex\u2100mple/x"), "no address"),
    "deep JSON": (b"[" * 200_000, "JSON with a number too long or brackets too deep"),
    "long number": (b'{"text": ' + b"9" * 5000 + b"}", "JSON with a number too long or brackets too deep"),
    "half a line": (b'{"text": "x', "not JSON"),
    "no UTF-8": (b'{"text": "\xff"}', "not UTF-8"),
    "endless markup": (page(OTHER + "<a b=" * 10_000), "takes too long to parse"),
    "marks": (page(OTHER + "a" + "\u0301\u0327" * 50_000), "more than 1,000 combining marks in a row"),
    "half width marks": (page(OTHER + "\uff9e\u0301" * 50_000), "more than 1,000 combining marks in a row"),
    "marks in a host": (page(OTHER, "https://a" + "\u0301\u0327" * 50_000 + "/"), "no address"),
}
READ: dict[str, Any] = {
    "marked section": page(f"<p>x<![foo[bar]]>{OTHER}"),
    "unfinished section": page(f"{OTHER} <!["),
    "half a pair in the text": page(f"{OTHER}\ud800"),
    "half a pair in the address": page(OTHER, "https://s.example/\ud800/1"),
    "no host": page(OTHER, "http:///"),
    "control character in the address": page(OTHER, "https://s.example/\x01/1"),
    "address of another type": {"url": {"a": [1]}, "text": OTHER},
}


def test_bad_records_among_good_ones_are_named_and_counted(tmp_path: Path) -> None:
    path, reasons = tmp_path / "pages.jsonl", [reason for _, reason in DROPPED.values()]
    path.write_bytes(lines(*GOOD[:3], *(bad for bad, _ in DROPPED.values()), *GOOD[3:]))
    facts, dropped = run(tmp_path, path, html=True)
    assert dropped == [{"place": f"mine/pages.jsonl#{n}", "reason": reason} for n, reason in enumerate(reasons, 4)]
    assert facts["dropped"] == Counter(reasons)
    assert (facts["pages"], facts["rounds"][-1]["kept"]) == (6 + len(DROPPED), 6)


@pytest.mark.parametrize("name", READ)
def test_an_odd_record_is_a_page(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(lines(*GOOD[:3], READ[name], *GOOD[3:]))
    facts, dropped = run(tmp_path, path, html=True)
    assert (dropped, facts["rounds"][-1]["kept"]) == ([], 7)
    assert "other words entirely" in (tmp_path / "out" / "corpus.jsonl").read_bytes().decode("utf-8")


CHARSETS = (
    "undefined", "idna", "punycode", "rot13", "base64", "zlib", "hex", "bz2", "utf-7", "unicode_escape",
    "raw_unicode_escape", "utf-16", "utf-16-le", "utf-32", "cp037", "cp500", "klingon", "oem", "aliases",
)  # fmt: skip


@pytest.mark.parametrize("charset", CHARSETS)
def test_an_encoding_that_the_page_cannot_be_in_is_utf_8(charset: str) -> None:
    body = f"<meta charset={charset}><p>{SENTENCE} \\frac é 小".encode()
    found = extract(RawPage("https://a.example/1", body, True, "file#1"))
    assert isinstance(found, Page)
    assert (found.text, found.replaced) == (f"{SENTENCE} \\frac é 小", 0)
    if not charset.startswith("utf-"):
        assert decoded(body, charset) == decoded(body) or charset.startswith("cp")


def test_the_server_names_the_encoding_before_the_page() -> None:
    body = f"<meta charset=utf-8><p>{SENTENCE} é".encode("iso-8859-2")
    assert html_text(decoded(body, "ISO-8859-2")) == f"{SENTENCE} é"
    assert html_text(decoded(f"<p>{SENTENCE} é".encode("utf-16-le"), "utf-16-le")) == f"{SENTENCE} é"
    assert html_text(decoded(f"<p>{SENTENCE} é".encode("utf-8-sig"), "latin-1")) == f"{SENTENCE} é"


@pytest.mark.parametrize("name", ["pages.parquet", "binary.parquet"])
def test_parquet_with_values_that_are_no_utf_8(tmp_path: Path, name: str) -> None:
    texts = [*(row["text"].encode() for row in GOOD), f"{SENTENCE} \xff {SENTENCE} and".encode("latin-1")]
    array = pa.array(texts, pa.binary())
    if name == "pages.parquet":
        array = pa.Array.from_buffers(pa.string(), len(texts), array.buffers())
    urls = [*(row["url"] for row in GOOD), "https://b.example/1"]
    pq.write_table(pa.table({"url": urls, "text": array}), tmp_path / name)
    facts, dropped = run(tmp_path, tmp_path / name)
    if name == "pages.parquet":
        assert dropped == [{"place": "mine/pages.parquet#7", "reason": "not UTF-8"}]
    else:  # bytes are in whatever encoding they say
        assert (facts["replaced_characters"], dropped) == (1, [])


def test_a_damaged_part_of_a_parquet_file_is_named_record_by_record(tmp_path: Path) -> None:
    path, rows = tmp_path / "pages.parquet", [{**row, "url": f"{row['url']}/{n}"} for n in range(3) for row in GOOD]
    rows = [{**row, "text": f"{row['text']} {' '.join(f'v{n}z{k}' for k in range(30))}"} for n, row in enumerate(rows)]
    columns = {key: [row[key] for row in rows] for key in ("url", "text")}
    pq.write_table(pa.table(columns), path, row_group_size=6, use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    content = bytearray(path.read_bytes())
    start, end = column.data_page_offset, column.data_page_offset + column.total_compressed_size
    content[start:end] = bytes(byte ^ 0x5A for byte in content[start:end])
    path.write_bytes(content)
    facts, dropped = run(tmp_path, path)
    why = "in a damaged part of the file"
    assert dropped == [{"place": f"mine/pages.parquet#{n}", "reason": why} for n in range(7, 13)]
    assert (facts["pages"], facts["rounds"][-1]["kept"]) == (18, 12)


def test_a_file_that_cannot_be_parsed_as_parquet_at_all(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    path.write_bytes(b"PAR1" + b"\xff" * 60 + (50).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DataError, match="no readable Parquet file"):
        run(tmp_path, path)


def test_where_every_page_is_bad_each_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(lines(page(""), b"{broken", page("short")))
    said = r"no page of 40 characters or more; .*dropped.jsonl names what they have \(3\)"
    with pytest.raises(DataError, match=said):
        run(tmp_path, path)
    named = [row.fields["reason"] for row in read_jsonl(tmp_path / "out" / "dropped.jsonl")]
    assert named == ["empty", "not JSON", "shorter than 40 characters"]


def test_seed_texts_are_cleaned_as_pages_are_and_a_bad_line_has_its_number(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(lines(*GOOD))
    facts, _ = run(tmp_path, path, seed=lines({"text": f"{SENTENCE}\r\n"}))
    assert facts["rounds"][0]["seed"] == 1
    for bad, why in (
        (b'{"text": "\xff"}', " is not UTF-8"), (b'{"text": "\\ud800"}', ": a text holds half a character"),
        (b"[" * 200_000, ""), (b"9" * 5000, ""),
    ):  # fmt: skip
        shutil.rmtree(tmp_path / "out")
        with pytest.raises(DataError, match=f"seed.jsonl, line 3{why}"):
            run(tmp_path, path, seed=lines({"text": SENTENCE}, b"", bad))


ENDLESS = {
    "tags": "<a b=" * 10_000, "short tags": "a<" * 25_000, "comments": "<!--" * 12_000, "instructions": "<?" * 25_000,
    "declarations": "<!" * 25_000, "sections": "<![CDATA[" * 6_000, "unknown sections": "<![foo[" * 8_000,
    "ends": "</" * 25_000, "doctypes": "<!DOCTYPE " * 6_000, "closed comments": "<!--x>" * 10_000,
    "closed sections": "<![CDATA[>" * 6_000, "quotes": '<a b=">"' * 8_000, "tags, long": "<a b=" * 100_000,
    "comments, long": "<!--" * 1_000_000,
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_markup_without_an_end_is_given_up_after_a_number_of_characters(name: str) -> None:
    """No clock is asked: what Python's parser reads in vain is counted, and bounded."""
    reader, source = CountingReader(1_000_000), f"{OTHER}{ENDLESS[name]}"
    with pytest.raises(extraction.EndlessError):
        reader.read(source)
    assert reader.in_vain < 1_000_000 + len(source)


@pytest.mark.parametrize("name", ["tags", "short tags", "comments"])
def test_a_small_page_of_such_markup_is_no_page(name: str) -> None:
    found = extract(RawPage("https://a.example/1", ENDLESS[name], True, "file#1"))
    assert found == Unreadable("file#1", "takes too long to parse")


class CountingReader(extraction._Reader):
    in_vain = 0

    def read(self, source: str) -> None:
        self.feed(source)
        self.close()

    def _paid(self, start: int, end: int) -> int:
        found = super()._paid(start, end)
        self.in_vain += (len(self.rawdata) - start) * (end < 0)
        return found


LONG: dict[str, Callable[[int], str]] = {
    "menus": lambda n: "<nav>" * n + "</x>" * n + "</nav>" * n,
    "menus in drawings": lambda n: "<svg>" * n + "<nav></nav>" * n + "</svg>" * n,
    "attributes": lambda n: "<a " + "b=c " * n + ">",
    "spaces": lambda n: "<a" + " " * n + ">",
    "entities": lambda n: "&" * n,
    "scripts": lambda n: "<script>" + "</scrip" * n + "</script>",
}


@pytest.mark.parametrize("name", LONG)
def test_long_markup_with_an_end_is_read(name: str) -> None:
    assert html_text(f"<p>before{LONG[name](100_000)}<p>after").endswith("after")


def test_a_few_pieces_without_an_end_leave_a_long_page_as_it_is() -> None:
    source = "".join(f"<p>if i<n and j {n}</p><!-- {n} " for n in range(20)) + f"<p>{SENTENCE}</p>" * 20_000
    text = html_text(source[:1_000_000])
    assert text.startswith("if i")
    assert text.count(SENTENCE) > 5_000


def test_letters_with_marks_stay() -> None:
    text = unicodedata.normalize("NFD", "Số nguyên tố là số tự nhiên lớn hơn một, chỉ chia hết cho một và chính nó.")
    found = extract(RawPage("https://a.example/1", text, False, "file#1"))
    assert isinstance(found, Page)
    assert found.text == text


def test_pages_that_changed_since_are_refused(tmp_path: Path) -> None:
    pages = tmp_path / "pages.jsonl"
    pages.write_bytes(lines(*GOOD))
    run(tmp_path, pages)
    run(tmp_path, pages)
    pages.write_bytes(lines(*GOOD[:4]))
    with pytest.raises(CheckpointError, match=r"sources\.mine\.path, .*pages\.jsonl, was changed .*--restart"):
        run(tmp_path, pages)
