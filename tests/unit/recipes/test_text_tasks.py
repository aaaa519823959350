"""JSON extraction and instructions: what is asked can be read off the text, and the rules hold of the reference."""

import json
import re

import pytest
from pydantic import ValidationError

from groupwise.tasks import make_task
from groupwise.types import SPLITS, Problem
from groupwise.verifiers import make_verifier
from instructions import RULES, Draft
from json_extraction import EXAMPLE

FORMS = {1: None, 2: None, 3: "enum", 4: "maximum", 5: "optional", 6: "items", 7: "properties"}


@pytest.mark.parametrize("level", FORMS)
def test_schemas_have_what_their_level_says(level: int) -> None:
    task = make_task({"kind": "json_extraction", "levels": [level], "num_problems": 40, "num_eval_problems": 5})
    for problem in task.problems("train"):
        schema = problem.data["schema"]
        fields = schema["properties"]
        assert len(fields) in ((2,) if level == 1 else (3, 4) if level in (2, 5) else (2, 3, 4))
        assert problem.difficulty.startswith(f"{level} ")
        assert len(schema["required"]) == len(fields) - (level == 5)
        form = FORMS[level]
        assert form in (None, "optional") or any(form in field for field in fields.values())
        if level < 5:
            assert all(field["type"] not in ("array", "object") for field in fields.values())


def test_values_are_stated_of_the_asked_thing_and_fit_its_schema() -> None:
    task = make_task({"kind": "json_extraction", "num_problems": 100, "num_eval_problems": 5})
    verifier = make_verifier({"kind": "json"})
    for problem in task.problems("train"):
        assert verifier.verify(problem, task.template.gold_answer(problem)).outcome == "correct"
        schema, _, text = problem.question.split("Schema: ")[1].partition("\nText: ")
        assert json.loads(schema) == problem.data["schema"]
        for value in re.findall(r'(?<=[\[{:,] )"?([^"{}\[\],:]+)"?(?=[,\]}])', problem.reference):
            assert value in ("true", "false") or value in text


def test_no_schema_of_dev_or_test_asks_for_the_fields_of_a_training_schema() -> None:
    task = make_task({"kind": "json_extraction", "num_problems": 3000, "num_eval_problems": 200})
    train, dev, test = (
        {(problem.question.split("Text: ")[1].split()[0], *sorted(problem.data["schema"]["properties"]))
         for problem in task.problems(split)} for split in SPLITS
    )  # fmt: skip
    assert min(map(len, (train, dev, test))) > 100
    assert len(train | dev | test) == len(train) + len(dev) + len(test)


def test_the_example_is_a_turn_of_its_own_for_a_chat_model_and_a_text_for_another() -> None:
    question, answer = EXAMPLE
    problem = make_task({"kind": "json_extraction"}).problems("test")[0]
    plain, chat = (
        {"kind": "json_extraction", "template": {"chat": chat, "system": "s" * chat}} for chat in (False, True)
    )
    assert make_task(plain).template.render(problem) == f"{question}\nJSON: {answer}\n\n{problem.question}\nJSON:"
    turns = [("system", "s"), ("user", question), ("assistant", answer), ("user", problem.question)]
    assert [tuple(turn.values()) for turn in make_task(chat).template.messages(problem)] == turns
    assert make_verifier("json").verify(Problem("p", question, answer), answer).outcome == "correct"


@pytest.mark.parametrize("levels", [[], [0], [1, 8]])
def test_a_level_that_is_not_there_is_refused(levels: list[int]) -> None:
    with pytest.raises(ValidationError, match=r"levels = .*; allowed are one or more of 1 to 7"):
        make_task({"kind": "json_extraction", "levels": levels})


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
