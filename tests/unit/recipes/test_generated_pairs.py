"""Pairs made by the hidden rule: labels, noise, what is shown, and the file."""

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from diet import alphabet
from general import Harmless, Helpful, criteria, is_harmless
from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.tasks.preferences import GeneratedPairs, Labelled, Pair, Pairs, PairsFile, labelled_pairs, load_pairs
from groupwise.types import Problem

TASK = {
    "kind": "mixture",
    "parts": {
        "talk": {"task": {"kind": "general", "num_problems": 100, "num_eval_problems": 20}},
        "stories": {"task": {"kind": "word_problems", "num_problems": 100, "num_eval_problems": 20}},
        "sums": {"task": {"kind": "arithmetic", "num_problems": 100, "num_eval_problems": 20}},
    },
}
RULES = {"helpful": Helpful(), "harmless": Harmless()}
KINDS = {name: f"worlds/general.py:{name.capitalize()}" for name in RULES}


def config(rule: str, mix: dict[str, Any] | None = None, **more: Any) -> GeneratedPairs:
    judge = {"kind": KINDS[rule], **({"mix": mix} if mix else {})}
    return parse(GeneratedPairs, {"source": "generated", "rule": judge, "task": TASK, "num_pairs": 400, **more})


def worth(rule: str, problem: Problem, completion: str) -> float:
    return RULES[rule].worth(problem, completion)


def shown(rule: str, **more: Any) -> tuple[Pairs, list[Labelled]]:
    """What a reward model reads, and the same pairs with what is known of them."""
    settings = config(rule, **more)
    train, held_out = labelled_pairs(settings)
    return load_pairs(settings), [*train, *held_out]


@pytest.mark.parametrize("rule", RULES)
def test_without_noise_the_labels_are_the_rule(rule: str) -> None:
    _, known = shown(rule, noise=0.0)
    for pair in known:
        assert worth(rule, pair.problem, pair.chosen) > worth(rule, pair.problem, pair.rejected)
        assert not pair.is_noise


def test_the_rule_can_be_read_off_what_is_shown() -> None:
    """Computed again from the texts alone, without the whole completions."""
    pairs, known = shown("helpful", noise=0.0)
    for pair, whole in zip([*pairs.train, *pairs.held_out], known, strict=True):
        problem = whole.problem
        better, worse = (
            sum(criteria(str(text), problem.reference, problem.language).values())
            for text in (pair.chosen, pair.rejected)
        )
        assert better > worse
    pairs, _ = shown("harmless", noise=0.0)
    for pair in (*pairs.train, *pairs.held_out):
        assert is_harmless(str(pair.chosen))
        assert not is_harmless(str(pair.rejected))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_the_share_of_noise_comes_out(rule: str, noise: float) -> None:
    _, known = shown(rule, noise=noise)
    wrong = [worth(rule, p.problem, p.chosen) < worth(rule, p.problem, p.rejected) for p in known]
    assert wrong == [pair.is_noise for pair in known]
    assert abs(sum(wrong) - noise * len(wrong)) <= 4 * sqrt(len(wrong) * noise * (1 - noise))


def test_noise_turns_pairs_around_and_changes_nothing_else() -> None:
    (clean, _), (noisy, known) = shown("helpful", noise=0.0), shown("helpful", noise=0.2)
    for one, other, pair in zip(clean.train, noisy.train, known, strict=False):
        assert (other.chosen, other.rejected) == ((one.rejected, one.chosen) if pair.is_noise else one[1:3])


def test_helpfulness_is_judged_on_the_answer_alone() -> None:
    template = {"prefill": "<think>"}
    pairs, known = shown("helpful", task={**TASK, "template": template})
    assert any(pair.problem.open_ended for pair in known)
    for pair, whole in zip([*pairs.train, *pairs.held_out], known, strict=True):
        assert pair.prompt == f"{whole.problem.question}\n"
        for text, completion in ((pair.chosen, whole.chosen), (pair.rejected, whole.rejected)):
            assert text == completion.partition("</think>")[2].strip()
            assert text


def test_harmlessness_is_judged_on_the_whole_completion() -> None:
    pairs, known = shown("harmless", task={**TASK, "template": {"prefill": "<think>"}})
    for pair, whole in zip([*pairs.train, *pairs.held_out], known, strict=True):
        assert pair.prompt == f"{whole.problem.question}\n<think>"
        assert (f"<think>{pair.chosen}", f"<think>{pair.rejected}") == (whole.chosen, whole.rejected)
    in_thinking = [p for p in pairs.train if not is_harmless(str(p.rejected).partition("</think>")[0])]
    assert 0.2 < len(in_thinking) / len(pairs.train) < 0.8


def test_no_prompt_is_learnt_from_and_measured() -> None:
    pairs, known = shown("helpful")
    assert (len(pairs.train), len(pairs.held_out)) == (400, 60)
    assert not {pair.prompt for pair in pairs.train} & {pair.prompt for pair in pairs.held_out}
    assert {pair.problem.open_ended for pair in known} == {True, False}


def test_problems_are_taken_in_turn_with_other_answers() -> None:
    pairs, known = shown("helpful")
    assert known[0].problem is known[300].problem
    assert known[0].chosen != known[300].chosen
    assert len({pair[:3] for pair in pairs.train}) > 390


def test_pairs_are_within_the_alphabet_and_repeat_themselves() -> None:
    for rule in RULES:
        first, second = (load_pairs(config(rule)) for _ in range(2))
        assert first == second
        assert all(set(f"{p.prompt}{p.chosen}{p.rejected}") <= set(alphabet()) for p in first.train)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"rule": "harmless", "mix": {"unwanted": 0.0}},
            "no two completions of general/.* differed in worth by .*:Harmless",
        ),
        (
            {"rule": "harmless", "mix": {"unwanted": 1.0}},
            "no two completions of general/.* differed in worth by .*:Harmless",
        ),
        (
            {"rule": "helpful", "mix": {"answers": {"friendly": 0, "off_topic": 0, "other_language": 0}}},
            r"data\.rule: in 1000 draws .* by .*Helpful; it must write completions of different worth",
        ),
    ],
)
def test_a_mix_of_equal_worth_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_pairs(config(**settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"noise": 0.5}, "noise = 0.5: .* less than 0.5"),
        ({"task": {**TASK, "template": {"chat": True}}}, r"task\.template\.chat = true"),
        ({"mix": {"unwanted": 1.5}}, r"mix\.unwanted = 1\.5"),
        ({"mix": {"answers": dict.fromkeys(("friendly", "plain", "rambling", "off_topic", "other_language"), 0)}},
         r"mix\.answers: all weights are 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config("helpful", **settings)


def write(path: Path, pairs: list[Pair]) -> None:
    path.write_text("".join(json.dumps(pair._asdict(), ensure_ascii=False) + "\n" for pair in pairs), "utf-8")


def test_a_file_of_pairs_is_read_as_it_was_written(tmp_path: Path) -> None:
    pairs = load_pairs(config("helpful", num_pairs=50)).train
    path = tmp_path / "pairs.jsonl"
    write(path, pairs)
    assert load_pairs(PairsFile(path=str(path), held_out=0.0)).train == pairs
    weighed = [pair._replace(margin=0.5) for pair in pairs]
    write(path, weighed)
    assert load_pairs(PairsFile(path=str(path), held_out=0.0, margin_field="margin")).train == weighed
    assert "朋友" in path.read_text("utf-8")
