"""A recipe that comes with the package is found by its name; a file of the user's comes first."""

import tomllib
from pathlib import Path

import pytest

from groupwise.algorithms.advantages import ADVANTAGES
from groupwise.algorithms.policy_losses import POLICY_LOSSES
from groupwise.config import RECIPES, load, merged, overridden, read_toml, recipe_file, recipe_names
from groupwise.config.recipes import USUAL, as_overrides, dump_tables
from groupwise.errors import ConfigError
from groupwise.pipeline import load_pipeline
from groupwise.recall.config import ANNOTATORS, RecallRecipe
from groupwise.rollout.engine import ENGINES
from groupwise.trainers import load_recipe
from groupwise.trainers.compare import Comparison

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No checkout around."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [("arithmetic", "arithmetic.toml"), ("arithmetic.toml", "arithmetic.toml"),
     ("recipes/arithmetic.toml", "arithmetic.toml"), ("recipes/base/second-1", "base/second-1.toml"),
     ("algorithms/dapo", "algorithms/dapo.toml")],
)  # fmt: skip
def test_a_shipped_recipe_has_a_name(name: str, file: str) -> None:
    assert recipe_file(name, Path()) == RECIPES / file


def test_a_file_of_ones_own_comes_first(elsewhere: Path) -> None:
    (elsewhere / "recipes").mkdir()
    (elsewhere / "arithmetic").mkdir()  # a folder of that name is no recipe
    (elsewhere / "recipes" / "arithmetic.toml").write_text("[run]")
    assert recipe_file("recipes/arithmetic.toml", Path()) == Path("recipes/arithmetic.toml")
    assert recipe_file("arithmetic", Path()) == RECIPES / "arithmetic.toml"


@pytest.mark.parametrize("name", ["no", "../recipes/arithmetic", "/arithmetic", "", ".", "recipes", "mine/ppo.toml"])
def test_what_is_not_there_stays_what_it_is(name: str) -> None:
    assert recipe_file(name, Path()) == Path(name)


def test_a_missing_recipe_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no recipe arithmatic; did you mean arithmetic\? Groupwise brings .*, r1, "):
        load_recipe("arithmatic")
    with pytest.raises(ConfigError, match=r"no recipe dapo; did you mean algorithms/dapo\? "):
        load_recipe("arithmetic", extends=["dapo"])
    with pytest.raises(ConfigError, match=r"no recipe zzz; Groupwise brings arithmetic, "):
        load_recipe("zzz")


def test_every_recipe_is_shipped_by_a_link_in_the_package() -> None:
    assert RECIPES.resolve() == ROOT / "recipes"
    assert {"arithmetic", "r1", "gsm8k", "compare"} <= set(recipe_names())


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: str(path.relative_to(RECIPES)))
def test_what_a_recipe_builds_on_is_shipped_with_it(path: Path) -> None:
    tables = read_toml(path)
    bases = variant_bases(tables) if "variants" in tables else tables.get("extends", [])
    assert [base for base in bases if not recipe_file(base, path.parent).is_file()] == []


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid(name: str) -> None:
    tables = read_toml(RECIPES / f"{name}.toml")
    if "stages" in tables:
        load_pipeline(f"recipes/{name}.toml")
    elif "sources" in tables:
        load(RecallRecipe, f"recipes/{name}.toml")
    elif "variants" not in tables:
        load_recipe(f"recipes/{name}.toml")


def variant_bases(tables: dict[str, object]) -> list[str]:
    comparison = Comparison.model_validate(tables)
    return [base for variant in comparison.variants.values() for base in variant.extends] + [comparison.recipe]


def test_a_section_that_names_no_kind_is_of_its_usual_one() -> None:
    tables = {"advantage": ADVANTAGES, "annotator": ANNOTATORS, "engine": ENGINES, "policy": POLICY_LOSSES}
    assert {key: kinds.default for key, kinds in tables.items()} == USUAL
    below = {"loss": {"policy": {"clip_high": 0.3}}, "task": {"num_problems": 9}}
    other, usual = {"kind": "sequence_ratio"}, {"kind": "clipped_ratio"}
    assert merged(below, {"loss": {"policy": other}})["loss"]["policy"] == other  # 0.3 means something else there
    assert merged(below, {"loss": {"policy": usual}})["loss"]["policy"] == {"clip_high": 0.3, **usual}
    assert merged(below, {"task": {"kind": "arithmetic"}})["task"] == {"num_problems": 9, "kind": "arithmetic"}


@pytest.mark.parametrize("kind", [{}, {"kind": "clipped_ratio"}])
def test_a_change_that_begins_a_section_anew_says_what_is_left_out(kind: dict[str, str]) -> None:
    below = {"loss": {"policy": {**kind, "clip_low": 0.1, "dual_clip": 3.0}}}
    with pytest.warns(UserWarning, match=r"kind=soft_gate begins the section anew, without clip_low, dual_clip$"):
        changed = overridden(below, ["loss.policy.kind=soft_gate", "loss.policy.tau_pos=2"])
    assert changed["loss"]["policy"] == {"kind": "soft_gate", "tau_pos": 2}
    assert overridden(below, ["loss.policy.kind=clipped_ratio"])["loss"]["policy"]["dual_clip"] == 3.0


def test_a_name_alone_is_the_kind_of_a_section() -> None:
    below = {"verifier": {"kind": "number", "format_reward": 0.1}}
    assert overridden(below, ["verifier=number"]) == merged(below, {"verifier": "number"}) == below
    with pytest.warns(UserWarning, match="verifier=math begins the section anew, without format_reward$"):
        assert overridden(below, ["verifier=math"]) == merged(below, {"verifier": "math"}) == {"verifier": "math"}
    usual = {"loss": {"policy": {"dual_clip": 3.0}}}
    name = {"loss": {"policy": "clipped_ratio"}}
    assert overridden(usual, ["loss.policy=clipped_ratio"]) == merged(usual, name) == usual
    with pytest.warns(UserWarning, match="verifier=math begins the section anew, without format_reward$"):
        overridden({"verifier": {"format_reward": 0.1}}, ["verifier=math"])


def test_a_name_that_no_bare_key_of_toml_can_be_is_quoted() -> None:
    tables = {"sources": {"my web": {"é.a": [{"$ref": "x"}]}, "plain-1": {"b": 1}}}
    assert tomllib.loads(dump_tables(tables)) == tables
    assert overridden({}, as_overrides(tables)) == tables
    assert overridden({}, ["a.b.c=1", "a.é=2", "#=3"]) == {"a": {"b": {"c": 1}, "é": 2}, "#": 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("task.kinds=[product]", r"""task.kinds = '\[product\]': Input should be a list, such as \["a", "b"\]$"""),
        ("task.kinds=['prod']", r"task.kinds.0 = 'prod': Input should be 'product', 'sum', 'difference' or 'chain'$"),
        ("task.digits=[2, 2, 2]", r"task.digits = \[2, 2, 2\]: List should have at most 2 items, not 3$"),
        ("grpo=3", r"grpo = 3: Input should be a section$"),
    ],
)
def test_a_wrong_value_is_told_in_the_words_of_a_recipe(change: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"cannot be used:\n  {said}"):
        load_recipe("arithmetic", [change])
