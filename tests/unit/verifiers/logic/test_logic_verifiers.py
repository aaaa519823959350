"""Verifiers of logic and structure: hand-made answers, right, wrong and tricky, one table per verifier."""

from typing import Any

import pytest

from groupwise.types import Problem, Verdict
from groupwise.verifiers import make_verifier

KNIGHTS = "Zoey is a knight, Ella is a knave, and Noah is a knight."
RULES = [
    {"kind": "count", "unit": "words", "least": 5, "most": 5},
    {"kind": "keyword", "word": "river", "least": 1},
    {"kind": "keyword", "word": "train", "most": 0},
    {"kind": "case", "case": "lower"},
]


def judge(verifier: str, answer: str, reference: str, data: dict[str, Any] | None = None) -> Verdict:
    problem = Problem("p", "q", reference, data=data or {})
    return make_verifier(verifier).verify(problem, f"<think>x</think>\\boxed{{{answer}}}")


def check(verdict: Verdict, outcome: str, evidence: str) -> None:
    assert (verdict.outcome, evidence in verdict.evidence) == (outcome, True), verdict
    assert verdict.reward == (1.0 if outcome == "correct" else 0.0)


@pytest.mark.parametrize(
    ("answer", "outcome", "evidence"),
    [
        ("Zoey is a knight, Ella is a knave, Noah is a knight", "correct", ""),
        ("noah IS A KNIGHT; ella is a knave; zoey is a knight.", "correct", ""),
        ("(1) Zoey is a knight\n(2) Ella is a knave\n(3) Noah is a knight", "correct", ""),
        (r"\text{Zoey: knight, Ella: knave, and Noah: knight}", "correct", ""),
        (r"\textbf{Zoey} is a \mathbf{knight}, **Ella** is a knave, *Noah* is a **knight**", "correct", ""),
        (r"\textbf{Zoey} is a \textbf{knave}, **Ella** is a knave, Noah is a **knight**", "wrong", "said to be knave"),
        ("Zoey = knight, Ella = knave, Noah = knight", "correct", ""),
        ("Zoey is a knight and Ella is a knave and Noah is a knight", "correct", ""),
        ("Zoey is a knight, Ella is a knave, Noah is a knave", "wrong", "'noah' is said to be knave"),
        ("Zoey is a knight, Ella is a knave", "wrong", "'noah' is said to be nothing"),
        (f"{KNIGHTS[:-1]}, Bob is a knave", "wrong", "'bob' is said to be knave"),
        ("Zoey is a knight, Zoey is a knave, Ella is a knave, Noah is a knight", "unparsable", "named twice"),
        ("Zoey is a knight or a knave, Ella is a knave, Noah is a knight", "unparsable", ""),
        ("Zoey is a knight/knave, Ella is a knave, Noah is a knight", "unparsable", ""),
        (f"Case 1: {KNIGHTS}; Case 2: Zoey is a knave", "unparsable", ""),
        (f"Either {KNIGHTS[:-1]} or all are knaves", "unparsable", ""),
        ("So Zoey is a knight, Ella is a knave, Noah is a knight", "wrong", "'zoey' is said to be nothing"),
        (f"{KNIGHTS} I hope this helps!", "unparsable", "hope"),
        ("Zoey is not a knave, Ella is a knave, Noah is a knight", "unparsable", ""),
        ("knight, knave, knight", "unparsable", ""),
        ("Zoеy is a knight, Ella is a knave, Noah is a knight", "wrong", ""),  # a Cyrillic letter
        ("Zoey is a kni\u200bght, Ella is a knave, Noah is a knight", "unparsable", ""),
        ("all of them are both", "unparsable", ""),
    ],
)
def test_knights_knaves(answer: str, outcome: str, evidence: str) -> None:
    check(judge("knights_knaves", answer, KNIGHTS), outcome, evidence)


@pytest.mark.parametrize(
    ("answer", "outcome", "evidence"),
    [
        ('{"a": 1, "b": [true, null], "c": 2.50}', "correct", ""),
        ('\n{"c":25e-1,"b":[true,null],"a":1}\n', "correct", ""),
        ('{"a": 1.0, "b": [true, null], "c": 2.5}', "wrong", "$.a is of type number, not integer"),
        ('{"a": true, "b": [true, null], "c": 2.5}', "wrong", "$.a is of type boolean"),
        ('{"a": 1, "b": [1, null], "c": 2.5}', "wrong", "$.b.0 is of type integer, not boolean"),
        ('{"a": 1, "b": [null, true], "c": 2.5}', "wrong", "$.b.0 is of type null"),
        ('{"a": 1, "b": [true], "c": 2.5}', "wrong", "$.b has 1 items"),
        ('{"a": 1, "b": [true, null]}', "wrong", "$ has no 'c'"),
        ('{"a": 1, "b": [true, null], "c": 2.5, "d": 0}', "wrong", "$ has 'd', which is not in the reference"),
        ('{"a": 1, "b": [true, null], "c": 2.5000000000000000001}', "wrong", "$.c is"),
        ('{"a": 2, "a": 1, "b": [true, null], "c": 2.5}', "unparsable", "a key occurs twice"),
        ('{"a": NaN, "b": [true, null], "c": 2.5}', "unparsable", "NaN is not JSON"),
        ('{"a": -Infinity, "b": [true, null], "c": 2.5}', "unparsable", "Infinity is not JSON"),
        ('{"a": 1, "b": [true, null], "c": 2.5} {"a": 1}', "unparsable", "not JSON: Extra data"),
        ("{'a': 1, 'b': [true, null], 'c': 2.5}", "unparsable", "not JSON"),
        ('```json\n{"a": 1, "b": [true, null], "c": 2.5}\n```', "unparsable", "not JSON"),
        ('{"a": ' + "1" * 5000 + "}", "unparsable", "5000 characters"),
        ('{"a": 1e999999999}', "unparsable", "exponent"),
        ('{"a": 1e0001234}', "unparsable", "exponent"),
        ("[" * 21 + "]" * 21, "unparsable", "nested deeper than 20"),
        ('{"a": "\\ud800", "b": [true, null], "c": 2.5}', "wrong", "$.a is of type string"),
        ('[{"a": 1, "b": [true, null], "c": 2.5}]', "wrong", "$ is of type array, not object"),
    ],
)
def test_json(answer: str, outcome: str, evidence: str) -> None:
    check(judge("json", answer, '{"a": 1, "b": [true, null], "c": 2.5}'), outcome, evidence)


SCHEMA = {
    "type": "object", "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"type": "object"}},
    "required": ["a"], "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "outcome", "evidence", "measures"),
    [  # measures: parses, valid, values; the reference is {"a": 1, "b": {"c": 2.5, "d": []}}, three values
        ('{"a": 1, "b": {"c": 2.5, "d": []}}', "correct", "", (1, 1, 1)),
        ('<think>{</think>\n {"b": {"d": [], "c": 2.50}, "a": 1}\n', "correct", "", (1, 1, 1)),
        ('Here it is:\n```json\n{"a": 1, "b": {"c": 2.5, "d": []}}\n```\nDone.', "correct", "", (1, 1, 1)),
        ('Here:\r\n```json\r\n{"a": 1,\r\n"b": {"c": 2.5, "d": []}}\r\n```\r\n', "correct", "", (1, 1, 1)),
        ('```\n{"a": 1, "b": {"c": 2, "d": []}}\n```', "wrong", "$.b.c is '2'", (1, 1, 2 / 3)),
        ('\\boxed{{"a": 1, "b": {"c": 2.5, "d": []}}} {}', "correct", "", (1, 1, 1)),
        ('{"a": 6}', "wrong", "does not fit the schema: $.a: '6 is greater than the maximum of 5'", (1, 0, 0)),
        ('{"a": 1, "b": {"c": 2.5, "d": [], "e": 0, "f": 0, "g": 0}}', "wrong", "$.b has 'e'", (1, 1, 1 / 2)),
        ('{"a": 1, "x": 0}', "wrong", "does not fit the schema", (1, 0, 1 / 4)),
        ("[]", "wrong", "is not of type 'object'", (1, 0, 0)),
        ('Sure: {"a": 1}', "unparsable", "not JSON", (0, 0, 0)),
        ('{"a": 1} {"a": 1}', "unparsable", "not JSON: Extra data", (0, 0, 0)),
        ("```\n{}\n```\n```\n{}\n```", "unparsable", "2 fenced blocks", (0, 0, 0)),
        ('```json\n{"a": 1}', "unparsable", "no closed fenced block", (0, 0, 0)),
        ('<think>{"a": 1}', "unparsable", "<think>", (0, 0, 0)),
        ("", "unparsable", "no answer", (0, 0, 0)),
    ],
)
def test_json_stands_alone_or_in_a_fence_and_is_measured_by_its_schema(
    text: str, outcome: str, evidence: str, measures: tuple[float, ...]
) -> None:
    problem = Problem("p", "q", '{"a": 1, "b": {"c": 2.5, "d": []}}', data={"schema": SCHEMA})
    verdict = make_verifier({"kind": "json", "partial_credit": 0.5}).verify(problem, text)
    assert (verdict.outcome, evidence in verdict.evidence) == (outcome, True), verdict
    assert verdict.measures == pytest.approx(dict(zip(("parses", "valid", "values"), measures, strict=True)))
    assert verdict.reward == pytest.approx((outcome == "correct") + 0.5 * sum(measures) / 3)


@pytest.mark.parametrize(
    ("reference", "schema", "answer", "outcome", "valid"),
    [
        ('{"a": 6}', SCHEMA, '{"a": 6}', "crashed", None),  # the reference does not fit: a fault of the problem
        ("0.25", {"multipleOf": 0.01}, "0.30", "wrong", 1), ("0.1", {"enum": [0.1, 0.2]}, "0.10", "correct", 1),
        ("5", {"maximum": 6, "exclusiveMaximum": True}, "6", "crashed", None),  # of an older draft, which it must name
        ("5", {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 6, "exclusiveMaximum": True}, "6",
         "wrong", 0),
        ("5", {"$ref": "http://127.0.0.1:9/x.json"}, "6", "crashed", None),  # nothing is fetched
        ("5", "", "5", "correct", None), ("5", None, "6", "wrong", None), ("5", {}, "5", "correct", 1),  # of tables
        ("5", '{"type": "integer"}', '"5"', "wrong", 0), ("5", '{"type": "integer"', "5", "crashed", None),
    ],
)  # fmt: skip
def test_schemas_are_read_by_their_draft(reference: str, schema: Any, answer: str, outcome: str, valid: Any) -> None:
    verdict = make_verifier("json").verify(Problem("p", "q", reference, data={"schema": schema}), answer)
    assert (verdict.outcome, verdict.measures.get("valid")) == (outcome, valid), verdict
    assert outcome != "crashed" or "problem p" in verdict.evidence
    assert ("does not fit its schema" in verdict.evidence) is (reference == '{"a": 6}')


def test_json_strings_are_equal_character_by_character_and_brackets_in_them_are_no_nesting() -> None:
    brackets = '{"a": "' + "[" * 50 + '"}'
    check(judge("json", brackets, brackets), "correct", "")
    check(judge("json", '{"a": "Jose\\u0301"}', '{"a": "José"}'), "wrong", "$.a is 'Jose\\u0301', not 'Jos\\xe9'")
    check(judge("json", '{"a": "Jos\\u00e9"}', '{"a": "José"}'), "correct", "")


def test_json_spellings_share_one_canonical_answer() -> None:
    texts = ('{"a": 1, "b": 2.5}', '{"b":2.50,"a":1}', '{"b":25e-1,\n"a":1}')
    assert len({judge("json", text, "{}").answer for text in texts}) == 1
    others = ('{"a": 1, "b": "2.5"}', '{"a": 1, "b": 2.5000000000000000000000001}')
    assert len({judge("json", text, "{}").answer for text in (*texts, *others)}) == 3


@pytest.mark.parametrize(
    ("answer", "outcome", "evidence", "share"),
    [
        ("the old river is wide.", "correct", "all 4", 1.0),
        ("the river\n\nis wide today", "correct", "", 1.0),
        ("the old river is very wide.", "wrong", "words", 3 / 4),
        ("The old river is wide.", "wrong", "case", 3 / 4),
        ("the old rivers are wide.", "wrong", "river", 3 / 4),
        ("the old river train runs", "wrong", "train", 3 / 4),
        ("TRAIN", "wrong", "words", 0.0),
        ("the old ri\u200bver is wide.", "unparsable", "invisible character U+200B", None),
        ("the old river is\x00wide.", "unparsable", "invisible", None),
    ],
)
def test_instructions(answer: str, outcome: str, evidence: str, share: float | None) -> None:
    verdict = judge("instructions", answer, "", {"constraints": RULES})
    check(verdict, outcome, evidence)
    assert verdict.measures.get("constraints") == share


@pytest.mark.parametrize(
    ("unit", "text", "number"),
    [("words", "It's a well-known fact: 3 of 10 don't.", 8), ("words", "- one\n- two -- three", 3),
     ("words", "été, naïve café", 3), ("sentences", "One. Two! Three?! No stop", 3),
     ("sentences", "Version 2.5 is out... at last.", 2), ("lines", "a\n\n \nb", 2),
     ("paragraphs", "a\nb\n \n\nc\n\nd", 3), ("bullets", "- a\n - b\n-c\n- d", 2), ("commas", "a, b, c", 2)],
)  # fmt: skip
def test_counts(unit: str, text: str, number: int) -> None:
    def within(**bounds: int) -> str:
        return str(
            judge("instructions", text, "", {"constraints": [{"kind": "count", "unit": unit, **bounds}]}).outcome
        )

    assert within(least=number, most=number) == within(least=number) == within(most=number) == "correct"
    assert within(least=number + 1) == within(most=number - 1) == "wrong"


def test_partial_credit_pays_for_the_share_of_constraints_met() -> None:
    problem = Problem("p", "q", "", data={"constraints": RULES})
    verifier = make_verifier({"kind": "instructions", "partial_credit": 0.5})
    some = verifier.verify(problem, r"<think>x</think>\boxed{the old river is so very wide.}")
    assert some.parts["partial"] == 0.5 * 3 / 4
    assert some.reward == 0.5 * 3 / 4
    assert verifier.verify(problem, "<think>x</think>no box").parts["partial"] == 0


def test_first_and_last_word_are_taken_in_their_spelling() -> None:
    rules = {"constraints": [{"kind": "first_word", "word": "The"}, {"kind": "last_word", "word": "end"}]}
    check(judge("instructions", '- "The very end."', "", rules), "correct", "")
    check(judge("instructions", "the very end.", "", rules), "wrong", "first_word")
    check(judge("instructions", "!?", "", rules), "unparsable", "no word")


def test_the_tag_is_read_when_it_is_asked_for() -> None:
    verifier = make_verifier({"kind": "countdown", "extraction": "tag", "format_reward": 0.5})
    problem = Problem("p", "q", "5", data={"numbers": [5], "target": 5})
    assert verifier.verify(problem, "<think>x</think><answer>5</answer>").reward == 1.5
    assert verifier.verify(problem, "<think>x</think>\\boxed{5}").outcome == "unparsable"


@pytest.mark.parametrize(
    ("name", "data"),
    [("knights_knaves", {}), ("json", {}), ("instructions", {"constraints": [{"kind": "rhyme"}]}),
     ("instructions", {"constraints": []}), ("countdown", {"numbers": "1", "target": 1}),
     ("countdown", {"numbers": [1.7], "target": 1}), ("countdown", {"numbers": [True], "target": 1}),
     ("countdown", {"numbers": [1], "target": 1.5}), ("countdown", {"numbers": [1], "target": True})],
)  # fmt: skip
def test_an_unusable_problem_is_the_verifiers_failure(name: str, data: dict[str, Any]) -> None:
    verdict = judge(name, "1", "?!", data)
    assert (verdict.outcome, verdict.reward) == ("crashed", None)
    assert "p" in verdict.evidence
