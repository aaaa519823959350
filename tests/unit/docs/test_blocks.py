"""Blocks of the pages do what they say: Python runs, settings are real keys, command lines are ones that are read."""

import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_it import MarkdownIt  # rich needs it, so it is there
from typer.main import get_command

from groupwise.cli.init import write_project
from groupwise.cli.main import app
from groupwise.config import merged, recipe_file
from groupwise.errors import ConfigError
from groupwise.pipeline import load_pipeline
from groupwise.runs.run import Run
from groupwise.runs.sinks import Line
from groupwise.trainers import grpo, load_recipe

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_blocks(blocks: Callable[[str, str], Iterator[str]], language: str) -> dict[str, list[str]]:
    """By page, its blocks of a language; pages without one are left out."""
    found = {named(page): list(blocks(page.read_text(encoding="utf-8"), language)) for page in PAGES}
    return {page: of_page for page, of_page in found.items() if of_page}


@pytest.fixture(scope="module")
def blocks() -> Callable[[str, str], Iterator[str]]:
    """blocks(text, language) -> the fenced blocks of a page."""
    fence = re.compile(r"^(```+)([\w{}-]*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
    return lambda text, language: (found[2] for found in fence.findall(text) if found[1] == language)


def indented(text: str) -> list[str]:
    """Code blocks that are marked by four spaces alone, without a language; text that goes on in a list is none."""
    tokens = MarkdownIt().parse(text)
    return [f"line {token.map[0] + 1}: {token.content}" for token in tokens if token.type == "code_block" and token.map]


def test_every_block_of_code_is_fenced() -> None:
    """No test reads an indented one."""
    found = {named(page): blocks for page in PAGES if (blocks := indented(page.read_text(encoding="utf-8")))}
    assert found == {}


def test_an_indented_block_is_seen() -> None:
    text = "- an item\n    that goes on\n\n    and a paragraph\n\nText:\n\n    [a]\n    b = 1\n\n```sh\n    c\n```\n"
    assert indented(text) == ["line 8: [a]\nb = 1\n"]


BEFORE = {
    "README.md": lambda: vars(grpo),  # its first block is a function of that module
    "docs/learn/start.md": lambda: {"re": re},  # a part of the file that `groupwise init` writes
}
"""What stands above the blocks of a page where they are parts of a file."""
LEFT_OUT = {"docs/do/lora.md": "names a base model that the reader has"}


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder: the recipes, and a finished run."""
    (tmp_path / "recipes").symlink_to(ROOT / "src" / "groupwise" / "recipes")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_page(page: str, texts: list[str]) -> dict[str, Any]:
    """Run the blocks of a page in their order, in one namespace, and return it."""
    space = dict(BEFORE.get(page, dict)())
    for text in texts:
        exec(compile(text, page, "exec", dont_inherit=True), space)
    return space


def test_python_of_every_page_runs(blocks: Any, reader: Path, finished_run: Any) -> None:
    (reader / "runs").mkdir()
    rollouts = finished_run.path / "rollouts"
    shutil.copy(rollouts / "test-before.parquet", rollouts / "step-000000.parquet")
    finished_run.path.rename(reader / "runs" / "arithmetic")
    pages = with_blocks(blocks, "python")
    assert len(pages) >= 5
    spaces = {page: run_page(page, texts) for page, texts in pages.items() if page not in LEFT_OUT}
    rewards = {page: space["reward"] for page, space in spaces.items() if "reward" in space}
    assert set(rewards) == {"README.md", "docs/do/reward.md", "docs/learn/start.md"}
    for page, reward in rewards.items():
        right, wrong = r"\boxed{144}" if page.endswith("start.md") else "144", "145"
        paid, unpaid = reward(completion=right, reference="144"), reward(completion=wrong, reference="144")
        assert (paid["right"], unpaid["right"]) == (1.0, 0.0), page
    from_python = spaces["docs/python.md"]
    assert from_python["recipe"].run.num_steps == 3
    assert isinstance(from_python["run"], Run)
    assert len(from_python["rewards"]) == 4
    search = spaces["docs/do/tools.md"]["Search"]()
    call = search.look("It is [search: Japan].")  # a token of two characters
    assert (call.content, call.begin, search.run(call.content).text) == (" Japan", 6, "Tokyo")
    assert search.look("It is [search: Japan") is None
    sink = spaces["docs/explorer.md"]["MySink"](None, None)
    sink.write([Line(0, "step", 7, 0.0, {"step/reward": 0.5})])
    sink.close()
    assert (reader / "elsewhere.txt").read_text() == "7 0.5\n"


def test_a_block_that_fails_is_seen() -> None:
    with pytest.raises(NameError):
        run_page("docs/a.md", ["a = 1", "b = a + c"])


OVER = ("arithmetic", "word_problems", "ppo", "dpo", "gsm8k", "reward_model")
"""Recipes that a page's settings may be meant for."""


def unreadable(tables: dict[str, Any]) -> str:
    """Why no recipe takes these settings; empty where one does."""
    if "stages" in tables:
        around = {"pipeline": {"directory": "runs/mine"}, "model": {"path": "base"}}
        return _said(lambda: load_pipeline(merged(around, tables)))
    recipes = (tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text(encoding="utf-8")) for name in OVER)
    said = [_said(lambda recipe=recipe: load_recipe(merged(recipe, tables))) for recipe in recipes]
    return "" if not all(said) else said[0]


def _said(read: Callable[[], Any]) -> str:
    try:
        read()
    except ConfigError as error:
        return str(error) or "an error"
    return ""


def test_settings_in_the_pages_are_those_of_a_recipe(blocks: Any, reader: Path) -> None:
    (reader / "rewards.py").write_text("def reward(completion, reference):\n    return 1.0\n", encoding="utf-8")
    tool = 'def search(words: str) -> str:\n    "Search.\\n\\nArgs:\\n    words: sought"\n    return words\n'
    (reader / "my_tools.py").write_text(tool, encoding="utf-8")
    pages = with_blocks(blocks, "toml")
    assert sum(map(len, pages.values())) > 10
    faults = [
        (page, why) for page, texts in pages.items() for text in texts if (why := unreadable(tomllib.loads(text)))
    ]
    missing = re.compile(r"needs \w+: pip install")  # an environment of others is checked where its package is
    assert [(page, why) for page, why in faults if not missing.search(why)] == []


STAGES = {"tasks": {"sums": {"kind": "arithmetic"}}, "stages": {"a": {"kind": "budget", "task": "sums", "path": "{b}"}}}


def test_a_key_that_is_none_is_seen(reader: Path) -> None:
    assert "grup_size" in unreadable({"grpo": {"grup_size": 4}})
    assert "there is no stage" in unreadable(STAGES)


USAGE_ERROR: Any = typer.BadParameter.__base__
"""What the parser raises."""


@cache
def known() -> dict[str, Any]:
    """Every command by its name."""
    group: Any = get_command(app)
    return dict(group.commands)


def read(words: list[str]) -> str:
    """What the command line says of these words, without doing what they ask; empty where it reads them."""
    if words[0].startswith("-"):
        return ""
    if words[0] not in known():
        return f"there is no command {words[0]}"
    try:
        known()[words[0]].make_context(words[0], words[1:])
    except USAGE_ERROR as error:
        return str(error) or "an error"
    return ""


def test_command_lines_in_the_pages_are_read(of_calls: list[tuple[str, list[str]]]) -> None:
    assert len(of_calls) > 100
    assert [(page, words, said) for page, words in of_calls if (said := read(words))] == []


def test_recipes_take_the_changes_of_the_command_lines(of_calls: list[tuple[str, list[str]]], reader: Path) -> None:
    write_project(reader / "mine")
    num_read = 0
    for place, words in of_calls:
        file = recipe_file(words[1], Path()) if words[0] in ("train", "preflight") else Path()
        if words[0] in ("train", "preflight") and Path(place).parent.name in ("learn", "do"):  # or the reader's own
            assert file.is_file() or words[1].endswith("recipe.toml"), (place, words)
        if "$" in "".join(words) or not file.is_file() or tomllib.loads(file.read_text()).keys() & OF_SEVERAL_RUNS:
            continue
        pairs = list(pairwise(words))
        changes, extends = ([value for name, value in pairs if name == option] for option in ("--set", "--extend"))
        load_recipe(words[1], changes, extends)
        num_read += 1
    assert num_read > 12


OF_SEVERAL_RUNS = {"pipeline", "variants"}
"""Tables of recipes that are no run's."""


def test_command_lines_within_texts_and_recipes_are_read() -> None:
    pages = {named(page): re.findall(r"`(groupwise [a-z][^`]*)`", page.read_text(encoding="utf-8")) for page in PAGES}
    for recipe in (ROOT / "recipes").rglob("*.toml"):
        lines = re.findall(r"^# *(groupwise .*)$", recipe.read_text(encoding="utf-8"), re.MULTILINE)
        pages[named(recipe)] = [re.split(r"\s{2,}", line)[0] for line in lines]
    found = [(page, " ".join(line.split())) for page, lines in pages.items() for line in lines]
    assert len(found) > 200
    wrong = re.compile("there is no command|No such option|unexpected extra")  # what is left out is no fault there
    assert [one for one in found for words in calls(one[1]) if wrong.search(read(words))] == []


def test_a_wrong_command_line_is_seen() -> None:
    assert "No such option" in read(["train", "a.toml", "--set", "b=1", "--restrat"])
    assert "Missing parameter: recipe" in read(["train"])
    assert read(["trian", "a.toml"]) == "there is no command trian"
    assert "valid integer" in read(["train", "a.toml", "--ranks", "two"])


@pytest.fixture(scope="module")
def of_calls() -> list[tuple[str, list[str]]]:
    """Every call of groupwise in a block: its page, and its words."""
    found = []
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        for line in re.findall(r"^ *(groupwise .+)$", text, re.MULTILINE):
            found += [(named(page), words) for words in calls(line)]
    return found


def calls(line: str) -> Iterator[list[str]]:
    """The calls in a line of a block, comments and alternatives left out."""
    for part in re.split(r"\s+&&\s+", re.split(r"\s{2,}[#(]", line)[0]):
        if part.startswith("groupwise ") and "..." not in part:
            yield shlex.split(part)[1:]
