"""The made web itself: `page` is a pure function of seed and index, so any part of it can be made at any time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import Arithmetic, ArithmeticConfig
from groupwise.tasks.web.mathematics import SEEN, STYLES, language_of
from groupwise.tasks.web.others import KINDS
from groupwise.tasks.web.sites import Site, as_html, site
from groupwise.tasks.word_problems import WordProblems, WordProblemsConfig
from groupwise.types import Problem

MIRRORED = 0.06
"""Share of pages that copy an earlier one of another domain, some with a line changed."""
PLANTED_WAYS = ("exact", "reformatted", "renumbered", "paraphrased")
"""How an item of a benchmark stands on a page."""


class Planted(NamedTuple):
    """A benchmark's item on a page."""

    way: str
    """One of `PLANTED_WAYS`."""
    item: str
    """The item's question, as the benchmark has it."""
    text: str
    """The paragraph that holds it."""


@dataclass(frozen=True, slots=True)
class MadePage:
    """A page with the truth about it."""

    url: str
    html: str
    style: str
    """A style of mathematics, or a kind of other page."""
    language: str
    copy_of: int | None = None
    """Index of the page that it copies."""
    planted: tuple[Planted, ...] = ()

    @property
    def is_mathematics(self) -> bool:
        return self.style in STYLES


@dataclass(frozen=True, slots=True)
class MadeWeb:
    """How large the web is, and how often a mathematical page holds an item of a benchmark."""

    num_pages: int
    num_domains: int
    planted: float
    seed: int

    def pages(self) -> Iterator[MadePage]:
        """All pages in order."""
        sites = [site(self.seed, index, self.num_domains) for index in range(self.num_domains)]
        return (self._page(sites, index) for index in range(self.num_pages))

    def _page(self, sites: list[Site], index: int) -> MadePage:
        draw = Draw("web page", self.seed, index)
        here = sites[index % len(sites)]
        if index > len(sites) and draw.uniform() < MIRRORED:
            return self._copy(sites, draw, here, index)
        path, style = here.section(draw)
        paragraphs, planted = self._paragraphs(draw, style)
        return _finished(here, path, index, style, paragraphs, planted=planted)

    def _copy(self, sites: list[Site], draw: Draw, here: Site, index: int) -> MadePage:
        """A mirror of an original page in a section of its own kind of this domain."""
        original = draw.integer(0, index - 1)
        source = Draw("web page", self.seed, original)
        if original > len(sites) and source.uniform() < MIRRORED:
            original %= len(sites)  # a page of the first round, which never copies
            source = Draw("web page", self.seed, original)
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
) -> MadePage:  # fmt: skip
    url = f"https://{here.host}/{path}/{index}.html"
    language = "zh" if style == "chinese" else language_of(style)
    return MadePage(url, as_html(here, f"{here.title} {index}", paragraphs), style, language, copy_of, planted)


def seed_texts(seed: int, number: int) -> list[str]:
    """Texts to begin with, of the styles that a seed knows; none of them is on the web itself."""
    return ["\n".join(_seed_text(Draw("web seed", seed, index), index)) for index in range(number)]


def _seed_text(draw: Draw, index: int) -> list[str]:
    """As on the web, with what stands on every page of a site: else its absence would mark a seed."""
    return [f"Welcome to {site(draw.integer(0, 10**6), index, 100).title}.", *STYLES[SEEN[index % len(SEEN)]](draw)]


def plant(draw: Draw, way: str) -> Planted:
    """An item of the test split in one of the ways; a renumbered one is another problem and no leak."""
    problem = draw.choice(_benchmark()[draw.integer(0, 1)])
    question = problem.question
    return Planted(way, question, _written(draw, way, question, problem.reference))


@cache
def _benchmark() -> tuple[Sequence[Problem], Sequence[Problem]]:
    """The test splits that the embedded tasks have by default: products, and word problems in English."""
    stories = WordProblems(WordProblemsConfig(kind="word_problems")).problems("test")
    products = Arithmetic(ArithmeticConfig(kind="arithmetic")).problems("test")
    return products, [problem for problem in stories if problem.language == "en"]


def _written(draw: Draw, way: str, question: str, answer: str) -> str:
    if way == "exact":
        return f"{question} The answer is {answer}."
    if way == "reformatted":
        spaced = question.replace(" × ", "*").replace(". ", ".  ").upper()
        return f"{draw.integer(1, 40)}) {spaced} -- ANSWER: {answer}"
    if way == "renumbered":
        numbers = "".join(str((int(char) + 3) % 9 + 1) if char.isdigit() else char for char in question)
        return f"{numbers} Try it yourself."
    return paraphrased(question, answer)


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
