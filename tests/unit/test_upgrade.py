"""Keys of earlier versions: in recipes, in what they extend, in overrides, and in a run's own record."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from groupwise import upgrade
from groupwise.config import Section, load, parse, read_recipe, read_recorded
from groupwise.errors import DataError
from groupwise.types import FinishReason, Outcome
from groupwise.upgrade import Move, upgraded, upgraded_measurement, upgraded_row


class Policy(Section):
    kind: str = "clipped"
    clip: float = 0.2


class Loss(Section):
    policy: Policy = Policy()


class Recipe(Section):
    loss: Loss = Loss()


@pytest.fixture(autouse=True)
def moves(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (
        Move("loss.policy_loss", "loss.policy.kind"),
        Move("loss.clip", "loss.policy.clip", 0.2, ("clipped",)),
        Move("tasks.*.name", "tasks.*.kind"),
        Move("evaluation", "measure", beside="stages"),
    )
    monkeypatch.setattr(upgrade, "MOVES", found)


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        ({"loss": {"policy_loss": "x", "n": 1}}, {"loss": {"policy": {"kind": "x"}, "n": 1}}, 1),
        ({"loss": {"policy_loss": "x", "clip": 0.2}}, {"loss": {"policy": {"kind": "x"}}}, 1),  # the default, not read
        ({"loss": {"policy_loss": "x", "clip": 0.3}}, {"loss": {"policy": {"kind": "x", "clip": 0.3}}}, 2),
        ({"loss": {"policy_loss": "clipped", "clip": 0.2}}, {"loss": {"policy": {"kind": "clipped", "clip": 0.2}}}, 2),
        ({"loss": {"policy_loss": "x", "policy": {"kind": "y"}}}, {"loss": {"policy": {"kind": "y"}}}, 1),
        ({"stages": {"a": {"loss": {"policy_loss": "x"}}}}, {"stages": {"a": {"loss": {"policy": {"kind": "x"}}}}}, 1),
        ({"tasks": {"a": {"name": "x"}, "b": {"name": "y"}}}, {"tasks": {"a": {"kind": "x"}, "b": {"kind": "y"}}}, 2),
        (
            {"evaluation": {"a": 1}, "stages": {"a": {"evaluation": 2}}},
            {"measure": {"a": 1}, "stages": {"a": {"evaluation": 2}}},
            1,
        ),
        ({"evaluation": {"a": 1}, "loss": 3}, {"evaluation": {"a": 1}, "loss": 3}, 0),
    ],
)
def test_old_keys_are_todays(old: dict[str, Any], new: dict[str, Any], moved: int) -> None:
    before = repr(old)
    found, said = upgraded(old)
    assert found == new
    assert len(said) == moved
    assert repr(old) == before


def test_what_moved_is_said_with_its_place() -> None:
    assert upgraded({"stages": {"a": {"loss": {"policy_loss": "x"}}}})[1] == [
        "stages.a.loss.policy_loss is stages.a.loss.policy.kind now"
    ]


def test_a_recipe_says_it_once_and_a_runs_own_record_does_not(tmp_path: Path) -> None:
    (tmp_path / "below.toml").write_text('[loss]\npolicy_loss = "below"\nclip = 0.5\n')
    (tmp_path / "recipe.toml").write_text('extends = ["below.toml"]\n[loss.policy]\nkind = "clipped"\n')
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert load(Recipe, tmp_path / "recipe.toml").loss.policy.kind == "clipped"
    below = tmp_path / "below.toml"
    assert [str(one.message) for one in said] == [
        f"loss.policy_loss is loss.policy.kind now (in {below})",
        f"loss.clip is loss.policy.clip now (in {below})",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_recorded(tmp_path / "below.toml") == {"loss": {"policy": {"kind": "below", "clip": 0.5}}}


def test_an_override_may_name_an_old_key_and_counts_more_than_the_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('[loss.policy]\nkind = "file"\n')
    with pytest.warns(UserWarning, match=r"\(in the change loss\.policy_loss=mine\)"):
        found = read_recipe(tmp_path / "recipe.toml", ["loss.policy_loss=mine", "loss.policy.clip=0.4"])
    assert found == {"loss": {"policy": {"kind": "mine", "clip": 0.4}}}
    with pytest.warns(UserWarning, match="in the change"):
        assert parse(Recipe, {}, ["loss.policy_loss=mine"]).loss.policy.kind == "mine"


def test_an_override_of_a_section_that_moved_changes_its_key_alone(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("[measure]\na = 1\nb = { c = 2 }\n[stages]\n")
    with pytest.warns(UserWarning, match="evaluation is measure now"):
        found = read_recipe(tmp_path / "recipe.toml", ["evaluation.b.d=3"])
    assert found["measure"] == {"a": 1, "b": {"c": 2, "d": 3}}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"prompt": "What?\n<think>"}, {"prefill": "<think>"}),
        ({"prompt": "<think>an example</think>"}, {"prefill": ""}),
        ({"prompt": "Think within <think> tags.", "prefill": ""}, {"prefill": ""}),  # a new file says so
        ({"problem": "general/1"}, {"open_ended": True}),
        ({"problem": "general/1", "open_ended": False}, {"open_ended": False}),
        ({"sampled": [True, False]}, {"num_tokens": 1}),
        ({"num_read": 5}, {"num_tokens": 5, "language": None}),
    ],
)
def test_rows_of_older_files(record: dict[str, Any], expected: dict[str, Any]) -> None:
    old = {"problem": "a", "prompt": "", "num_read": 2, "finish_reason": "stop", "outcome": "wrong"}
    found = upgraded_row(old | record)
    assert {key: found[key] for key in expected} == expected
    assert (found["finish_reason"], found["outcome"]) == (FinishReason.STOP, Outcome.WRONG)
    assert "prompt" not in found


def test_older_facts_know_open_ended_prompts_by_a_name() -> None:
    assert upgraded_measurement("general", {"length": [1, 1, 1]})["kind"] == "open_ended"
    assert upgraded_measurement("sums", {})["kind"] == "verified"
    assert upgraded_measurement("general", {"kind": "verified"}) == {"kind": "verified"}


OLD = '[model]\npath = "base"\n[data]\ncompleter = "base"\npath = "rows.jsonl"\n'


def recorded(folder: Path, environment: str | None) -> Path:
    (folder / "config.toml").write_text(OLD)
    if environment is not None:
        (folder / "environment.json").write_text(environment)
    return folder / "config.toml"


@pytest.mark.parametrize(
    ("environment", "base"),
    [("{}", "base-1st"), ('{"base_model": "2nd"}', "base"), ('{"base_model": "7th"}', "base-7th"), (None, "base")],
)
def test_a_run_keeps_the_base_model_that_it_began_with(tmp_path: Path, environment: str | None, base: str) -> None:
    path = recorded(tmp_path, environment)
    assert read_recorded(path) == read_recipe(path)
    assert read_recorded(path) == {"model": {"path": base}, "data": {"completer": base, "path": "rows.jsonl"}}


def test_a_recipe_beside_an_environment_means_the_shipped_base_model(tmp_path: Path) -> None:
    recipe = recorded(tmp_path, "{}").rename(tmp_path / "recipe.toml")
    assert read_recipe(recipe)["model"]["path"] == "base"


def test_an_environment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"environment.json cannot be read"):
        read_recorded(recorded(tmp_path, "{"))
