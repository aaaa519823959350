"""A page: as a source gives it, as text, its address; and figures by the truth about made pages.

Where the truth is unknown, only counts are given.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from groupwise.algorithms.statistics import mean_share
from groupwise.errors import DataError
from groupwise.runs.atomic import write_file
from groupwise.runs.jsonl import read_jsonl


class Truth(NamedTuple):
    """Facts about a page of a made or chosen source that the classifier never sees."""

    style: str
    is_mathematics: bool
    language: str = "en"
    copy_of: int | None = None
    planted: Sequence[Sequence[str]] = ()


class RawPage(NamedTuple):
    """A page as its source has it."""

    url: str
    body: bytes | str
    is_html: bool
    place: str
    truth: Truth | None = None
    charset: str = ""

    def placed(self, source: str) -> Self:
        place = f"{source}/{self.place}"
        return self._replace(place=place, url=self.url if self.url != self.place else place)


class Unreadable(NamedTuple):
    """Something in a source that is no readable page."""

    place: str
    reason: str

    def placed(self, source: str) -> Self:
        return self._replace(place=f"{source}/{self.place}")


@dataclass(frozen=True, slots=True)
class Page:
    """A page as text."""

    url: str
    text: str
    place: str
    replaced: int = 0
    truth: Truth | None = None

    @property
    def paragraphs(self) -> list[str]:
        return self.text.split("\n")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"truth": self.truth and self.truth._asdict()}

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        values = {field.name: row[field.name] for field in fields(cls)}
        return cls(**values | {"truth": Truth(**row["truth"]) if row["truth"] else None})


def domain(url: str) -> str:
    """Return the host of a URL in small letters."""
    return (urlsplit(url if "//" in url else f"//{url}").hostname or url).lower()


def pattern(url: str) -> str:
    """Return the URL's host and first folder, which is what people annotate with yes or no.

    >>> pattern("https://Math.example/answers/7/one.html?page=2"), pattern("math.example/7.html")
    ('math.example/answers/', 'math.example/')
    """
    folders = urlsplit(url if "//" in url else f"//{url}").path.split("/")[1:-1]
    return f"{domain(url)}/" + (f"{folders[0]}/" if folders and folders[0] else "")


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return the content of a JSON file; characters that UTF-8 cannot hold are escaped."""
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8", errors="backslashreplace")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, whole or not at all."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(path, lines.encode("utf-8", errors="backslashreplace"))


def reasons(dropped: Collection[Mapping[str, str]]) -> dict[str, int]:
    """Count the reasons why pages were dropped, the commonest first; `dropped.jsonl` has the addresses."""
    counts = Counter(
        "an address that came before" if "address of" in row["reason"] else row["reason"] for row in dropped
    )
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def of_copies(pages: Sequence[Page], copies: Mapping[int, int]) -> dict[str, Any]:
    """Count the copies that were found and, by the truth, those that were missed and pages that are no copies."""
    facts: dict[str, Any] = {"found": len(copies)}
    if any(page.truth and page.truth.copy_of is not None for page in pages):
        places = {page.place for page in pages}
        originals = [
            page.place
            if page.truth is None or page.truth.copy_of is None
            else f"{page.place.partition('#')[0]}#{page.truth.copy_of}"
            for page in pages
        ]
        mirrors = [n for n, page in enumerate(pages) if originals[n] != page.place and originals[n] in places]
        facts["missed"] = sum(number not in copies for number in mirrors)
        facts["false"] = sum(originals[copy] != originals[original] for copy, original in copies.items())
    return facts


def known_share(before: Set[int], now: Set[int]) -> float:
    """Return |now and before| / |now|: the share of a round's pages that the round before had; 0 if there are none."""
    return len(now & before) / len(now) if now else 0.0


def of_round(pages: Sequence[Page], unique: Sequence[int], before: Set[int], kept: Set[int]) -> dict[str, Any]:
    """Count the pages of a round; by the truth, add its precision and recall, by style and language."""
    facts: dict[str, Any] = {
        "kept": len(kept), "characters": sum(len(pages[number].text) for number in kept),
        "known_share": round(known_share(before, kept), 6), "lost_share": round(1 - known_share(kept, before), 6),
    }  # fmt: skip
    truths = {number: truth for number in unique if (truth := pages[number].truth)}
    if not truths:
        return facts
    right = {number for number, truth in truths.items() if truth.is_mathematics}
    judged = [number for number in kept if number in truths]
    facts["precision"] = [sum(number in right for number in judged), len(judged)]
    facts["recall"] = [len(right & kept), len(right)]
    for key in ("style", "language"):
        total = Counter(str(getattr(truths[number], key)) for number in right)
        found = Counter(str(getattr(truths[number], key)) for number in right & kept)
        facts[f"{key}s"] = {name: [found[name], total[name]] for name in sorted(total)}
    mistaken = Counter(truths[number].style for number in judged if number not in right)
    return facts | {"mistaken": dict(sorted(mistaken.items()))}


def of_removal(
    pages: Sequence[Page], kept: Set[int], removed: Sequence[Mapping[str, Any]], items: Collection[str]
) -> dict[str, Any]:
    """Count removed paragraphs; of planted items, those removed by their way, and removals without a planted item."""
    paragraphs = {(row["url"], row["paragraph"]) for row in removed}
    facts: dict[str, Any] = {
        "items": len(items), "paragraphs": len(paragraphs), "pages": len({url for url, _ in paragraphs}),
        "why": dict(sorted(Counter(row["why"] for row in removed).items())),
        "of_paragraphs": sum(len(pages[number].paragraphs) for number in kept),
    }  # fmt: skip
    known, planted = set(items), dict[tuple[str, str], str]()
    for number in kept:
        page = pages[number]
        for way, item, text in page.truth.planted if page.truth else ():
            if item in known:
                planted[page.url, " ".join(text.split())] = way  # as extraction leaves it
    if planted:
        total = Counter(planted.values())
        gone = Counter(way for place, way in planted.items() if place in paragraphs)
        facts["planted"] = {way: [gone[way], total[way]] for way in sorted(total)}
        facts["false"] = len(paragraphs - planted.keys())
    return facts


SHOWN = 12


def write_recall_report(directory: Path) -> Path:
    """Write `report.md` beside `recall.json`; return its path."""
    path = directory / "recall.json"
    if not path.is_file():
        raise DataError(f"{directory} holds no finished recall: there is no {path.name}")
    facts = json.loads(path.read_text("utf-8"))
    rounds, corpus, copies, clean = facts["rounds"], facts["corpus"], facts["copies"], facts["decontamination"]
    names = [f"round {number}" for number in range(1, len(rounds) + 1)]
    counts = ("kept", "too_long", "seed", "asked", "yes", "grown")
    figures = {name.replace("_", " "): [f"{each[name]:,}" for each in rounds] for name in counts}
    for name in ("known_share", "lost_share"):
        figures[name.replace("_", " ")] = [f"{100 * each[name]:.1f} %" for each in rounds]
    figures["rich domains"] = [f"{len(each['domains']):,}" for each in rounds]
    for name in ("precision", "recall"):
        figures[name] = [_share(each.get(name)) for each in rounds]
    left_out = {
        **{reason: f"{count:,} pages; dropped.jsonl names each" for reason, count in facts["dropped"].items()},
        "characters replaced": f"{facts['replaced_characters']:,}, not in the encoding of their page",
        "near copies": f"{copies['found']:,}; the first page of each kind stays",
        "paragraphs of benchmarks": f"{clean['paragraphs']:,} of {clean['of_paragraphs']:,}: "
        + (", ".join(f"{count} by {why}" for why, count in clean["why"].items()) or "none"),
    }
    if "missed" in copies:
        left_out["copies not seen"] = f"{copies['missed']:,} true mirrors were kept"
        left_out["false copies"] = f"{copies['false']:,} pages were taken for a copy of another original"
    if "false" in clean:
        left_out["of the paragraphs without a planted item"] = f"{clean['false']:,}"
    parts = [
        f"# {_cell(directory.resolve().name)}\n\n{facts['pages']:,} pages, {len(rounds)} rounds, a corpus of "
        f"{corpus['pages']:,} pages and {corpus['characters']:,} characters. Intervals are 95 % Wilson intervals.\n",
        _table("Rounds", names, [[name, *values] for name, values in figures.items()]),
    ]
    for group in ("styles", "languages"):
        rows = [[name, *(_share(each[group][name]) for each in rounds)] for name in rounds[-1].get(group, ())]
        parts.append(_table(f"Found, by {group[:-1]}", names, rows))
    domains: list[Any] = next((each["domains"][:SHOWN] for each in reversed(rounds) if each["domains"]), [])
    planted = clean.get("planted", {})
    parts += [
        _table("Taken for mathematics by mistake", ["pages"], rounds[-1].get("mistaken", {}).items()),
        _table("Richest domains", ["kept", "pages"], domains),
        _table("Left out", ["count"], left_out.items()),
        _table("Planted items of benchmarks, removed", ["share"], [(way, _share(planted[way])) for way in planted]),
        _removed(directory / "removed.jsonl"),
    ]
    target = directory / "report.md"
    write_file(target, "\n".join(filter(None, parts)).encode("utf-8", errors="backslashreplace"))
    return target


def _removed(path: Path) -> str:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for match in (row.fields for row in read_jsonl(path)):
        key = (match["url"], match["paragraph"])
        if key not in found and len(found) == SHOWN:
            break
        entry = found.setdefault(key, {**match, "grams": []})
        if match["item"] == entry["item"]:  # a copy of an item shares every run of words with it
            entry["grams"].append(f"{match['why']} “{match['gram']}”")
    rows = [
        (entry["url"], entry["paragraph"], entry["item"],
         entry["grams"][0] + (f" and {len(entry['grams']) - 1} more" if len(entry["grams"]) > 1 else ""))
        for entry in found.values()
    ]  # fmt: skip
    return _table("Removed paragraphs", ["paragraph", "a benchmark has", "alike"], rows)


def _share(counts: Sequence[int] | None) -> str:
    if not counts or not counts[1]:
        return "–"
    share = mean_share([1.0] * counts[0] + [0.0] * (counts[1] - counts[0]))  # the Wilson interval of a proportion
    interval = f"[{100 * share.low:.1f}, {100 * share.high:.1f}]"
    return f"{100 * counts[0] / counts[1]:.1f} % {interval}, {counts[0]} of {counts[1]}"


def _table(title: str, columns: Sequence[str], rows: Any) -> str:
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if not lines:
        return ""
    head = f"|  | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}"
    return "\n".join([f"## {title}\n", head, *lines, ""])


def _cell(value: object) -> str:
    line = " ".join(str(value).replace("_", " ").split())
    for character in "\\`*|[]~":
        line = line.replace(character, f"\\{character}")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
