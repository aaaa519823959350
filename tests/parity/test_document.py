"""docs/compared.md names tests, keys, defaults, files and commands of ours that exist."""

import ast
import re
from pathlib import Path

import pytest
from parity_document import DEFAULTS, OURS_ONLY, PAGE, THEIRS_ONLY, cells, quoted
from typer.main import get_command

from groupwise.cli.keys import reference
from groupwise.cli.main import app
from groupwise.config import recipe_file

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EQUAL = "### Equal"


@pytest.fixture(scope="module")
def defaults() -> dict[str, list[object]]:
    """By key, its defaults in all sections that may stand there."""
    keys: dict[str, list[object]] = {}
    for heading in reference().headings:
        keys.setdefault(heading.path, [])
        for name, field in heading.model.model_fields.items():
            keys.setdefault(f"{heading.path}.{name}", []).append(field.get_default(call_default_factory=True))
    return keys


def test_every_difference_is_in_the_document() -> None:
    files = [HERE / "test_advantages.py", HERE / "test_differences.py"]
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)]
    assert len(tests) > 15
    assert {name for name in quoted(PAGE) if re.fullmatch(r"test_\w+", name)} == set(tests)


def test_keys_that_are_named_exist(defaults: dict[str, list[object]]) -> None:
    texts = [*cells(THEIRS_ONLY, 2), *cells(OURS_ONLY, 1), PAGE[PAGE.index("Beside TRL alone") : PAGE.index(DEFAULTS)]]
    keys = {name for text in texts for name in quoted(text) if re.fullmatch(r"[a-z_]+(\.[a-zA-Z_]+)+", name)}
    assert len(keys - {name for name in keys if name.endswith(".py")}) > 10
    assert [key for key in keys if key not in defaults and not key.endswith(".py")] == []


def test_settings_that_equal_trls_are_keys(defaults: dict[str, list[object]]) -> None:
    names = [
        name for text in cells(EQUAL, 1) for name in re.findall(r"`([a-z][a-z_.]+(?= = )|[a-z]+\.[a-z_.]+(?=`))", text)
    ]
    assert len(names) > 15
    assert [name for name in names if name not in defaults and f"loss.{name}" not in defaults] == []


def test_defaults_are_ours(defaults: dict[str, list[object]]) -> None:
    stated = [pair.split(" = ") for text in cells(DEFAULTS, 2) for pair in quoted(text) if " = " in pair]
    assert len(stated) > 10
    for key, value in stated:
        if key == "advantage.kind":  # the kind of a section is the default of the section
            default = next(h.model for h in reference().headings if h.chosen == 'algorithm = "grpo"')
            assert default.model_fields["advantage"].get_default(call_default_factory=True).kind == ast.literal_eval(
                value
            )
        else:
            assert ast.literal_eval(value) in defaults[key], key


def test_what_only_we_have_is_shown_by_what_exists() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    for text in cells(OURS_ONLY, 1):
        shown = [name for name in quoted(text) if name.startswith(("groupwise ", "tests/"))]
        assert shown, text
        for name in shown:
            if name.startswith("tests/"):
                file, _, test = name.partition("::")
                assert f"def {test}(" in (ROOT / file).read_text("utf-8") if test else (ROOT / file).is_file(), name
            else:
                _, command, *recipe = name.split()
                assert command in commands, name
                assert all(recipe_file(each, ROOT).is_file() for each in recipe), name
