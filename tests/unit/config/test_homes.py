"""A path from a home directory, wherever it enters: `~` is never the name of a file."""

from pathlib import Path

import pytest

from groupwise.cli.app import app
from groupwise.config.places import expanded
from groupwise.config.recipes import recipe_file
from groupwise.config.schema import resolve
from groupwise.errors import ConfigError
from groupwise.trainers import load_recipe

RECIPE = """
algorithm = "grpo"
model.path = "~/model"
run = {directory = "~/runs/a", num_steps = 1}
task = {kind = "jsonl", path = "~/problems.jsonl", data_dir = "~/data"}
verifier = {kind = "~/rewards.py:reward"}
engine = {kind = "scripted", path = "~/script.jsonl"}
sinks.board = {kind = "tensorboard", directory = "~/board"}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_every_path_of_a_recipe_may_begin_at_home(home: Path) -> None:
    (home / "rewards.py").write_text("def reward(completion, problem):\n    return 1.0\n")
    (home / "base.toml").write_text(RECIPE)
    (home / "recipe.toml").write_text('extends = ["~/base.toml"]\n')
    recipe = load_recipe("~/recipe.toml")
    text = recipe.model_dump_json()
    assert "~" not in text
    assert text.count(f"{home}/") == 6
    assert load_recipe("~/recipe.toml", ["run.directory=~/b"]).run.directory == f"{home}/b"
    assert [sink.model_dump()["directory"] for sink in recipe.sinks.values()] == [f"{home}/board"]
    assert (resolve("~/m"), recipe_file("~/r.toml", Path("folder"))) == (f"{home}/m", home / "r.toml")


def test_words_of_the_command_line_are_expanded_and_answers_left_alone(home: Path) -> None:
    app(["init", "~/project"], standalone_mode=False)
    assert (home / "project" / "recipe.toml").is_file()
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    app(["verify", "math", "--reference", "~5", "\\boxed{~5}"], standalone_mode=False)


def test_an_unknown_user_is_named(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"~nobody_here has no home directory here; .* \./~nobody_here/x"):
        expanded("~nobody_here/x")
