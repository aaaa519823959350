"""Messages as people write them: one form inside, and one sentence for what is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.runs.jsonl import Record
from groupwise.tasks.base import Template
from groupwise.tasks.conversations import question_in, said, tools_of
from groupwise.tasks.jsonl import Jsonl, JsonlConfig
from groupwise.types import Problem

SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 10 x 11?"}
CALL = {"name": "add", "arguments": {"x": 1}}


def read(value: Any, **fields: Any) -> Any:
    return said(Record("f, line 1", 1, {"m": value, **fields}), "m")


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ([SYSTEM, USER], [SYSTEM, USER]),
        (json.dumps([SYSTEM, USER]), [SYSTEM, USER]),
        ([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
         [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
         [{"role": "user", "content": "ab"}]),
        ([{"role": "user", "content": "a", "tool_calls": None, "name": None}], [{"role": "user", "content": "a"}]),
        ([{"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": CALL}]}],
         [{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]}]),
        ([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": '{"x": 1}'}}]}],
         [{"role": "assistant", "content": "", "tool_calls": [{"function": CALL}]}]),
        ("[{1}] is a set", "[{1}] is a set"),
        ('[{"a": 1}]', '[{"a": 1}]'),
    ],
)  # fmt: skip
def test_every_way_of_writing_messages(value: Any, messages: Any) -> None:
    assert read(value) == messages


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("", " is ''; text or a list of messages"),
        ([], r" is \[\]; text or a list of messages"),
        ([USER, "b"], "text or a list of messages with role and content is needed"),
        ([USER, {"role": "bot", "content": "a"}], "message 2 is of the role 'bot'; .* system, developer, user, "),
        ([{"content": "a"}], "message 1 is of the role None"), ([{"from": ["gpt"]}], r"of the role \['gpt'\]"),
        ([{"role": "user"}], "message 1: its content is None"),
        ([{"role": "user", "content": 7}], "message 1: its content is 7"),
        ([{"role": "user", "content": [{"type": "image", "image": "x"}]}], "a part of its content is {'type': 'image'"),
        ([{"role": "assistant", "content": "", "tool_calls": "add"}], "tool_calls is 'add'; a list of objects"),
        ([{"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}], "the name of a function is needed"),
        ([{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": "{"}]}],
         "arguments of f is not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_one_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"^f, line 1: field 'm'.*{sentence}|^f, line 1: .*{sentence}"):
        read(value)


def test_tools_are_a_list_or_its_json() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    for tools in ([tool], json.dumps([tool])):
        assert tools_of(Record("f, line 1", 1, {"tools": tools})) == [tool]
    assert tools_of(Record("f, line 1", 1, {"tools": None})) is None
    with pytest.raises(DataError, match=r"field 'tools' is not JSON"):
        tools_of(Record("f, line 1", 1, {"tools": "add"}))
    with pytest.raises(DataError, match="'chat_template_kwargs' would be read by nothing"):
        tools_of(Record("f, line 1", 1, {"chat_template_kwargs": {"a": 1}}))


def task(tmp_path: Path, row: dict[str, Any], **config: Any) -> Jsonl:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    tables = {
        "kind": "jsonl",
        "path": str(tmp_path / "a.jsonl"),
        "dev_fraction": 0,
        "question_field": "prompt",
        **config,
    }
    return Jsonl(parse(JsonlConfig, tables))


VERL = {
    "data_source": "gsm8k", "prompt": [USER], "ability": "math", "extra_info": {"index": 7, "level": "easy"},
    "reward_model": {"style": "rule", "ground_truth": "110"},
}  # fmt: skip
NESTED = {"answer_field": "reward_model.ground_truth", "difficulty_field": "extra_info.level"}


def test_a_row_of_verl_is_a_problem(tmp_path: Path) -> None:
    [problem] = task(tmp_path, VERL, template={"chat": True}, **NESTED).problems("train")
    assert (problem.question, problem.reference, problem.difficulty) == ("What is 10 x 11?", "110", "easy")
    assert Template(chat=True).messages(problem) == [USER]
    assert problem.data["reward_model"] == VERL["reward_model"]
    [told] = task(tmp_path, {**VERL, "system": "Be brief."}, template={"chat": True}, **NESTED).problems("train")
    assert told.messages == (SYSTEM, USER)


class Boxed(Template):
    def render(self, problem: Problem) -> str:
        return f"{problem.question} Box it."


def test_the_template_stands_around_the_last_turn_of_the_user(tmp_path: Path) -> None:
    turns = [SYSTEM, USER, {"role": "assistant", "content": "100"}, {"role": "user", "content": " Sure?\n"}]
    row = {"prompt": turns, "answer": 110, "how": "Box it."}
    [problem] = task(tmp_path, row, template={"chat": True}).problems("train")
    assert Template(chat=True).messages(problem) == turns
    for template in (Template(chat=True, prompt="{question} {data.how}"), Boxed(chat=True)):
        assert template.messages(problem) == [*turns[:3], {"role": "user", "content": " Sure?\n Box it."}]
    assert problem.question == "user: What is 10 x 11?\n\nassistant: 100\n\nuser:  Sure?\n"
    with pytest.raises(ConfigError, match=r"template.system = 'Be kind.': a/train-1 has a system message of its own"):
        Template(chat=True, system="Be kind.").messages(problem)
    plain = Problem("p", "q", "1", messages=(USER,))
    assert Template(chat=True, system="Be kind.").messages(plain) == [{"role": "system", "content": "Be kind."}, USER]


@pytest.mark.parametrize(
    ("row", "config", "sentence"),
    [
        (VERL, {"template": {"chat": False}, **NESTED}, "field 'prompt' holds messages, .*: set task.*chat = true"),
        (VERL, {"template": {"chat": True}, "answer_field": "reward_model.truth"},
         "no field 'reward_model.truth'; .* set answer"),
        ({"prompt": [USER, {"role": "assistant", "content": "1"}], "answer": 1}, {"template": {"chat": True}},
         "assistant speaks last in field 'prompt'; user and tool are allowed"),
        ({"prompt": [SYSTEM, {"role": "user", "content": " "}], "answer": 1}, {"template": {"chat": True}}, "is empty"),
    ],
)  # fmt: skip
def test_a_prompt_that_cannot_be_asked_is_one_sentence(
    tmp_path: Path, row: dict[str, Any], config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=rf"a\.jsonl, line 1.*{sentence}"):
        task(tmp_path, row, **config).problems("train")


def test_a_question_is_what_is_asked() -> None:
    assert question_in([SYSTEM, USER]) == USER["content"]
    assert question_in([USER, {"role": "assistant", "content": "1"}]) == "user: What is 10 x 11?\n\nassistant: 1"
