"""The pages of the site in their parts, read from the front page: for `llms.txt` and for tests, without Sphinx."""

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
_TOCTREE = re.compile(r"^```\{toctree\}\n:caption: (.+)\n((?::.*\n)*)\n((?:[\w/-]+\n)+)```", re.MULTILINE)


class Page(NamedTuple):
    """A page of the site."""

    name: str
    """Its path without the suffix, relative to this folder."""
    part: str
    title: str
    first: str
    """Its first paragraph in one line."""


def pages() -> list[Page]:
    """Every page that the front page names, in its order."""
    front = (DOCS / "index.md").read_text(encoding="utf-8")
    names = [(name, part) for part, _, listed in _TOCTREE.findall(front) for name in listed.split()]
    return [_page(name, part) for name, part in names]


def _page(name: str, part: str) -> Page:
    title, _, rest = (DOCS / f"{name}.md").read_text(encoding="utf-8").removeprefix("# ").partition("\n")
    paragraphs = [
        one for one in rest.strip().split("\n\n") if one and not one.startswith(("```", "!", "|", "    ", "#", "<!--"))
    ]
    return Page(name, part, title, " ".join(paragraphs[0].split()) if paragraphs else "")


def llms() -> str:
    """The list of pages as https://llmstxt.org has it; each page is there as Markdown, too."""
    lines = ["# Groupwise", "", "> Reinforcement learning that teaches language models to reason, with answers that a "
             "program can check: a Python package, its recipes and its documents.", ""]  # fmt: skip
    part = ""
    for page in pages():
        if page.part != part:
            lines += [*([""] if part else []), f"## {page.part}", ""]
            part = page.part
        lines.append(f"- [{page.title}](_sources/{page.name}.md.txt): {_sentence(page.first)}")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    first = re.split(r"(?<!et al)(?<=[.:])\s", plain, maxsplit=1)[0]
    return first.rstrip(":")
