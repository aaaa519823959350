"""The sites of the made web: which domain has which sections, and how a page of it looks as HTML."""

import html
from dataclasses import dataclass

from groupwise.randomness import Draw
from groupwise.tasks.web.mathematics import SEEN, STYLES
from groupwise.tasks.web.others import KINDS, PLACES, THINGS

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
    """Path, style or kind of its pages, and its share of the domain's pages."""
    layout: int
    """Which of the ways to write a page."""

    def section(self, draw: Draw) -> tuple[str, str]:
        """Path and style of a random page."""
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
