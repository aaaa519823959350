"""JSON extraction and instructions: what is asked can be read off the text, and the rules hold of the reference."""

import json
import re

from groupwise.tasks import make_task
from groupwise.tasks.instructions import RULES, Draft
from groupwise.tasks.json_extraction import FACTS, schema_of

TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def test_references_fit_the_schema_and_are_stated_of_the_asked_order() -> None:
    task = make_task({"kind": "json_extraction", "num_problems": 100, "num_orders": 3})
    for problem in task.problems("train"):
        *paragraphs, request = problem.question.split("\n")
        wanted, _, schema_text = request.removeprefix("Give order ").partition(
            " as one JSON value that fits this schema: "
        )
        schema, record = json.loads(schema_text), json.loads(problem.reference)
        (paragraph,) = [each for each in paragraphs if each.startswith(f"Order {wanted}.")]
        assert list(record) == schema["required"] == list(schema["properties"])
        for name, value in record.items():
            allowed = schema["properties"][name]["type"]
            assert type(value) in [TYPES[each] for each in ([allowed] if isinstance(allowed, str) else allowed)]
            assert FACTS[name].say(value) in paragraph


def test_no_text_of_a_reference_holds_a_brace_or_backslash() -> None:
    """They would end the box that the answer stands in."""
    for problem in make_task({"kind": "json_extraction", "num_problems": 100}).problems("train"):
        texts = re.findall(r'"[^"]*"', problem.reference)
        assert not re.search(r"[{}\\]", "".join(texts))


def test_the_schema_allows_no_other_field() -> None:
    assert schema_of(["item"]) == {
        "type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"],
        "additionalProperties": False,
    }  # fmt: skip


def test_rules_hold_of_their_reference_by_plain_counting() -> None:
    task = make_task({"kind": "instructions", "num_problems": 300, "max_rules": 6})
    checked = set()
    for problem in task.problems("train"):
        text = problem.reference
        words = [token.strip(".") for token in text.split() if token != "-"]
        counts = {
            "words": len(words), "sentences": text.count("."), "commas": 0, "paragraphs": text.count("\n\n") + 1,
            "lines": len([line for line in text.split("\n") if line]), "bullets": ("\n" + text).count("\n- "),
        }  # fmt: skip
        for rule in problem.data["constraints"]:
            checked.add((rule["kind"], rule.get("unit")))
            if rule["kind"] in ("count", "keyword"):
                folded = [word.lower() for word in words]
                number = counts[rule["unit"]] if rule["kind"] == "count" else folded.count(rule["word"])
                assert rule.get("least", 0) <= number <= rule.get("most", 999)
            elif rule["kind"] == "case":
                assert text == (text.lower() if rule["case"] == "lower" else text.upper())
            else:
                assert rule["word"] == words[0 if rule["kind"] == "first_word" else -1]
    assert len(checked) == 10


def test_every_kind_of_rule_is_said_in_words_with_its_number() -> None:
    task = make_task({"kind": "instructions", "num_problems": 200})
    for problem in task.problems("train"):
        rules = problem.question.split("\n- ")[1:]
        assert len(rules) == len(problem.data["constraints"])
        for said, rule in zip(rules, problem.data["constraints"], strict=True):
            numbers = {str(rule[bound]) for bound in ("least", "most") if bound in rule} - {"0"}
            assert rule["kind"] == "keyword" or numbers == set(re.findall(r"\d+", said))
            assert rule.get("word", "") in said


def test_drafts_have_lines_for_bullets_and_blank_lines_between_paragraphs() -> None:
    words = [[["The", "river"]], [["Again"], ["Twice"]]]
    assert Draft(words, bullets=True, case="").text == "- The river.\n- Again. Twice."
    assert Draft(words, bullets=False, case="").text == "The river.\n\nAgain. Twice."
    assert len(RULES) == 7
