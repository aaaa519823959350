"""The documentation site: Sphinx, MyST, Furo. `make docs` builds it without a network; a warning is an error.

The pages are the Markdown files of this folder, in place; the front page says in which of four parts each one stands.
Pages that come from code are generated before, and committed (docs/generate.py); of the package only the explorer's
pages are imported, without torch: the Learn view stands in the site as the one file that it exports to.
"""

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from contents import llms  # noqa: E402  beside this file

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

project = "Groupwise"
author = "The Groupwise contributors"
project_copyright = "The Groupwise contributors, Apache-2.0"
(release,) = _VERSION.findall((HERE.parent / "src" / "groupwise" / "__init__.py").read_text(encoding="utf-8"))
version = release

extensions = ["myst_parser"]
exclude_patterns: list[str] = []
source_suffix = {".md": "markdown"}
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]
nitpicky = True

html_theme = "furo"
html_title = f"Groupwise {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = True  # every page is there as Markdown, too
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f8b", "color-brand-content": "#1f5f8b"},
    "dark_css_variables": {"color-brand-primary": "#8cc4ee", "color-brand-content": "#8cc4ee"},
}


def prepared(app: Any, name: str, source: list[str]) -> None:
    """A Markdown file outside of the site is linked as a file."""
    source[0] = re.sub(r"\]\((\.\./[^)]+\.md)\)", r"](path:\1)", source[0])


def finished(app: Any, error: Exception | None) -> None:
    """What stands beside the pages: the Learn view, and the list of pages for programs that read."""
    if error is None:
        from groupwise.explorer.export import write_export

        write_export([], Path(app.outdir) / "learn-view.html")
        (Path(app.outdir) / "llms.txt").write_text(llms(), encoding="utf-8")


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", prepared)
    app.connect("build-finished", finished)
