"""Pages of the user's own, with everything that can be wrong about them; and the sources that need no file."""

import gc
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.recall.page import RawPage, Unreadable
from groupwise.recall.recipe import RecallRecipe, run_recall
from groupwise.recall.sources import Docstrings, PageSource, Records, Warc, Web

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
    first, *bad, last = pages(Records(path=str(path)))
    assert first == RawPage("https://a.example/x/1", TEXT, False, "pages.jsonl#1")
    assert last == RawPage("pages.jsonl#8", TEXT, False, "pages.jsonl#8")
    assert bad == [
        Unreadable("pages.jsonl#2", "not JSON"),
        Unreadable("pages.jsonl#3", "no JSON object"),
        Unreadable("pages.jsonl#4", "no text in field 'text'"),
        Unreadable("pages.jsonl#5", "not UTF-8"),
        Unreadable("pages.jsonl#7", "longer than 10,000 bytes"),
    ]


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
    named = [json.loads(line)["place"] for line in (tmp_path / "out" / "dropped.jsonl").read_text().splitlines()]
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


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    pq.write_table(pa.table({"url": ["u1", None], "text": [TEXT, None], "other": [1, 2]}), path)
    assert pages(Records(path=str(path))) == [
        RawPage("u1", TEXT, False, "pages.parquet#1"), Unreadable("pages.parquet#2", "no text in field 'text'")
    ]  # fmt: skip
    with pytest.raises(DataError, match="has no column 'body'; it has url, text, other"):
        pages(Records(path=str(path), text_field="body"))
    path.write_bytes(b"no parquet at all")
    with pytest.raises(DataError, match="no readable Parquet file"):
        pages(Records(path=str(path)))
    with pytest.raises(DataError, match="there is no file"):
        pages(Records(path=str(tmp_path / "none.jsonl")))


def test_docstrings_are_real_text_of_both_kinds() -> None:
    found = pages(Docstrings(mathematics=("mpmath",), others=("logging",)))
    by_kind: dict[bool, list[Any]] = {True: [], False: []}
    for page in found:
        assert isinstance(page, RawPage)
        assert page.truth is not None
        by_kind[page.truth.is_mathematics].append(page)
    assert len(by_kind[True]) > 100
    assert len(by_kind[False]) > 5
    assert len({page.url for page in found if isinstance(page, RawPage)}) == len(found)
    with pytest.raises(ConfigError, match="the docstrings of no_such_package cannot be read"):
        pages(Docstrings(mathematics=("no_such_package",)))


def test_modules_that_cannot_be_imported_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, broken = tmp_path / "half_here", tmp_path / "half_here" / "broken"
    broken.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "whole.py").write_text(f"def f():\n    '''{'A function of x. ' * 20}'''\n")
    (package / "missing.py").write_text("import no_such_package\n")
    (broken / "__init__.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = pages(Docstrings(mathematics=("half_here",), others=()))
    named = {one.place: one.reason for one in found if isinstance(one, Unreadable)}
    why = "a module that cannot be imported"
    assert named == {
        "half_here.broken": f"{why} (ZeroDivisionError: division by zero)",
        "half_here.missing": f"{why} (ModuleNotFoundError: No module named 'no_such_package')",
    }
    assert [one.place for one in found if isinstance(one, RawPage)] == ["half_here.whole.f"]


def test_a_source_without_texts_of_its_own_needs_a_seed() -> None:
    with pytest.raises(ConfigError, match=r"begin\.path is empty, and a source of kind docstrings"):
        Docstrings().seed_texts(0, 3)
    assert len(Web().seed_texts(0, 3)) == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the writer closes no file of its own
def test_warc_archives(tmp_path: Path) -> None:
    warcio = pytest.importorskip("warcio")
    assert warcio
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    path = tmp_path / "a.warc.gz"
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, kind in enumerate(("text/html", "image/png", "text/html; charset=utf-8")):
            headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
            body = BytesIO(b"<p>" + b"x" * (50_000 if number == 2 else 10))
            record = writer.create_warc_record(f"http://a.example/{number}", "response", body, http_headers=headers)
            writer.write_record(record)
    first, second = pages(Warc(path=str(path)))
    assert isinstance(first, RawPage)
    assert (first.url, first.body) == ("http://a.example/0", b"<p>xxxxxxxxxx")
    assert isinstance(second, RawPage)
    assert len(second.body) > 10_000
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="no readable WARC file"):
        pages(Warc(path=str(path)))
    del writer, record
    gc.collect()
