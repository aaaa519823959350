"""Every file of the package travels in the wheel; tests/slow/test_release.py builds and installs it."""

import os
import tomllib
from glob import glob
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "groupwise"


def test_every_file_that_is_no_python_is_package_data() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["groupwise"]
    taken = {PACKAGE / name for pattern in patterns for name in glob(pattern, root_dir=PACKAGE, recursive=True)}
    walked = [Path(folder, name) for folder, _, names in os.walk(PACKAGE, followlinks=True) for name in names]
    files = {path for path in walked if path.suffix not in (".py", ".pyc")}
    assert {PACKAGE / "recipes" / "arithmetic.toml", PACKAGE / "py.typed"} <= files
    assert {PACKAGE / "recipes" / "worlds" / "web.py"} <= taken
    assert sorted(str(path.relative_to(PACKAGE)) for path in files - taken) == []


def test_every_folder_of_modules_is_a_package() -> None:
    data = {PACKAGE / "cli" / "project", PACKAGE / "recipes" / "worlds"}
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - data
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
