"""Products and stories of the base model's text: shares of the ways, right answers, mistakes where they are meant."""

import re
from collections import Counter
from functools import cache

import pytest

import diet_working as working
from diet import Diet, Document, document
from diet_config import FAMILIES, VERIFY_ERROR
from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import calculate, decompose
from groupwise.tasks.base import split_of

KINDS = {"product": 0.5, "sub_skill": 0.15, "chain": 0.03, "word_problem": 0.27, "countdown": 0.05}
MIX = Diet.model_validate({"kinds": {**dict.fromkeys(FAMILIES, 0.0), **KINDS}})
FACT = re.compile(r"(\d+)([-+×÷])(\d+)=(\d+)")


@cache
def documents() -> tuple[Document, ...]:
    return tuple(document(1, index, MIX) for index in range(6000))


def answer_of(entry: Document) -> str | None:
    found = re.fullmatch(r"<think>[^<>]*</think>\\boxed\{([^{}]+)\}", entry.completion)
    return found[1] if found else None


def test_prompts_are_of_train_splits() -> None:
    for entry in documents():
        if entry.kind == "word_problem":
            assert split_of(entry.prompt.removesuffix("\n")) == "train"
        elif entry.kind == "countdown":
            *numbers, target = map(int, re.findall(r"\d+", entry.prompt))
            assert split_of(f"countdown {'-'.join(map(str, sorted(numbers)))}={target}") == "train"
        elif entry.kind == "chain":
            chain = entry.prompt.removeprefix("What is ").removesuffix("?\n")
            assert split_of(f"chain {chain}") == "train"


def test_kinds_and_strategies_have_their_shares() -> None:
    kinds = Counter(entry.kind for entry in documents())
    products = Counter(entry.strategy for entry in documents() if entry.kind == "product")
    assert {kind: count / 6000 for kind, count in kinds.items()} == pytest.approx(KINDS, abs=0.02)
    shares = {strategy: count / kinds["product"] for strategy, count in products.items()}
    assert shares == pytest.approx(MIX.products, abs=0.03)


def test_product_answers_are_right_and_errors_are_confined_to_checked_workings() -> None:
    corrected = 0
    for entry in documents():
        left, right, *_ = map(int, [*re.findall(r"\d+", entry.prompt), 0, 0])
        facts = [
            (calculate(sign, int(a), int(b)), int(result)) for a, sign, b, result in FACT.findall(entry.completion)
        ]
        wrong = [fact for fact in facts if fact[0] != fact[1]]
        if entry.kind == "product" and entry.strategy != "unfinished_or_loop":
            assert answer_of(entry) == str(left * right)
        if wrong:
            assert entry.strategy in ("verify", "unfinished_or_loop"), entry
        if entry.kind == "product" and entry.strategy == "verify" and " No. " in entry.completion:
            assert len(wrong) == 1
            corrected += 1
    checked = sum(entry.kind == "product" and entry.strategy == "verify" for entry in documents())
    assert corrected / checked == pytest.approx(VERIFY_ERROR, abs=0.08)


def test_distracted_stories_end_in_a_wrong_number() -> None:
    draw = Draw("test", 1)
    steps = [("+", 12, 5, 17), ("×", 17, 3, 51)]
    assert working.take_wrong_number(draw, steps, None)[-1][3] != 51
    assert working.take_wrong_number(draw, steps, 9)[-1][3] != 51
    assert working.take_wrong_number(draw, [("+", 12, 17, 29)], None) == [("-", 17, 12, 5)]
    assert working.take_wrong_number(draw, [("÷", 4, 2, 2)], None) == [("+", 4, 2, 6)]


def test_workings_of_a_product() -> None:
    assert working.say(decompose(47, 86)) == "47×80=3760. 47×6=282. 3760+282=4042."
    assert working.say(working.rounding(86, 47)) == "86×50=4300. 86×3=258. 4300-258=4042."
    assert working.say(working.rounding(47, 83)) == "83×50=4150. 83×3=249. 4150-249=3901."


def test_weights_that_are_all_zero_are_refused() -> None:
    zeros = dict.fromkeys(FAMILIES, 0.0)
    with pytest.raises(ConfigError, match="at least one must be above 0"):
        parse(Diet, {"kinds": zeros})
