"""The editions of the shipped model by name."""

from hashlib import sha256
from pathlib import Path

import pytest

from groupwise.config import parse
from groupwise.errors import ModelError
from groupwise.models import config
from groupwise.models.config import ModelConfig, first_edition_path, located, resolve

FIRST_WEIGHTS = "fbd567a530d938ae5e722853408c9cedc308ed14529c54b07f89262e349e6b17"


def test_the_first_edition_has_the_weights_that_its_runs_began_with() -> None:
    directory = first_edition_path()
    assert parse(ModelConfig, {"path": "base-1st"}).path == "base-1st"  # a name, not a file beside the recipe
    assert located("base-1st") == resolve("base-1st") == str(directory)
    assert sha256((directory / "model.safetensors").read_bytes()).hexdigest() == FIRST_WEIGHTS


def test_an_installed_package_says_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config.resources, "files", lambda name: tmp_path / "lib" / "groupwise")
    with pytest.raises(ModelError, match=r"'base-1st' is not in the package.*editions/base-1st.*pip install -e"):
        resolve("base-1st")
