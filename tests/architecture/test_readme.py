"""The README shows what the code is today."""

import inspect
import re
from pathlib import Path

from groupwise.trainers.grpo import grpo_step

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_step_in_the_readme_is_the_step_in_the_code() -> None:
    assert inspect.getsource(grpo_step).strip() in README


def test_files_that_the_readme_names_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_recipe_is_in_the_readme() -> None:
    assert [path.name for path in (ROOT / "recipes").glob("*.toml") if path.name not in README] == []
