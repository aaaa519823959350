"""A made web, of which it is known what is mathematics, as a world to test `groupwise pipeline recipes/recall.toml` in.

A page is a pure function of seed and index, so any part of the web can be made at any time.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from pydantic import Field

from groupwise.randomness import Draw
from groupwise.recall.page import RawPage, Truth
from groupwise.recall.sources import PageSource
from groupwise.tasks.arithmetic import Arithmetic, ArithmeticConfig
from groupwise.types import Problem
from web_pages import KINDS, PLACES, SEEN, STYLES, THINGS, language_of
from word_problems import WordProblems, WordProblemsConfig

UNSEEN = tuple(style for style in STYLES if style not in SEEN)
MATHEMATICAL, MIXED = 0.04, 0.08
"""Shares of domains that are about mathematics, and of general ones with one mathematical section."""
OF_MATHEMATICS, OF_SECTION = 0.65, 0.3
"""Shares of a domain's pages that are mathematics, in the two."""


@dataclass(frozen=True, slots=True)
class Site:
    """One domain."""

    host: str
    title: str
    sections: tuple[tuple[str, str, float], ...]
    layout: int

    def section(self, draw: Draw) -> tuple[str, str]:
        path, style, _ = draw.weighted(self.sections, [share for *_, share in self.sections])
        return path, style


def site(seed: int, index: int, num_domains: int) -> Site:
    """The domain of this index.

    Domains about mathematics come first: each holds one style that seeds know and two that they do not, which is how
    those can be found from these. Then come general domains with one section of one style, then all others.
    """
    draw = Draw("web site", seed, index)
    name = f"{draw.choice(THINGS)}-{draw.choice(PLACES)}-{index}".replace(" ", "-").replace("the-", "").lower()
    first, second = round(MATHEMATICAL * num_domains) or 1, round((MATHEMATICAL + MIXED) * num_domains) or 2
    if index < first:
        styles = (SEEN[index % len(SEEN)], UNSEEN[index % len(UNSEEN)], UNSEEN[(index + 1) % len(UNSEEN)])
        own = [(path_of(draw, style), style, OF_MATHEMATICS / 3) for style in styles]
    elif index < second:
        style = tuple(STYLES)[(index - first) % len(STYLES)]
        own = [(path_of(draw, style), style, OF_SECTION)]
    else:
        own = []
    kinds = draw.shuffled(tuple(KINDS))[: draw.integer(2, 4)]
    rest = (1 - sum(share for *_, share in own)) / len(kinds)
    sections = (*own, *((path_of(draw, kind), kind, rest) for kind in kinds))
    return Site(f"www.{name}.example", name.replace("-", " ").title(), sections, draw.integer(0, 2))


def path_of(draw: Draw, style: str) -> str:
    """A section's path; no two sites need call the same thing alike."""
    return f"{draw.choice(('pages', 'a', 'archive', 'read', 'x'))}{draw.integer(1, 99)}-{style[:1]}"


def as_html(site: Site, title: str, paragraphs: list[str]) -> str:
    """A page in the site's layout: a menu, the paragraphs, and what stands on every page of the site."""
    links = "".join(f'<li><a href="/{path}/">{path}</a></li>' for path, *_ in site.sections)
    texts = [html.escape(paragraph, quote=False) for paragraph in paragraphs]
    body = {
        0: lambda: "".join(f"<p>{text}</p>" for text in texts),
        1: lambda: "<table>" + "".join(f"<tr><td>{text}</td></tr>" for text in texts) + "</table>",
        2: lambda: "<div>" + "<br>".join(texts) + "</div>",
    }[site.layout]()
    return (
        f"<!doctype html><html><head><title>{title}</title><style>p {{ margin: 0 }}</style>"
        f"<script>var page = 'x'; if (1 < 2) {{ track(page) }}</script></head><body><nav><ul>{links}</ul></nav>"
        f"<p>Welcome to {site.title}.</p>{body}<footer>Copyright {site.title}.</footer></body></html>"
    )


MIRRORED = 0.06
"""Share of pages that copy an earlier one of another domain, some with a line changed."""
PLANTED_WAYS = ("exact", "reformatted", "renumbered", "paraphrased")
"""Forms in which a page holds an item of a benchmark."""


class Planted(NamedTuple):
    """A benchmark's item on a page."""

    way: str
    item: str
    text: str


class MadeWeb(PageSource):
    """A made web, of which the truth is known: six styles of mathematics among everything else."""

    kind: str = "worlds/web.py:MadeWeb"
    """This class."""
    num_pages: int = Field(20_000, ge=1)
    """Pages; about one in twenty is mathematics."""
    num_domains: int = Field(300, ge=4)
    """Domains."""
    planted: float = Field(0.05, ge=0, le=1)
    """Share of mathematical pages that hold an item of a benchmark, exactly, reformatted, with other numbers or in
    other words."""

    def pages(self, seed: int, max_bytes: int) -> Iterator[RawPage]:
        sites = [site(seed, index, self.num_domains) for index in range(self.num_domains)]
        return (self._page(seed, sites, index) for index in range(self.num_pages))

    def seed_texts(self, seed: int, number: int) -> list[str]:
        """Texts of the styles that a seed knows; none of them is on the web itself."""
        texts = []
        for index in range(number):
            draw = Draw("web seed", seed, index)
            title = site(draw.integer(0, 10**6), index, 100).title  # without the welcome, its absence would mark a seed
            texts.append("\n".join([f"Welcome to {title}.", *STYLES[SEEN[index % len(SEEN)]](draw)]))
        return texts

    def _page(self, seed: int, sites: list[Site], index: int) -> RawPage:
        draw = Draw("web page", seed, index)
        here = sites[index % len(sites)]
        if index > len(sites) and draw.uniform() < MIRRORED:
            return self._copy(seed, sites, draw, here, index)
        path, style = here.section(draw)
        paragraphs, planted = self._paragraphs(draw, style)
        return _finished(here, path, index, style, paragraphs, planted=planted)

    def _copy(self, seed: int, sites: list[Site], draw: Draw, here: Site, index: int) -> RawPage:
        original = draw.integer(0, index - 1)
        source = Draw("web page", seed, original)
        if original > len(sites) and source.uniform() < MIRRORED:
            original %= len(sites)  # a page of the first round, which never copies
            source = Draw("web page", seed, original)
        path, style = sites[original % len(sites)].section(source)
        paragraphs, planted = self._paragraphs(source, style)
        if draw.uniform() < 0.5:
            paragraphs = [*paragraphs, f"Found on another site, kept here since {draw.integer(2001, 2024)}."]
        return _finished(here, path, index, style, paragraphs, original, planted)

    def _paragraphs(self, draw: Draw, style: str) -> tuple[list[str], tuple[Planted, ...]]:
        if style not in STYLES:
            return KINDS[style](draw), ()
        paragraphs = STYLES[style](draw)
        if draw.uniform() >= self.planted:
            return paragraphs, ()
        one = plant(draw, draw.choice(PLANTED_WAYS))
        place = draw.integer(0, len(paragraphs))
        return [*paragraphs[:place], one.text, *paragraphs[place:]], (one,)


def _finished(
    here: Site, path: str, index: int, style: str, paragraphs: list[str], copy_of: int | None = None,
    planted: tuple[Planted, ...] = (),
) -> RawPage:  # fmt: skip
    url = f"https://{here.host}/{path}/{index}.html"
    language = "zh" if style == "chinese" else language_of(style)
    truth = Truth(style, style in STYLES, language, copy_of, [tuple(item) for item in planted])
    return RawPage(url, as_html(here, f"{here.title} {index}", paragraphs), True, f"web#{index}", truth)


def plant(draw: Draw, way: str) -> Planted:
    """An item of the test split in one of the ways; a renumbered one is another problem and no leak."""
    problem = draw.choice(_benchmark()[draw.integer(0, 1)])
    question, answer = problem.question, problem.reference
    match way:
        case "exact":
            text = f"{question} The answer is {answer}."
        case "reformatted":
            spaced = question.replace(" × ", "*").replace(". ", ".  ").upper()
            text = f"{draw.integer(1, 40)}) {spaced} -- ANSWER: {answer}"
        case "renumbered":
            numbers = "".join(str((int(char) + 3) % 9 + 1) if char.isdigit() else char for char in question)
            text = f"{numbers} Try it yourself."
        case _:
            text = paraphrased(question, answer)
    return Planted(way, question, text)


@cache
def _benchmark() -> tuple[Sequence[Problem], Sequence[Problem]]:
    stories = WordProblems(WordProblemsConfig(kind="word_problems")).problems("test")
    products = Arithmetic(ArithmeticConfig(kind="arithmetic")).problems("test")
    return products, [problem for problem in stories if problem.language == "en"]


def paraphrased(question: str, answer: str) -> str:
    """The same problem in other words."""
    if question.startswith("What is"):
        left, right = question.removeprefix("What is ").removesuffix("?").split(" × ")
        return f"Take {left} and multiply it by {right}: that makes {answer}."
    swaps = {
        "How many": "What number of",
        "has": "owns",
        "gives": "hands over",
        "dollars": "coins",
        "There are": "We see",
    }
    for old, new in swaps.items():
        question = question.replace(old, new)
    return f"{question} Result: {answer}."
