"""Mixtures: proportions, order, one template, and the verifier of each part."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.checks.audit.verifier import quick_audit
from groupwise.config import Section, dump_toml, load, parse
from groupwise.errors import ConfigError, VerifierError
from groupwise.tasks import TaskOptions, make_task, with_verifier
from groupwise.tasks.base import Task
from groupwise.tasks.mixture import interleaved
from groupwise.types import SPLITS, Outcome, Verdict
from groupwise.verifiers import Request, make_verifier, verifier_config
from groupwise.verifiers.composition import RoutedConfig, RoutedVerifier

SUMS = {"kind": "arithmetic", "kinds": ["sum"], "num_problems": 60, "num_eval_problems": 10}
GAMES = {"kind": "countdown", "num_problems": 60, "num_eval_problems": 10}
TALK = {"kind": "general", "num_problems": 20, "num_eval_problems": 6}


class Recipe(Section):
    task: TaskOptions


def mixture(template: Any = None, **parts: Any) -> Task:
    more = {} if template is None else {"template": template}
    return make_task(parse(Recipe, {"task": {"kind": "mixture", "parts": parts, **more}}).task)


def part(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"task": task, **more}


@pytest.fixture
def three() -> Task:
    return mixture(sums=part(SUMS, weight=3), games=part(GAMES, weight=2), talk=part(TALK))


def test_every_beginning_is_in_proportion(three: Task) -> None:
    kinds = [problem.id.partition("/")[0] for problem in three.problems("train")]
    assert kinds[:6] == ["arithmetic", "countdown", "arithmetic", "general", "countdown", "arithmetic"]
    assert [kinds[:60].count(kind) for kind in ("arithmetic", "countdown", "general")] == [30, 20, 10]
    # sums are used up first: 60 of them, with two thirds and one third as many of the others
    assert [kinds.count(kind) for kind in ("arithmetic", "countdown", "general")] == [60, 40, 20]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5), st.lists(st.integers(0, 30), min_size=5, max_size=5))
def test_nothing_is_lost_or_out_of_order(weights: list[float], sizes: list[int]) -> None:
    parts = {f"p{i}": [(i, number) for number in range(sizes[i])] for i in range(len(weights))}
    found = list(interleaved(parts, {f"p{i}": weight for i, weight in enumerate(weights)}))
    for i in range(len(weights)):
        own = [element for element in found if element[0] == i]
        assert own == parts[f"p{i}"][: len(own)]
    assert any(len([e for e in found if e[0] == i]) == sizes[i] for i in range(len(weights)))


@given(st.floats(0.05, 20))
def test_two_parts_are_never_more_than_one_away(weight: float) -> None:
    parts = {"a": ["a"] * 50, "b": ["b"] * 50}
    found = list(interleaved(parts, {"a": weight, "b": 1.0}))
    for length in range(len(found) + 1):
        assert abs(found[:length].count("a") - length * weight / (weight + 1)) <= 1


def test_problems_are_those_of_the_parts_and_name_their_verifier(three: Task) -> None:
    sums = {problem.id: problem for problem in make_task(parse(Recipe, {"task": SUMS}).task).problems("dev")}
    found = [problem for problem in three.problems("dev") if problem.id in sums]
    assert found
    for problem in found:
        original = sums[problem.id]
        assert problem == replace(original, verifier="number", difficulty=f"sums: {original.difficulty}")
        assert original.verifier == ""
    assert {problem.verifier for problem in three.problems("dev")} == {"number", "countdown", "answered"}


def test_splits_are_disjoint_and_repeat_themselves(three: Task) -> None:
    ids = {split: [problem.id for problem in three.problems(split)] for split in SPLITS}
    assert len({one for split in SPLITS for one in ids[split]}) == sum(map(len, ids.values()))
    again = mixture(sums=part(SUMS, weight=3), games=part(GAMES, weight=2), talk=part(TALK))
    assert {split: [problem.id for problem in again.problems(split)] for split in SPLITS} == ids
    assert three.find(ids["test"][0]) == three.problems("test")[0]


def test_references_pass_their_verifiers(three: Task) -> None:
    with make_verifier("routed") as verifier:
        three.validate(verifier.verify)
        quick_audit(three, verifier)


class Careless(RoutedVerifier):
    """Pays for everything in countdown."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [
            replace(verdict, outcome=Outcome.CORRECT) if request.problem.verifier == "countdown" else verdict
            for request, verdict in zip(requests, super().verify_many(requests), strict=True)
        ]


def test_the_audit_attacks_every_part(three: Task) -> None:
    with pytest.raises(VerifierError, match="'countdown' pays for 'no answer'") as error:
        quick_audit(three, Careless(RoutedConfig(kind="routed")))
    assert str(error.value).endswith("see all with `groupwise audit countdown`")


def test_one_template_is_shared() -> None:
    thinking = {"prefill": "<think>"}
    for own in ({}, {"template": thinking}):
        task = mixture(thinking, sums=part({**SUMS, **own}), talk=part({**TALK, **own}))
        assert task.template.prefill == "<think>"
    for template in (None, {"prefill": "<think>\n"}):
        with pytest.raises(ConfigError, match=r"parts\.sums\.task\.template is not"):
            mixture(template, sums=part({**SUMS, "template": thinking}), talk=part(TALK))


def test_parts_with_the_same_problem_are_refused() -> None:
    task = mixture(one=part(SUMS), two=part({**SUMS, "num_problems": 5}))
    with pytest.raises(ConfigError, match=r"parts\.one .*parts\.two .*arithmetic/"):
        task.problems("train")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"parts": {}}, r"task\.parts: Dictionary should have at least 1 item"),
        ({}, r"task\.parts: Field required"),
        ({"parts": {"a": part(SUMS, weight=0)}}, r"task\.parts\.a\.weight = 0: .* greater than 0"),
        ({"parts": {"a b": part(SUMS)}}, r"task\.parts\.a b"),
        ({"parts": {"a": part({**SUMS, "kinda": 1})}},
         r"task\.parts\.a\.task\.kinda: unknown key; did you mean 'kind'"),
        ({"parts": {"a": part({"kind": "mixture", "parts": {"b": part(SUMS)}})}},
         r"parts\.a\.task is a mixture itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed_is_named(task: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(Recipe, {"task": {"kind": "mixture", **task}})


def test_a_mixture_survives_its_file(tmp_path: Any) -> None:
    recipe = parse(Recipe, {"task": {"kind": "mixture", "parts": {"a": part(SUMS, weight=2), "b": part(TALK)}}})
    (tmp_path / "recipe.toml").write_text(dump_toml(recipe), "utf-8")
    assert load(Recipe, tmp_path / "recipe.toml") == recipe


def test_a_part_may_name_its_verifier_and_one_kind_has_one_section() -> None:
    tables = {"kind": "mixture", "parts": {"a": part({**SUMS, "verifier": {"kind": "math", "timeout_s": 30}})}}
    task = make_task(tables)
    assert {problem.verifier for problem in task.problems("dev")} == {"math"}
    assert task.verifier_config.each["math"].timeout_s == 30  # type: ignore[attr-defined]
    paid = with_verifier({"task": tables, "verifier": {"correct_reward": 2.0}}, None)["verifier"]
    routed = verifier_config(paid)
    assert routed.member("math").correct_reward == routed.member("number").correct_reward == 2.0  # type: ignore[attr-defined]
    both = {**tables["parts"], "b": part({**GAMES, "verifier": "math"})}  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"parts\.a\.task and parts\.b\.task .*'math' with different settings"):
        _ = make_task({**tables, "parts": both}).verifier_config


def test_what_a_task_itself_says_of_its_verifier_holds_in_a_mixture(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from groupwise.tasks.arithmetic import Arithmetic\nfrom groupwise.verifiers import verifier_config\n"
        "class Own(Arithmetic):\n    verifier_config = verifier_config({'kind': 'number', 'decimals': 2})\n"
    )
    own = {**SUMS, "kind": f"{tmp_path}/own.py:Own"}
    assert mixture(own=part(own), talk=part(TALK)).verifier_config.each["number"].decimals == 2  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"parts\.own\.task and parts\.sums\.task .*'number' with different settings"):
        _ = mixture(own=part(own), sums=part(SUMS)).verifier_config
