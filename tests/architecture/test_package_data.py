"""Every file of the package travels in the wheel; tests/slow/test_release.py builds and installs it."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "groupwise"


def test_every_file_that_is_no_python_is_package_data() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["groupwise"]
    taken = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {PACKAGE / "recipes" / "arithmetic.toml", PACKAGE / "py.typed"} <= files
    assert {PACKAGE / "recipes" / "worlds" / "web.py"} <= taken
    assert sorted(str(path.relative_to(PACKAGE)) for path in files - taken) == []


def test_every_folder_of_modules_is_a_package() -> None:
    data = {PACKAGE / "cli" / "project", PACKAGE / "recipes" / "worlds"}
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - data
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
