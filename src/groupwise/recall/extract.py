"""Extraction: from the bytes that a web server sent to the text that a person would read, formulas and signs kept."""

import codecs
import re
import unicodedata
from collections import Counter
from html.parser import HTMLParser

from groupwise.recall.page import Page, RawPage, Unreadable, pattern

SKIPPED = frozenset(
    ("script", "style", "nav", "header", "footer", "aside", "form", "noscript", "svg", "button", "title")
)
BLOCKS = frozenset((
    "p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "section", "article", "pre",
    "blockquote", "dt", "dd", "hr", "main", "body",
))  # fmt: skip
TEX = "annotation"
MIN_CHARACTERS = 40
"""Shortest text of a page."""
_CHARSET = re.compile(rb"charset=[\"']?([\w-]+)", re.IGNORECASE)
_OF_PYTHON_ALONE = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"))
REPLACEMENT = "\ufffd"
MAX_BYTES = 5_000_000
MAX_REPLACED = 0.02
IN_VAIN = 20_000_000
"""Characters of unterminated markup that are scanned before a page counts as endless; ten times its length is added.
A count instead of a time, so that every machine reads the same pages."""
MARKS = 1000


class EndlessError(ValueError):
    """HTML whose time to parse grows with the square of its length."""


def extract(raw: RawPage, min_characters: int = MIN_CHARACTERS) -> Page | Unreadable:
    """Return the page's text, or why there is none: nothing that a page does to its reader is an error."""
    if len(raw.body) > MAX_BYTES:
        return Unreadable(raw.place, f"longer than {MAX_BYTES:,} bytes")
    url = raw.url.encode("utf-8", "backslashreplace").decode()
    try:
        try:
            is_address = _marks_in_a_row(url) <= MARKS and bool(pattern(url))
        except ValueError:
            is_address = False
        if not is_address:
            return Unreadable(raw.place, "no address")
        content = decoded(raw.body, raw.charset) if isinstance(raw.body, bytes) else raw.body
        text = html_text(content) if raw.is_html else plain_text(content)
        num_marks = _marks_in_a_row(text)
    except EndlessError:
        return Unreadable(raw.place, "takes too long to parse")
    except Exception as error:  # whatever the parsers of others raise
        return Unreadable(raw.place, f"cannot be parsed ({type(error).__name__})")
    replaced = text.count(REPLACEMENT)
    if len(text) < min_characters:
        return Unreadable(raw.place, f"shorter than {min_characters} characters" if text else "empty")
    if replaced > MAX_REPLACED * len(text):
        return Unreadable(raw.place, "not in the encoding it says")
    if num_marks > MARKS:
        return Unreadable(raw.place, f"more than {MARKS:,} combining marks in a row")
    return Page(url, text, raw.place, replaced, raw.truth)


def _marks_in_a_row(text: str) -> int:
    if text.isascii():
        return 0
    marks = "".join(char for char in set(text) if unicodedata.combining(unicodedata.normalize("NFKC", char)[0]))
    runs = re.finditer(f"[{re.escape(marks)}]+", text) if marks else ()
    return max((run.end() - run.start() for run in runs), default=0)


def decoded(body: bytes, charset: str = "") -> str:
    """Decode a page by its byte order mark, its server's or its own encoding, or UTF-8; other bytes become U+FFFD."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if body.startswith(mark):
            return body.decode(name, "replace")
    named = _CHARSET.search(body[:2048])
    # a page that names its encoding in ASCII is not in UTF-16, whatever it says: HTML's standard reads it as UTF-8, too
    inside = _encoding(named[1].decode(), named[0]) if named else ""
    return body.decode(_encoding(charset) or inside or "utf-8", "replace")


def charset_in(content_type: str) -> str:
    """Return the encoding that a server names, or an empty text.

    >>> charset_in("text/html; charset=ISO-8859-1"), charset_in("text/html")
    ('ISO-8859-1', '')
    """
    named = _CHARSET.search(content_type.encode("utf-8", "replace"))
    return named[1].decode() if named else ""


def _encoding(name: str, sample: bytes = b"") -> str:
    try:
        encoding = codecs.lookup(name).name
        read = (sample or b"any").decode(encoding, "replace")
    except (LookupError, ValueError):  # no encoding, or none of text
        return ""
    is_other = encoding in _OF_PYTHON_ALONE or (sample and read != sample.decode("ascii"))
    return "" if is_other else encoding


def plain_text(text: str) -> str:
    """Normalise lines to single blanks; unprintable characters and empty lines are left out."""
    lines = ("".join(char for char in line if char.isprintable() or char.isspace()) for line in text.splitlines())
    return "\n".join(line for raw in lines if (line := " ".join(raw.split())))


def html_text(source: str) -> str:
    r"""Return the text of HTML: a line a block, no menus and scripts, formulas as LaTeX, ^ before raised text.

    >>> html_text('<nav>Home</nav><p>x<sup>2</sup> <script type="math/tex">\\frac{1}{2}</script></p><p>two</p>')
    'x^2 $\\frac{1}{2}$\ntwo'
    """
    reader = _Reader(IN_VAIN + 10 * len(source))
    reader.feed(source)
    reader.close()
    return plain_text("".join(reader.parts))


class _Reader(HTMLParser):
    """Collect text outside skipped elements, and formulas."""

    def __init__(self, in_vain: int) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipped: list[str] = []
        self._open = Counter[str]()
        self._in_vain = in_vain
        """Characters of unterminated markup that may still be scanned."""
        self._formula: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        is_tex = "tex" in values.get("type", "") or "tex" in values.get("encoding", "")
        if tag in ("script", TEX) and is_tex:
            self._formula.append(tag)
            self.parts.append("$")
        elif tag in SKIPPED or tag == "math":
            self._skipped.append(tag)
            self._open[tag] += 1
        elif tag == "img" and re.search(r"tex|math", values.get("class", "")) and not self._skipped:
            self.parts.append(f"${values.get('alt', '')}$")
        elif not self._skipped:
            self.parts.append("\n" if tag in BLOCKS else "^" if tag == "sup" else " " if tag in ("td", "th") else "")

    def handle_endtag(self, tag: str) -> None:
        if self._formula and self._formula[-1] == tag:
            self._formula.pop()
            self.parts.append("$")
        elif self._open[tag]:  # close the last element of this name, and what the page forgot to close inside it
            closed = ""
            while closed != tag:
                closed = self._skipped.pop()
                self._open[closed] -= 1
        elif tag in BLOCKS and not self._skipped:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._formula:
            self.parts.append(" ".join(data.split()))
        elif not self._skipped:
            self.parts.append(data.replace("\n", " "))

    # Python's parser scans for the end of a piece of markup from its start to the end of the page, and where there is
    # none it takes a few characters for text and scans again. The characters are counted here.
    def parse_starttag(self, i: int) -> int:
        return self._paid(i, super().parse_starttag(i))

    def parse_endtag(self, i: int) -> int:
        return self._paid(i, super().parse_endtag(i))

    def parse_pi(self, i: int) -> int:
        return self._paid(i, super().parse_pi(i))

    def parse_comment(self, i: int, report: bool = True) -> int:
        return self._paid(i, super().parse_comment(i, report))

    def parse_html_declaration(self, i: int) -> int:
        try:
            return self._paid(i, super().parse_html_declaration(i))
        except AssertionError:  # `<![` and no word that Python knows: HTML's standard reads a comment up to the next >
            return self._paid(i, self.parse_bogus_comment(i))

    def _paid(self, start: int, end: int) -> int:
        if end < 0:
            self._in_vain -= len(self.rawdata) - start
            if self._in_vain < 0:
                raise EndlessError
        return end
