"""Reward parts in recipes: read, overridden, written and read back, and refused where they contradict themselves."""

from typing import Annotated, Any

import pytest

from groupwise.config import Section, dump_toml, load, parse
from groupwise.errors import ConfigError
from groupwise.verifiers import VERIFIERS, VerifierConfig, check_lengths, make_verifier, verifier_config

RECIPE = """
[verifier]
kind = "math"
cap_wrong = 0.2

[verifier.parts.language]
kind = "language"
weight = 0.1
gate = "format"

[verifier.parts.shape]
kind = "format"
weight = 0.0

[verifier.parts.overlong]
kind = "overlong"
weight = 1
cache_tokens = 32

[verifier.parts.brief]
kind = "cosine_length"
weight = 0.5
gate = "correct"

[verifier.parts.loops]
kind = "repetition"
weight = 0.3

[verifier.parts.second]
kind = "verifier"
verifier = "judge"
combine = "all"
"""


class Recipe(Section):
    verifier: Annotated[VerifierConfig, VERIFIERS] = verifier_config("math")


def test_a_recipe_reads_overrides_and_round_trips(tmp_path: Any) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    recipe = load(Recipe, path, ["verifier.parts.language.weight=0.2", "verifier.parts.loops.ngram=5"])
    assert {name: part.kind for name, part in recipe.verifier.parts.items()} == {
        "language": "language", "shape": "format", "overlong": "overlong", "brief": "cosine_length",
        "loops": "repetition", "second": "verifier",
    }  # fmt: skip
    assert recipe.verifier.parts["language"].weight == 0.2
    assert recipe.verifier.parts["language"].gate == "format"
    path.write_text(dump_toml(recipe))
    assert load(Recipe, path) == recipe
    assert "[verifier.parts.language]" in path.read_text()


def part(**dials: Any) -> dict[str, Any]:
    return {"parts": {"one": dials}}


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ({"parts": {"language": {"kind": "language", "weight": 1, "gaet": "always"}}},
         r"verifier\.parts\.language\.gaet: unknown key; did you mean 'gate'"),
        ({"parts": {"format": {"kind": "overlong", "weight": 1, "cache_token": 4}}},
         r"verifier\.parts\.format\.cache_token: unknown key; did you mean 'cache_tokens'"),
        ({"parts": {"weight": {"kind": "repetition", "weight": 1, "zzz": 4}}},
         r"verifier\.parts\.weight\.zzz: unknown key; known keys: gate, kind, ngram, weight"),
        (part(kind="language"), r"verifier\.parts\.one\.weight: Field required"),
        (part(kind="language", weight=-1), r"verifier\.parts\.one\.weight = -1"),
        (part(kind="speed", weight=1), r"verifier\.parts\.one: there is no reward part 'speed'; .*cosine_length"),
        (part(weight=1), r"verifier\.parts\.one: kind is missing"),
        (part(weight=1, kind=["language"]), r"verifier\.parts\.one: kind = \['language'\] is no text"),
        ({"parts": {"Part One": {"kind": "format", "weight": 1}}}, r"'Part One'"),
        (part(kind="cosine_length", weight=1, wrong_long=0.5), r"parts\.one\.wrong_long = 0\.5.*equal to 0"),
        (part(kind="verifier", verifier="judge", combine="all", weight=1), r"parts\.one: combine = 'all'.*weight = 0"),
        (part(kind="verifier", verifier="judge", combine="any", gate="correct"), r"parts\.one: combine = 'any'"),
        (part(kind="language", weight=1, gate="format"), r'parts\.one: gate = "format" needs .* kind = "format"'),
        (part(kind="format", weight=1) | {"format_reward": 0.1}, r"format_reward = 0\.1 and a part.*one of them"),
        ({"parts": {"accuracy": {"kind": "format", "weight": 1}}}, r"parts\.accuracy: the names .* are taken"),
        ({"cap_wrong": 1.0}, r"cap_wrong = 1 must be below correct_reward = 1"),
        ({"cap_wrong": -0.5}, r"verifier\.cap_wrong = -0\.5"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(verifier: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(Recipe, {"verifier": {"kind": "math", **verifier}})


@pytest.mark.parametrize(
    ("dials", "said"),
    [
        ({"kind": "verifier", "verifier": "math"}, "the verifier is 'math' already"),
        (
            {"kind": "verifier", "verifier": "nobody"},
            r"parts\.one\.verifier = 'nobody': there is no verifier 'nobody'; known are .*countdown",
        ),
    ],
)
def test_a_second_opinion_comes_from_another_verifier_that_exists(dials: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_verifier(parse(Recipe, {"verifier": {"kind": "math", **part(**dials)}}).verifier)


def test_length_needs_a_limit_and_a_cache_within_it() -> None:
    overlong = verifier_config({"kind": "math", **part(kind="overlong", weight=1, cache_tokens=32)}).parts
    check_lengths(overlong, 32)
    with pytest.raises(ConfigError, match=r"parts\.one\.cache_tokens = 32.*at most 31"):
        check_lengths(overlong, 31)
    with pytest.raises(ConfigError, match=r"parts\.one: kind 'overlong' needs the token limit"):
        check_lengths(overlong, None)
    cosine = verifier_config({"kind": "math", **part(kind="cosine_length", weight=1)}).parts
    with pytest.raises(ConfigError, match="needs the token limit"):
        check_lengths(cosine, None)
    check_lengths(verifier_config({"kind": "math", **part(kind="repetition", weight=1)}).parts, None)
