"""Worlds: user Python that comes with the recipes, found from any recipe and used by nothing in the package."""

import ast
from pathlib import Path

from groupwise.config import RECIPES
from groupwise.config.places import beside
from groupwise.tasks.preferences import PREFERENCES, TEXTS, WRITERS

WORLDS = RECIPES / "worlds"


def test_a_world_is_found_from_any_recipe_and_a_file_of_ones_own_comes_first(tmp_path: Path) -> None:
    shipped = f"{WORLDS / 'web.py'}:MadeWeb"
    assert beside("worlds/web.py:MadeWeb", tmp_path) == beside("worlds/web.py:MadeWeb", None) == shipped
    (tmp_path / "worlds").mkdir()
    (tmp_path / "worlds" / "web.py").write_text("MadeWeb = 1\n")
    assert beside("worlds/web.py:MadeWeb", tmp_path) == f"{tmp_path}/worlds/web.py:MadeWeb"
    assert beside("worlds/none.py:MadeWeb", tmp_path) == "worlds/none.py:MadeWeb"


def test_each_seam_takes_the_world_that_is_made_for_it() -> None:
    assert TEXTS.read("worlds/diet.py:Diet").kind.endswith("worlds/diet.py:Diet")
    assert WRITERS.read({"kind": "worlds/general.py:Hands", "unwanted": 0.5}).model_dump()["unwanted"] == 0.5
    assert PREFERENCES.read("worlds/general.py:Helpful").name == "helpful"  # type: ignore[attr-defined]


def test_nothing_of_the_package_imports_a_world() -> None:
    names = {path.stem for path in WORLDS.glob("*.py")}
    for path in set(RECIPES.parent.rglob("*.py")) - set(WORLDS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not names & set(modules), path
            assert not any("worlds" in str(module) for module in modules), path
