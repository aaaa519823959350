"""Pages as they come: encodings, menus, formulas, and pages that are none."""

import pytest

from groupwise.recall.extract import ExtractConfig, decoded, extract, html_text, plain_text
from groupwise.recall.page import Page, RawPage, Unreadable

TEXT = "The sum of the first numbers, é and 小, is written in closed form here."


def extracted(body: bytes | str, is_html: bool = False, **settings: int) -> Page | Unreadable:
    return extract(RawPage("https://a.example/1", body, is_html, "file#1"), ExtractConfig(**settings))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_encodings(encoding: str) -> None:
    named = "<meta charset=gb18030>" if encoding == "gb18030" else ""
    assert html_text(decoded(f"{named}<p>{TEXT}".encode(encoding))) == TEXT


def test_a_broken_encoding_is_counted_or_left_out() -> None:
    few = extracted(("x" * 200).encode() + b"\xff\xfe")
    assert isinstance(few, Page)
    assert few.replaced == 2
    assert extracted(b"\xff" * 100) == Unreadable("file#1", "not in the encoding it says")


def test_an_unknown_encoding_is_read_as_utf_8() -> None:
    assert TEXT in html_text(decoded(f"<meta charset='klingon'><p>{TEXT}".encode()))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"\n \t\n", "empty"),
        (b"too short", "shorter than 40 characters"),
        (b"x" * 5_000_001, "longer than 5,000,000 bytes"),
    ],
)
def test_what_is_no_page_says_why(body: bytes, reason: str) -> None:
    assert extracted(body) == Unreadable("file#1", reason)


def test_menus_and_scripts_go_and_paragraphs_stay() -> None:
    source = """<html><head><title>T</title><style>p{}</style></head><body><nav><ul><li>Home</li></ul></nav>
    <script>if (1 < 2) { x() }</script><p>One &amp; two.</p><table><tr><td>3</td><td>4</td></tr></table>
    first<br>second<div>third</div><footer>All rights</footer></body></html>"""
    assert html_text(source) == "One & two.\n3 4\nfirst\nsecond\nthird"


def test_formulas_and_braces_stay() -> None:
    source = (
        r'<p>x<sup>2</sup> {a} <script type="math/tex">\frac{1}{2}</script> '
        r'<math><semantics><mi>y</mi><annotation encoding="application/x-tex">\sqrt{y}</annotation></semantics></math> '
        r'<img class="tex" alt="a&lt;b"></p>'
    )
    assert html_text(source) == r"x^2 {a} $\frac{1}{2}$ $\sqrt{y}$ $a<b$"


def test_elements_that_nobody_closed_swallow_nothing_else() -> None:
    assert html_text("<nav><svg>menu</nav><p>text</p>") == "text"
    assert html_text("<p>one</nav></p><p>two") == "one\ntwo"


def test_control_characters_and_odd_line_ends_are_cleaned() -> None:
    assert plain_text("a\x00b\u2028c\r\n\n  d\te ") == "ab\nc\nd e"
