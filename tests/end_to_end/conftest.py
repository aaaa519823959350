"""The modules of this folder that are no tests, and the server from which whole runs are forked."""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import groupwise.explorer.export  # noqa: F401  its imports take longer than a test that is the first to need it
from groupwise.pipeline import fingerprint

FOLDER = str(Path(__file__).parent)
sys.path.insert(0, FOLDER)  # started processes take this path over and find the modules there


@pytest.fixture(scope="session")
def server() -> None:
    """Starts the server from which processes are forked, so that no test's time holds that of its imports."""
    from processes import start

    with pytest.MonkeyPatch.context() as patch:  # the server itself takes no path over
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH")))))
        process = start(int)
    process.join()
    assert process.exitcode == 0


@pytest.fixture(scope="module")
def imports_are_found_once() -> Iterator[None]:
    """Where the package imports from does not change while its tests run; to look for it takes as long as a stage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "_near", cache(fingerprint._near))
        fingerprint.code_version(["groupwise.pipeline.train", "groupwise.pipeline.evaluation"])
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run of three steps."""
    from commands import Trained, succeed, write_recipe

    folder = tmp_path_factory.mktemp("runs")
    recipe = write_recipe(folder, folder / "run")
    return Trained(folder / "run", recipe, succeed("train", recipe))


@pytest.fixture
def copy(trained: Any, tmp_path: Path) -> Path:
    """A copy of the finished run, to be spoilt; its recipe names its own directory."""
    path = Path(shutil.copytree(trained.path, tmp_path / "copy", symlinks=True))
    config = path / "config.toml"
    config.write_text(config.read_text().replace(str(trained.path), str(path)))
    return path


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page of the run: it takes as long as the rest of such a run, and the test reads nothing of it."""
    monkeypatch.setattr("groupwise.explorer.export.write_report", lambda path: path)


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `init --model` writes."""
    from commands import succeed

    path = tmp_path_factory.mktemp("models") / "random"
    shape = ("--set", "hidden_size=32", "--set", "intermediate_size=64", "--set", "num_hidden_layers=1")
    assert "random parameters and a byte tokenizer" in succeed("init", path, "--model", *shape)
    return path
