"""The page of a recall: what each round found, what pointed to more, what was left out and why."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import mean_share
from groupwise.errors import DataError
from groupwise.pages.html import render
from groupwise.pages.words import Tile
from groupwise.runs.atomic import write_file
from groupwise.runs.jsonl import read_jsonl

SHOWN = 12
"""Domains and removed paragraphs that the page shows; the files beside it have all."""


def write_recall_report(directory: Path) -> Path:
    """Write `report.html` beside `recall.json`; returns its path.

    Raises:
        DataError: there is no finished recall.
    """
    path = directory / "recall.json"
    if not path.is_file():
        raise DataError(f"{directory} holds no finished recall: there is no {path.name}")
    facts = json.loads(path.read_text("utf-8"))
    removed = _by_paragraph(row.fields for row in read_jsonl(directory / "removed.jsonl"))
    target = directory / "report.html"
    write_file(target, page(directory.resolve().name, facts, removed).encode("utf-8", errors="backslashreplace"))
    return target


def _by_paragraph(matches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first removed paragraphs, each once, with all that it has in common with the first item that it was found by.

    A paragraph that copies an item shares every run of words with it.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in matches:
        key = (one["url"], one["paragraph"])
        if key not in found:
            if len(found) == SHOWN:
                break
            found[key] = {**one, "grams": {}}
        if one["item"] == found[key]["item"]:
            found[key]["grams"].setdefault(one["why"], []).append(one["gram"])
    return [{**one, "alike": _alike(one["grams"])} for one in found.values()]


def _alike(grams: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(
        f"the {why} “{own[0]}”" + (f" and {len(own) - 1} more" if len(own) > 1 else "") for why, own in grams.items()
    )


def page(title: str, facts: Mapping[str, Any], removed: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    rounds = facts["rounds"]
    return render(
        "recall.html",
        title=title,
        description=f"{facts['pages']:,} pages, {len(rounds)} rounds, a corpus of {facts['corpus']['pages']:,} pages.",
        tiles=_tiles(facts),
        rounds=[(number, one, [(name, _share(one.get(name))) for name in ("precision", "recall")])
                for number, one in enumerate(rounds, 1)],
        groups=[(name, _found(rounds, name)) for name in ("styles", "languages") if name in rounds[-1]],
        mistaken=rounds[-1].get("mistaken", {}),
        domains=next((one["domains"][:SHOWN] for one in reversed(rounds) if one["domains"]), []),
        facts=_left_out(facts),
        planted=[(way, _share(counts)) for way, counts in facts["decontamination"].get("planted", {}).items()],
        removed=removed,
    )  # fmt: skip


def _tiles(facts: Mapping[str, Any]) -> list[Tile]:
    last = facts["rounds"][-1]
    known = Tile("known before", f"{100 * last['known_share']:.1f} %", f"of what round {len(facts['rounds'])} found")
    corpus = Tile("corpus", f"{facts['corpus']['pages']:,} pages", f"{facts['corpus']['characters']:,} characters")
    truth = [Tile(name, *_share(last[name])) for name in ("precision", "recall") if name in last]
    return [*truth, known, corpus]


def _share(counts: Sequence[int] | None) -> tuple[str, str]:
    """A share in per cent with its interval, and the counts."""
    if not counts or not counts[1]:
        return "–", ""
    share = mean_share([1.0] * counts[0] + [0.0] * (counts[1] - counts[0]))  # the Wilson interval of a proportion
    return (
        f"{100 * counts[0] / counts[1]:.1f} %",
        f"{counts[0]} of {counts[1]} [{100 * share.low:.1f}, {100 * share.high:.1f}]",
    )


def _found(rounds: Sequence[Mapping[str, Any]], group: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """By the name of a style or language, what each round found of it."""
    return [(name, [_share(one[group][name]) for one in rounds]) for name in rounds[-1][group]]


def _left_out(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value, meaning of what did not come through."""
    copies, clean = facts["copies"], facts["decontamination"]
    rows = [
        (reason, f"{count:,}", "no page was made of it; dropped.jsonl names each")
        for reason, count in facts["dropped"].items()
    ]
    rows.append(("characters replaced", f"{facts['replaced_characters']:,}", "not in the encoding of their page"))
    rows.append(("near copies", f"{copies['found']:,}", "the first page of each kind stays"))
    if "missed" in copies:
        rows.append(("copies not seen", f"{copies['missed']:,}", "true mirrors, some of them changed, that were kept"))
        rows.append(("false copies", f"{copies['false']:,}", "pages taken for a copy of another original"))
    why = ", ".join(f"{count} by {name}" for name, count in clean["why"].items()) or "none"
    rows.append(
        ("paragraphs of benchmarks", f"{clean['paragraphs']:,} of {clean['of_paragraphs']:,}", f"n-grams: {why}")
    )
    if "false" in clean:
        rows.append(("of them without a planted item", f"{clean['false']:,}", "the same words, another problem"))
    return rows
