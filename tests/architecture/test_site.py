"""The documentation: pages that come from code are current, links lead somewhere, and names are those there are."""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import groupwise

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?P<fence>```+)[^\n]*\n.*?^(?P=fence)$", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return BLOCK.sub("", text)


@pytest.fixture(scope="session")
def documents() -> dict[Path, str]:
    """Every Markdown page for readers, by its place."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {path: path.read_text(encoding="utf-8") for path in sorted(files)}


@pytest.fixture(scope="session")
def of_docs() -> Callable[[str], ModuleType]:
    """A module of the folder docs, which is no package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return load


Documents = dict[Path, str]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:tests|benchmarks|examples|docs|fuzz|recipes)/[\w./-]+)(?:::[\w\[\].-]+)?`")


@pytest.mark.parametrize("name", ["recipe", "commands", "errors", "metrics", "api", "files"])
def test_a_page_from_code_is_what_would_be_written(of_docs: Callable[[str], ModuleType], name: str) -> None:
    written, today = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), of_docs("generate").PAGES[name]()
    assert written == today, "run `python docs/generate.py`"


def test_every_page_is_in_the_contents_with_a_title_and_a_beginning(
    of_docs: Callable[[str], ModuleType], documents: Documents
) -> None:
    pages = of_docs("contents").pages()
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs).with_suffix("")) for path in documents if path.is_relative_to(docs)}
    assert {page.name for page in pages} == there - {"index"}
    assert [page.name for page in pages if not page.title or not page.first] == []
    assert {page.part for page in pages} == {"Learn", "Do", "Look up", "Understand"}
    listed = of_docs("contents").llms()
    assert [page.name for page in pages if f"({page.name}.md.txt)" not in listed.replace("_sources/", "")] == []


def anchors(text: str) -> set[str]:
    """Where a link may point within a page: its headings, as GitHub and MyST write them."""
    found: dict[str, int] = {}
    for title in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if not number else f"{slug}-{number}" for slug, most in found.items() for number in range(most + 1)}


def broken(path: Path, text: str, documents: Documents) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        if not (place.exists() or place in documents) or (
            anchor and place in documents and anchor not in anchors(documents[place])
        ):
            yield f"{path.relative_to(ROOT)}: {target}"


def test_links_between_documents_lead_somewhere(documents: Documents) -> None:
    assert sum(len(LINK.findall(text)) for text in documents.values()) > 100
    assert [link for path, text in documents.items() for link in broken(path, text, documents)] == []


def test_a_broken_link_is_seen(documents: Documents) -> None:
    page = ROOT / "docs" / "page.md"
    text = "# A title: `of` it\n[a](results.md) [b](no.md) [c](#a-title-of-it) [d](#no) [e](recipe.md#run)"
    text += " [f](recipe.md#no)"
    found = list(broken(page, text, documents | {page: text}))
    assert found == ["docs/page.md: no.md", "docs/page.md: #no", "docs/page.md: recipe.md#no"]


ARXIV = re.compile(r"arxiv(?:\.org/\w+/|\.org|:|\s)\s*([\w./-]*\d[\w/-]*)", re.IGNORECASE)
PAPER = re.compile(r"\d\d(?:0[1-9]|1[0-2])\.\d{5}(?:v[1-9]\d*)?")


def malformed(text: str) -> Iterator[str]:
    """What cannot be right in a text: a link that is not https, a paper's number that is none, two numbers for one."""
    for words, target in re.findall(r"\[([^\]]*)\]\(([a-z]+:[^)\s]*)\)", text):
        if not re.fullmatch(r"https://(?:[a-z0-9-]+\.)+[a-z]{2,}(?:/[\w./#~%?=&+-]*)?", target):
            yield target
        numbers = [re.search(PAPER, part) for part in (words, target)]
        if all(numbers) and len({number[0] for number in numbers if number}) > 1:
            yield f"{words}: {target}"
    yield from (number for number in ARXIV.findall(text) if not PAPER.fullmatch(number))


def test_links_to_elsewhere_have_the_form_of_links(documents: Documents) -> None:
    claims = {path: path.read_text(encoding="utf-8") for path in (ROOT / "lab" / "claims").glob("*.toml")}
    texts = documents | claims
    assert sum(len(ARXIV.findall(text)) for text in texts.values()) > 100
    assert [(path.name, found) for path, text in texts.items() for found in malformed(text)] == []


def test_a_malformed_link_is_seen() -> None:
    text = "[a](http://a.org) [b](https://arxiv.org/abs/2402.0330) [arXiv:2402.03300](https://arxiv.org/abs/2402.03301)"
    text += " arXiv:2413.00001 arXiv:2402.033000. [c](https://a.org/b#c) (arXiv:2402.03300v2), arxiv 2402.03300;"
    assert list(malformed(text)) == [
        "http://a.org", "arXiv:2402.03300: https://arxiv.org/abs/2402.03301", "2402.0330", "2413.00001", "2402.033000",
    ]  # fmt: skip


OF_OTHERS = ("compared.md",)
"""Pages that name files of other systems."""


def test_files_that_are_named_exist(documents: Documents) -> None:
    pages = {path.name: text for path, text in documents.items() if path.name not in OF_OTHERS}
    named = [(page, name) for page, text in pages.items() for name in PATH.findall(text)]
    assert len(named) > 50
    assert [one for one in named if not (ROOT / one[1]).exists()] == []


def test_names_of_the_package_in_the_documents_are_its_own(documents: Documents) -> None:
    named = {name for text in documents.values() for name in re.findall(r"\bgw\.([A-Za-z_]\w*)", text)}
    assert len(named) > 20
    assert named - {"NAME"} <= set(groupwise.__all__)
