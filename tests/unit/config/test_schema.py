"""What a recipe reads is found by the types of its fields: a key with any name counts."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from groupwise.config import Section, dump_toml, parse
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.schema import Artifact, DataRef, ModelRef, RewardModelRef, files, label, located, named
from groupwise.errors import ConfigError
from groupwise.trainers import load_recipe


class Judge(Section):
    adapter: RewardModelRef
    note: str = "{zero}"


class Own(KindSection):
    corpus: DataRef | None = None


KINDS = Kinds("own", {"own": f"{__name__}:Own"})


class Settings(Section):
    start: ModelRef = "base"
    prompt: str = "{question}"
    rows: tuple[DataRef, ...] = ()
    judges: dict[str, Judge] = Field(default_factory=dict)
    own: Annotated[KindSection, KINDS] | None = None
    more: dict[str, Annotated[str, Artifact("data")]] = Field(default_factory=dict)


TABLES = {
    "start": "{zero}", "rows": ["{cold}", "mine.jsonl", "{cold}"], "judges": {"a": {"adapter": "{helpful}"}},
    "own": {"kind": "own", "corpus": "{text}"}, "more": {"x": "{last}"},
}  # fmt: skip


def test_every_reference_is_found_with_what_it_must_be() -> None:
    assert [tuple(one) for one in named(parse(Settings, TABLES))] == [
        ("start", "{zero}", "model"),
        ("rows", "{cold}", "data"),
        ("rows", "mine.jsonl", "data"),
        ("rows", "{cold}", "data"),
        ("judges.a.adapter", "{helpful}", "reward_model"),
        ("own.corpus", "{text}", "data"),
        ("more.x", "{last}", "data"),
    ]


def test_references_become_paths_and_nothing_else_changes() -> None:
    before = parse(Settings, TABLES)
    paths = {"zero": "/z", "cold": "/c", "helpful": "/h", "text": "/t", "question": "wrong"}
    found = located(before, paths).model_dump(mode="json")
    assert found == {
        "start": "/z",
        "prompt": "{question}",
        "rows": ["/c", "mine.jsonl", "/c"],
        "judges": {"a": {"adapter": "/h", "note": "{zero}"}},
        "own": {"kind": "own", "corpus": "/t"},
        "more": {"x": "{last}"},
    }
    assert before.start == "{zero}"
    assert located(before, {}) is before


def test_files_are_what_comes_from_outside() -> None:
    assert list(files(parse(Settings, TABLES))) == ["mine.jsonl"]


def test_a_users_own_python_is_a_file_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from groupwise.config.kinds import KindSection\nclass Mine(KindSection): pass\n")
    found = parse(Settings, {"own": "mine.py:Mine"}, folder=tmp_path)
    assert list(files(found)) == ["base", str(tmp_path / "mine.py")]


def test_a_path_is_looked_for_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "recipes"
    (folder / "base").mkdir(parents=True)
    (folder / "near.jsonl").touch()
    tables: dict[str, Any] = {"rows": ["near.jsonl", "far.jsonl"]}
    found = parse(Settings, tables, folder=folder)
    assert found.rows == (str(folder / "near.jsonl"), "far.jsonl")
    assert found.start == "base"  # the shipped model, whatever is called so beside the recipe
    (tmp_path / "near.jsonl").touch()
    with pytest.raises(ConfigError, match=r"rows.*: near.jsonl may mean .*write the whole path"):
        parse(Settings, tables, folder=folder)


def test_names_for_people() -> None:
    assert label("{zero}") == "zero"
    assert label("models/{zero}") == "models/{zero}"


class Rates(Section):
    lr: float = 1.0
    coefficients: tuple[float, ...] = ()


@pytest.mark.parametrize("table", [{"lr": float("inf")}, {"lr": float("nan")}, {"coefficients": [1.0, float("-inf")]}])
def test_a_number_is_finite(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="finite number"):
        parse(Rates, table)


def test_a_bound_may_be_none() -> None:
    recipe = load_recipe("arithmetic.toml", ["loss.policy.kind=clipped_ratio", "loss.policy.clip_high=inf"])
    assert "clip_high = inf" in dump_toml(recipe)
