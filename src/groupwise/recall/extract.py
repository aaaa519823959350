"""From what a web server sent to the text that a person would read, formulas and signs kept."""

import codecs
import re
from html.parser import HTMLParser

from pydantic import Field

from groupwise.config import Section
from groupwise.recall.page import Page, RawPage, Unreadable

SKIPPED = frozenset(
    ("script", "style", "nav", "header", "footer", "aside", "form", "noscript", "svg", "button", "title")
)
BLOCKS = frozenset((
    "p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "section", "article", "pre",
    "blockquote", "dt", "dd", "hr", "main", "body",
))  # fmt: skip
VOID = frozenset(("br", "hr", "img", "meta", "link", "input", "wbr"))
TEX = "annotation"
_CHARSET = re.compile(rb"charset=[\"']?([\w-]+)", re.IGNORECASE)
REPLACEMENT = "\ufffd"


class ExtractConfig(Section):
    """What counts as a page."""

    max_bytes: int = Field(5_000_000, ge=1)
    """Longest page; longer ones are counted and named, and never parsed."""
    min_characters: int = Field(40, ge=1)
    """Shortest text of a page."""
    max_replaced: float = Field(0.02, ge=0, le=1)
    """Largest share of characters that are not in the page's encoding."""


def extract(raw: RawPage, config: ExtractConfig) -> Page | Unreadable:
    """The page's text, or why there is none."""
    if len(raw.body) > config.max_bytes:
        return Unreadable(raw.place, f"longer than {config.max_bytes:,} bytes")
    content = decoded(raw.body) if isinstance(raw.body, bytes) else raw.body
    text = html_text(content) if raw.is_html else plain_text(content)
    replaced = text.count(REPLACEMENT)
    if len(text) < config.min_characters:
        return Unreadable(raw.place, f"shorter than {config.min_characters} characters" if text else "empty")
    if replaced > config.max_replaced * len(text):
        return Unreadable(raw.place, "not in the encoding it says")
    return Page(raw.url, text, raw.place, replaced, raw.truth)


def decoded(body: bytes) -> str:
    """The characters of a page: by its byte order mark, the encoding it names, else UTF-8; others become U+FFFD."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if body.startswith(mark):
            return body.decode(name, "replace")
    named = _CHARSET.search(body[:2048])
    try:
        encoding = codecs.lookup(named[1].decode()).name if named else "utf-8"
        return body.decode(encoding, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def plain_text(text: str) -> str:
    """Lines with single blanks; characters that no text has are left out, and so are empty lines."""
    lines = ("".join(char for char in line if char.isprintable() or char.isspace()) for line in text.splitlines())
    return "\n".join(line for raw in lines if (line := " ".join(raw.split())))


def html_text(source: str) -> str:
    r"""The text of HTML: a line a block, without menus and scripts, formulas as LaTeX, raised text after ^.

    >>> html_text('<nav>Home</nav><p>x<sup>2</sup> <script type="math/tex">\\frac{1}{2}</script></p><p>two</p>')
    'x^2 $\\frac{1}{2}$\ntwo'
    """
    reader = _Reader()
    reader.feed(source)
    reader.close()
    return plain_text("".join(reader.parts))


class _Reader(HTMLParser):
    """Collects text; knows only whether it is inside something that is skipped, and whether that is a formula."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipped: list[str] = []
        """Open elements whose text is left out."""
        self._formula: list[str] = []
        """The open element whose text is LaTeX."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        is_tex = "tex" in values.get("type", "") or "tex" in values.get("encoding", "")
        if tag in ("script", TEX) and is_tex:
            self._formula.append(tag)
            self.parts.append("$")
        elif tag in SKIPPED or tag == "math":
            self._skipped.append(tag)
        elif tag == "img" and re.search(r"tex|math", values.get("class", "")) and not self._skipped:
            self.parts.append(f"${values.get('alt', '')}$")
        elif not self._skipped:
            self.parts.append("\n" if tag in BLOCKS else "^" if tag == "sup" else " " if tag in ("td", "th") else "")

    def handle_endtag(self, tag: str) -> None:
        if self._formula and self._formula[-1] == tag:
            self._formula.pop()
            self.parts.append("$")
        elif tag in self._skipped:  # a page may forget to close what is inside
            del self._skipped[len(self._skipped) - 1 - self._skipped[::-1].index(tag) :]
        elif tag in BLOCKS and not self._skipped:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._formula:
            self.parts.append(" ".join(data.split()))
        elif not self._skipped:
            self.parts.append(data.replace("\n", " "))
