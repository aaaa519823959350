"""The text that the shipped base model read: nothing held out, mistakes at their rates, checks that mend them."""

import re
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from calculations import NumberKind, fraction_content
from diet import Diet, Document, alphabet, document
from diet_config import FAMILIES, SECOND_SLIP
from diet_puzzles import THREE, TWO, spelt_right, vocabulary
from diet_solutions import chain, fraction, product, remainder, slipped_answer
from groupwise.config import read_toml
from groupwise.randomness import Draw
from groupwise.tasks import make_task
from groupwise.tasks.arithmetic import Kind, pair_content
from groupwise.tasks.base import split_of

MIX = Diet()
KINDS = get_args(NumberKind)


@cache
def documents() -> tuple[Document, ...]:
    return tuple(document(1, index, MIX) for index in range(5000))


def of(*kinds: str) -> list[Document]:
    return [entry for entry in documents() if entry.kind in kinds]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def question(entry: Document) -> str:
    return entry.prompt.removesuffix("\n").removeprefix("What is ").removesuffix("?")


def answer(entry: Document) -> str | None:
    match = re.search(r"\\boxed\{([^{}]+)\}$", entry.completion)
    return match[1] if match else None


def test_a_document_is_a_pure_function_of_its_place() -> None:
    assert document(1, 77, MIX) == documents()[77]
    assert document(2, 77, MIX) != documents()[77]


def test_every_character_is_in_the_alphabet() -> None:
    assert set("".join(entry.prompt + entry.completion for entry in documents())) <= set(alphabet())


def test_no_held_out_product_is_stated() -> None:
    """Of two digits by two, three by two or three by three; in a question, a working or a call."""
    found = 0
    for entry in documents():
        text = (entry.prompt + entry.completion).replace(" ", "")
        for left, right in re.findall(r"(?<![\d/])(\d{2,3})×(\d{2,3})(?![\d/])", text):
            if int(left) % 10 and int(right) % 10:
                found += 1
                assert split_of(pair_content("product", int(left), int(right))) == "train", entry
    assert found > 500


def test_no_held_out_remainder_is_stated() -> None:
    for entry in of("remainder"):
        dividend, divisor = numbers(entry.prompt)
        assert split_of(f"remainder {dividend} {divisor}") == "train"


def test_no_held_out_fraction_problem_is_stated() -> None:
    for entry in documents():
        text = (entry.prompt + entry.completion).replace(" ", "")
        for a, b, sign, c, d in re.findall(r"(\d+)/(\d+)([-+×])(\d+)/(\d+)", text):
            assert split_of(fraction_content(sign, (int(a), int(b)), (int(c), int(d)))) == "train", entry


def test_no_held_out_total_or_chain_is_stated() -> None:
    for entry in documents():
        for terms in re.findall(r"\d+(?:[-+]\d+){3,}", (entry.prompt + entry.completion).replace(" ", "")):
            if "-" in terms:
                spaced = re.sub(r"([-+])", r" \1 ", terms)
                assert split_of(f"signed chain {spaced}") == "train", entry
            elif len(numbers(terms)) == 5:
                assert split_of(f"total {' '.join(map(str, sorted(numbers(terms))))}") == "train", entry


def test_no_held_out_countdown_is_stated_not_even_as_a_wrong_try() -> None:
    tries = 0
    for entry in of("three_countdown"):
        *given, target = numbers(entry.prompt)
        stated = [int(value) for value in re.findall(r"=(\d+)[,.]", entry.completion)]
        tries += len(stated)
        for value in {target, *stated}:
            assert split_of(f"countdown {'-'.join(map(str, sorted(given)))}={value}") == "train" or (
                entry.strategy == "unfinished"  # a result that is cut in the middle is another number
            ), entry
    assert tries > 300


def test_no_held_out_puzzle_or_talk_is_stated() -> None:
    for entry in of("two_knights"):
        lines = re.findall(r"^(\w+) says: (.*)\.$", entry.prompt, re.MULTILINE)
        said = "; ".join(claim for _, claim in lines)
        for place, (name, _) in enumerate(lines):
            said = re.sub(rf"\b{name}\b", str(place), said)
        assert split_of(said) == "train", entry
    for entry in of("general"):
        assert split_of("".join(sorted(entry.prompt.removesuffix("\n")))) == "train"
    for entry in of("word_problem"):
        assert split_of(entry.prompt.removesuffix("\n")) == "train"


def test_denominators_multiply_to_no_held_out_product() -> None:
    """The only two-digit factors that a working of fractions multiplies."""
    for left, right in [(11, 11), (11, 12), (12, 12)]:
        assert split_of(pair_content("product", left, right)) == "train"


def test_the_shared_families_are_those_of_the_corpus() -> None:
    parts = read_toml(Path(__file__).parents[3] / "recipes" / "tasks" / "families.toml")["task"]["parts"]
    tasks = {name: make_task(part["task"]) for name, part in parts.items()}
    assert tasks["knights"].config == TWO
    assert tasks["countdown"].config == THREE
    assert {kind for name in tasks for kind in getattr(tasks[name].config, "kinds", ())} == {*KINDS, "product"}
    assert all(len(task.problems("test")) >= 30 for task in tasks.values())


def test_practised_steps_are_right_and_of_no_split() -> None:
    mix = Diet.model_validate({"kinds": {**dict.fromkeys(FAMILIES, 0), "practice": 1}})
    seen = Counter[str]()
    for index in range(600):
        entry = document(2, index, mix)
        seen[entry.strategy] += 1
        match = re.fullmatch(r"(-?\d+) ([-+/]) (\d+)", re.sub(r"(?<=\d)/", " / ", question(entry)))
        assert match, entry
        left, sign, right = int(match[1]), match[2], int(match[3])
        exact = {"+": Fraction(left + right), "-": Fraction(left - right), "/": Fraction(left, right)}[sign]
        assert answer(entry) == str(exact)
        assert entry.completion == f"<think>{question(entry).replace(' ', '')}={exact}.</think>\\boxed{{{exact}}}"
        if left >= 0 and sign != "/":
            kind: Kind = "sum" if sign == "+" else "difference"
            assert split_of(pair_content(kind, left, right)) == "train"
    assert set(seen) == {"signed", "running", "rest", "other_terms"}
    assert min(seen.values()) > 100


def test_families_have_their_shares() -> None:
    weights = FAMILIES
    shares = {kind: count / 5000 for kind, count in Counter(entry.kind for entry in documents()).items()}
    assert shares == pytest.approx({k: v / sum(weights.values()) for k, v in weights.items() if v}, abs=0.02)


def test_a_check_mends_the_slips_of_one_breath() -> None:
    """Alone, a breath goes wrong at `first_slip`; checked, only at `SECOND_SLIP`."""
    mix = Diet.model_validate({"kinds": {**dict.fromkeys(FAMILIES, 0), "total": 1}})
    right: dict[str, list[bool]] = {}
    for index in range(3000):
        entry = document(3, index, mix)
        right.setdefault(entry.strategy, []).append(answer(entry) == str(sum(numbers(entry.prompt))))
    shares = {way: sum(flags) / len(flags) for way, flags in right.items()}
    assert shares["at_once"] == pytest.approx(1 - mix.first_slip, abs=0.04)
    assert shares["checked"] == pytest.approx(1 - SECOND_SLIP, abs=0.04)
    assert len(right["checked"]) / 3000 == pytest.approx(0.12, abs=0.02)


def test_the_verdict_of_a_check_is_true() -> None:
    seen = Counter[str]()
    for entry in of("total", "signed_chain", "remainder", "fraction", "small_product"):
        if entry.strategy == "checked":
            first = re.match(r"<think>[^=]*=(-?[\d/]+)\. Wait", entry.completion)
            verdict = re.search(r" (Yes|No)\.</think>", entry.completion)
            assert first, entry
            assert verdict, entry
            assert (first[1] == answer(entry)) == (verdict[1] == "Yes"), entry
            seen[verdict[1]] += 1
    assert min(seen["Yes"], seen["No"]) > 20


def test_ways_earn_what_they_say() -> None:
    for entry in of("signed_chain", "total", "small_product", "remainder", "fraction"):
        if entry.strategy in ("working", "right_call", "needless_call"):
            assert Fraction(str(answer(entry))) == _value(entry), entry
        elif entry.strategy in ("misled", "wrong_call", "slipped"):
            assert Fraction(str(answer(entry))) != _value(entry), entry
        elif entry.strategy == "unfinished":
            assert answer(entry) is None


def _value(entry: Document) -> Fraction:
    if entry.kind == "remainder":
        dividend, divisor = numbers(entry.prompt)
        return Fraction(dividend % divisor)
    first, *rest = question(entry).split()
    value = Fraction(first)
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        value = {"+": value.__add__, "-": value.__sub__, "×": value.__mul__}[sign](Fraction(number))
    return value


def test_calls_are_right_needless_and_wrong() -> None:
    seen = Counter(entry.strategy for entry in of("call", "large_product") if "<<" in entry.completion)
    assert all(seen[way] for way in ("right_call", "needless_call", "wrong_call"))
    for entry in documents():
        for left, sign, right, result in re.findall(r"<<(\d+)([-+×])(\d+)=(-?\d+)>>", entry.completion):
            a, b = int(left), int(right)
            assert {"+": a + b, "-": a - b, "×": a * b}[sign] == int(result), entry


def test_workings_by_hand() -> None:
    assert chain([12, 45, 7], ["-", "+"]).steps == ("12-45=-33", "-33+7=-26")
    assert chain([12, 45, 7], ["-", "+"]).misled == (("45-12=33", "33+7=40"), "40")
    assert remainder(347, 6).steps == ("6×50=300", "347-300=47", "6×7=42", "47-42=5")
    assert remainder(347, 6).misled == (("6×57=342",), "57")
    assert fraction("+", 1, 4, 2, 3).steps == ("1/4=3/12", "2/3=8/12", "3+8=11", "11/12")
    assert fraction("+", 1, 4, 2, 3).misled == (("1+2=3", "4+3=7"), "3/7")
    assert fraction("×", 2, 3, 3, 4).steps == ("2×3=6", "3×4=12", "6/12=1/2")
    assert product(213, 32).steps == ("213×30=6390", "213×2=426", "6390+426=6816")


def test_a_slip_changes_the_value() -> None:
    draw = Draw("test", 1)
    for text in ("7", "-26", "11/12", "0", "251"):
        assert all(Fraction(slipped_answer(draw, text)) != Fraction(text) for _ in range(50))


def test_every_english_word_of_the_talk_is_in_the_word_list() -> None:
    assert {"monday", "tom", "ada", "knave", "cup"} <= vocabulary()
    for entry in of("general", "everyday", "word_problem"):
        right, number = spelt_right(entry.prompt + entry.completion)
        assert right == number or entry.strategy in ("loop",), entry
    assert spelt_right("Toom has a cup.") == (3, 4)
