"""The report of a recall as Markdown: its rounds, what pointed to more, what was left out and why."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import mean_share
from groupwise.errors import DataError
from groupwise.runs.atomic import write_file
from groupwise.runs.jsonl import read_jsonl

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
