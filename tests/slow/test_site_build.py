"""The documentation site builds from the pages as they are, in two minutes, without a warning and without a network."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MOST_SECONDS = 120


@pytest.mark.slow
def test_it_builds_in_two_minutes_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="needs pip install -e '.[docs]'")
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, tmp_path / "site"]
    begin = time.monotonic()
    said = subprocess.run(
        [*map(str, command), "-d", str(tmp_path / "doctrees")], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    assert said.returncode == 0, said.stderr
    assert seconds < MOST_SECONDS
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "start.html", "commands.html", "learn-view.html"} <= pages.keys()
    loaded = r"<(?:script|link|img)[^>]+(?:src|href)=\"((?:https?:)?//[^\"]+)\""
    assert [(name, place) for name, text in pages.items() for place in re.findall(loaded, text)] == []
    assert (tmp_path / "site" / "llms.txt").read_text(encoding="utf-8").startswith("# Groupwise\n")
