"""IFEval's checks, one text that follows an instruction and one that just does not; worked by hand from its sources."""

from typing import Any

import pytest

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.ifeval import CHECKS, IfevalVerifier, count_sentences, variants

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["cat", "dog"]}, "Cats and dogs", "Cats"),
    ("keywords:frequency", {"keyword": "an", "relation": "at least", "frequency": 2}, "An ant", "ant"),
    ("keywords:frequency", {"keyword": "an", "relation": "less than", "frequency": 2}, "ant", "An ant"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "cats", "A CAT."),
    ("keywords:letter_frequency", {"letter": "E", "let_relation": "at least", "let_frequency": 2}, "Eve", "yet"),
    ("language:response_language", {"language": "de"}, "Das ist ein schöner Tag.", "This is a lovely day."),
    ("length_constraints:number_sentences", {"relation": "at least", "num_sentences": 2}, "A b. C d!", "Mr. X left."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb\n***", "a\n***\n\n***\nb"),
    ("length_constraints:number_words", {"relation": "less than", "num_words": 3}, "two-words", "not two-words"),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"}, 'a\n\n"then, b', "a\n\nthen\n\nc"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a [b]"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "a\np. p.s. b", "a\nP.S. b"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "P. S. b", "PS b"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n** b"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "My answer is maybe"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* b *c*", "*a* * *"),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     "Section 1 a Section2", "Section a SECTION 2"),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{'a': 1}"),
    ("detectable_format:title", {}, "<<A>>", "<< >>"),
    ("combination:two_responses", {}, "a\n******\nb", "a******a"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, " say it. So", "So say it."),
    ("startend:end_checker", {"end_phrase": "Bye."}, 'So "bye."', "bye. So"),
    ("startend:quotation", {}, '"a"', '"'),
    ("change_case:capital_word_frequency", {"capital_relation": "at least", "capital_frequency": 2},
     "A-B and C", "A-B"),
    ("change_case:english_capital", {}, "THIS IS A LOVELY DAY.", "THIS IS A LOVELY day."),
    ("change_case:english_lowercase", {}, "this is a lovely day.", "das ist ein schöner tag."),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "args", "kept", "broken"), CASES)
def test_each_kind(kind: str, args: dict[str, Any], kept: str, broken: str) -> None:
    assert CHECKS[kind](args, kept)
    assert not CHECKS[kind](args, broken)


def test_every_kind_has_a_case() -> None:
    assert {kind for kind, *_ in CASES} == CHECKS.keys()
    assert len(CHECKS) == 25


@pytest.mark.parametrize(
    ("text", "number"),
    [("One. Two! Three?", 3), ("Dr. J. Doe came, e.g. today.", 1), ("1. First.\n2. Second.", 2), ("No end", 1), ("", 0),
     ('He said "No." Then he left', 2), ("3.14 is pi.", 1)],
)  # fmt: skip
def test_sentences(text: str, number: int) -> None:
    assert count_sentences(text) == number


def judged(text: str, kinds: list[str], args: list[dict[str, Any]]) -> Verdict:
    problem = Problem("p", "?", "", data={"instruction_id_list": kinds, "kwargs": args})
    with IfevalVerifier() as verifier:
        (verdict,) = verifier.verify_many([Request(problem, text)])
    return verdict


def test_strict_and_loose() -> None:
    kinds = ["punctuation:no_comma", "startend:quotation"]
    verdict = judged('Sure, here it is:\n"text"', kinds, [{}, {}])
    assert verdict.outcome is Outcome.WRONG
    assert verdict.measures == {
        "prompt_loose": 1.0, "instructions": 2.0, "instruction_strict": 0.0, "instruction_loose": 1.0
    }  # fmt: skip
    assert judged('"text"', kinds, [{}, {}]).outcome is Outcome.CORRECT
    assert judged(" ", ["punctuation:no_comma"], [{}]).measures["instruction_loose"] == 0.0
    assert variants("a*\nb\nc") == ["a*\nb\nc", "b\nc", "a*\nb", "b", "a\nb\nc", "b\nc", "a\nb", "b"]


def test_data_that_cannot_be_read_is_no_wrong_answer() -> None:
    assert judged("x", [], []).outcome is Outcome.CRASHED
    assert judged("x", ["startend:end_checker"], [{"end_phrase": ["x"]}]).outcome is Outcome.CRASHED
    assert judged("x", ["punctuation:no_colon"], [{}]).outcome is Outcome.CRASHED
    assert judged("x", ["keywords:existence"], [{}]).outcome is Outcome.CRASHED
