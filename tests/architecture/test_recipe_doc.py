"""docs/recipe.md and `groupwise keys` say what the fields say."""

import pytest

from groupwise.cli.keys import Reference, choose, markdown, own_fields, reference
from groupwise.errors import ConfigError
from groupwise.trainers.rl_recipe import RlRecipe


@pytest.fixture(scope="module")
def found() -> Reference:
    return reference()


def test_every_key_says_what_it_means(found: Reference) -> None:
    silent = [
        f"{heading.title}: {name}"
        for heading in found.headings
        for name, info in own_fields(heading.model, heading.base)
        if not info.description
    ]
    assert silent == []


def test_every_section_has_a_title_of_its_own(found: Reference) -> None:
    titles = [heading.title for heading in found.headings]
    assert len(set(titles)) == len(titles)


def test_every_section_of_a_recipe_is_in_it(found: Reference) -> None:
    paths = {heading.path for heading in found.headings}
    values = {"algorithm", "token_budget"}
    assert {name for name in RlRecipe.model_fields if name not in values and name not in paths} == {
        "reward_models",
        "sinks",
    }


def test_a_section_and_one_of_its_kinds(found: Reference) -> None:
    [generated] = choose(found, "data", "generated")
    noise = "- **`noise`** (number ≥ 0 and < 0.5; default `0.1`): Probability of a wrong label."
    assert noise in markdown(found, [generated])
    [texts] = choose(found, "data", "texts")
    assert "- **`text`** (section): " in markdown(found, [texts])
    assert len(choose(found, "data", None)) > 3
    assert [one.path for one in choose(found, "teacher", None)] == ["model"]  # documented where it stands first


@pytest.mark.parametrize(
    ("section", "kind", "says"),
    [("nothing", None, "there is no section 'nothing'; there are run, "), ("data", "x", "data has no kind 'x'")],
)
def test_what_is_not_there_is_said(found: Reference, section: str, kind: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        choose(found, section, kind)
