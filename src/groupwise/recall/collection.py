"""What a round keeps, which domains it points to, and when nothing new comes any more."""

from collections import Counter
from collections.abc import Collection, Sequence, Set
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray


class Kept(NamedTuple):
    """The pages that a round collects."""

    pages: frozenset[int]
    too_long: int
    """Pages that would have been kept, and are longer than the whole budget."""
    threshold: float
    """Score of the last page that was kept; 1 where none was."""


def keep(scores: NDArray[np.float64], sizes: Sequence[int], budget: int, min_score: float) -> Kept:
    """The best pages whose sizes sum to at most the budget (0: any size), none with a lower score than `min_score`.

    Pages of one score are taken together or not at all, so that their order decides nothing. A page that is longer
    than the whole budget is passed over.
    """
    eligible = [i for i in np.argsort(-scores, kind="stable").tolist() if scores[i] >= min_score]
    fitting = [i for i in eligible if not budget or sizes[i] <= budget]
    kept: list[int] = []
    total, start = 0, 0
    while start < len(fitting):
        end = start
        while end < len(fitting) and scores[fitting[end]] == scores[fitting[start]]:
            end += 1
        total += sum(sizes[i] for i in fitting[start:end])
        if budget and total > budget:
            break
        kept += fitting[start:end]
        start = end
    threshold = float(scores[kept[-1]]) if kept else 1.0
    return Kept(frozenset(kept), len(eligible) - len(fitting), threshold)


def domain(url: str) -> str:
    """A URL's base: the host in small letters."""
    return (urlsplit(url if "//" in url else f"//{url}").hostname or url).lower()


def pattern(url: str) -> str:
    """The URL's host and first folder, which is what people say yes or no to.

    >>> pattern("https://Math.example/answers/7/one.html?page=2"), pattern("math.example/7.html")
    ('math.example/answers/', 'math.example/')
    """
    folders = urlsplit(url if "//" in url else f"//{url}").path.split("/")[1:-1]
    return f"{domain(url)}/" + (f"{folders[0]}/" if folders and folders[0] else "")


class Domain(NamedTuple):
    """A domain in a round."""

    name: str
    collected: int
    pages: int

    @property
    def share(self) -> float:
        return self.collected / self.pages


def rich_domains(domains: Sequence[str], collected: Collection[int], share: float) -> list[Domain]:
    """Domains of whose pages more than this share was collected, the largest share first.

    `domains`: that of every page.
    """
    pages, found = Counter(domains), Counter(domains[index] for index in collected)
    entries = (Domain(name, found[name], pages[name]) for name in sorted(found))
    return sorted((one for one in entries if one.share > share), key=lambda one: (-one.share, one.name))


def known_share(before: Set[int], now: Set[int]) -> float:
    """|now and before| / |now|: the share of this round's pages that the one before had; 0 where there are none."""
    return len(now & before) / len(now) if now else 0.0
