"""What the truth about made pages says of each piece of the work; where nothing is known, only counts are given."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from groupwise.recall.collection import known_share
from groupwise.recall.page import Page


def reasons(dropped: Collection[Mapping[str, str]]) -> dict[str, int]:
    """Why pages became none, the commonest first; which address was taken is in `dropped.jsonl`."""
    found = Counter(
        "an address that came before" if "address of" in one["reason"] else one["reason"] for one in dropped
    )
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


def of_copies(pages: Sequence[Page], copies: Mapping[int, int]) -> dict[str, Any]:
    """Copies that were found, and by the truth those that were missed and pages that are none."""
    facts: dict[str, Any] = {"found": len(copies)}
    if any(page.truth and page.truth.copy_of is not None for page in pages):
        places = {page.place for page in pages}
        roots = [_root(page) for page in pages]
        mirrors = [
            number for number, page in enumerate(pages) if roots[number] != page.place and roots[number] in places
        ]
        facts["missed"] = sum(number not in copies for number in mirrors)
        facts["false"] = sum(roots[copy] != roots[original] for copy, original in copies.items())
    return facts


def _root(page: Page) -> str:
    """The place of the page that a page truly copies, or its own."""
    if page.truth is None or page.truth.copy_of is None:
        return page.place
    return f"{page.place.partition('#')[0]}#{page.truth.copy_of}"


def of_round(pages: Sequence[Page], unique: Sequence[int], before: Set[int], kept: Set[int]) -> dict[str, Any]:
    """Counts of a round, and by the truth its precision and what it found of every style."""
    facts: dict[str, Any] = {
        "kept": len(kept), "characters": sum(len(pages[number].text) for number in kept),
        "known_share": round(known_share(before, kept), 6), "lost_share": round(1 - known_share(kept, before), 6),
    }  # fmt: skip
    truths = {number: truth for number in unique if (truth := pages[number].truth)}
    if not truths:
        return facts
    right = {number for number, truth in truths.items() if truth.is_mathematics}
    judged = [number for number in kept if number in truths]
    return facts | {
        "precision": _share(sum(number in right for number in judged), len(judged)),
        "recall": _share(len(right & kept), len(right)),
        "styles": _found_by(pages, right, kept, "style"),
        "languages": _found_by(pages, right, kept, "language"),
        "mistaken": dict(sorted(Counter(truths[number].style for number in judged if number not in right).items())),
    }


def _share(part: int, whole: int) -> list[int]:
    return [part, whole]


def _found_by(pages: Sequence[Page], right: Set[int], kept: Set[int], key: str) -> dict[str, list[int]]:
    """[found, there are] by a property of the pages that are mathematics."""
    there, found = Counter[str](), Counter[str]()
    for number in right:
        name = str(getattr(pages[number].truth, key))
        there[name] += 1
        found[name] += number in kept
    return {name: [found[name], there[name]] for name in sorted(there)}


def of_removal(
    pages: Sequence[Page], kept: Set[int], removed: Sequence[Mapping[str, Any]], items: Collection[str]
) -> dict[str, Any]:
    """Paragraphs that were removed; of planted items by their way those removed, and removals without a planted item.

    What has other numbers is another problem, so its removal is a mistake as well.
    """
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
        there, gone = Counter(planted.values()), Counter(way for place, way in planted.items() if place in paragraphs)
        facts["planted"] = {way: [gone[way], there[way]] for way in sorted(there)}
        facts["false"] = len(paragraphs - planted.keys())
    return facts
