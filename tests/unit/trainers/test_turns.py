"""Conversations as token ids: exactly what the assistant wrote is learnt, whatever the template."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import DataError, ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import byte_tokenizer, character_tokenizer
from groupwise.models.policy import make_policy
from groupwise.trainers.sft import PairsData, Pieces, encode, read_pairs, read_rows

TURN = "<think>{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}<|end|>\n"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}{% if add_generation_prompt %}<think>assistant:{% endif %}"
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<think>assistant:{% generation %}{{ m.content }}<|end|>"
    "{% endgeneration %}{{ '\n' }}{% else %}" + TURN + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<think>assistant:{% endif %}"
)
FORGETFUL = PLAIN.replace("{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else m.content[:1] }}")
ENDLESS = PLAIN.replace("<|end|>\n", "{{ '\n' }}")
END_LAST = ENDLESS.replace("{% if add", "{% if not add_generation_prompt %}<|end|>{% endif %}{% if add")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


TALK = [{"role": "system", "content": "S"}, user("a"), says("one"), user("b"), says("two")]
CALLS = [
    user("w"),
    says("", tool_calls=[{"function": {"name": "f", "arguments": {}}}]),
    {"role": "tool", "content": "r"},
    says("d"),
]


@pytest.fixture
def shown(make_model: Callable[..., Any], tmp_path: Path) -> Callable[..., str]:
    """shown(template, row) -> its text, with what is learnt in brackets."""
    tokenizer = byte_tokenizer()
    policy = make_policy(make_model(), tokenizer, ModelConfig(device="cpu"))

    def show(template: Any, row: dict[str, Any], loss_on: Any = "completion", **config: Any) -> str:
        policy.tokenizer.chat_template = template
        (tmp_path / "rows.jsonl").write_text(json.dumps(row))
        data = PairsData(path=str(tmp_path / "rows.jsonl"), **config)
        [example] = encode(policy, read_rows(data), loss_on, chat=data)
        text = tokenizer.decode(example.prompt)
        for token, learnt in zip(example.completion, example.mask, strict=True):
            text += f"[{tokenizer.decode([token])}]" if learnt else tokenizer.decode([token])
        return text.replace("][", "").replace("<think>", "")

    return show


@pytest.mark.parametrize(
    ("template", "row", "text"),
    [
        (PLAIN, {"messages": TALK},
         "system:S<|end|>\nuser:a<|end|>\nassistant:[one<|end|>\n]user:b<|end|>\nassistant:[two<|end|>\n]"),
        *((template, {"messages": [user("a"), says("one", **left), user("b"), says("two")]},
           "user:a<|end|>\nassistant:one<|end|>\nuser:b<|end|>\nassistant:[two<|end|>\n]")
          for template, left in ((PLAIN, {"weight": 0}), (MARKED, {"loss": False}), (PLAIN, {"train": False}))),
        (MARKED, {"messages": TALK},
         "system:S<|end|>\nuser:a<|end|>\nassistant:[one<|end|>]\nuser:b<|end|>\nassistant:[two<|end|>]\n"),
        *((PLAIN, {**row, "system": "S"}, "system:S<|end|>\nuser:a<|end|>\nassistant:[b<|end|>\n]") for row in (
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            {"messages": [user("a"), says("b")]}, {"prompt": [user("a")], "completion": [says("b")]})),
        (PLAIN, {"messages": CALLS}, "user:w<|end|>\nassistant:[f<|end|>\n]tool:r<|end|>\nassistant:[d<|end|>\n]"),
        (PLAIN, {"prompt": TALK[:4], "completion": TALK[4:]},
         "system:S<|end|>\nuser:a<|end|>\nassistant:one<|end|>\nuser:b<|end|>\nassistant:[two<|end|>\n]"),
        (PLAIN, {"prompt": [user("a")], "completion": [says("b"), user("c"), says("d")]},
         "user:a<|end|>\nassistant:[b<|end|>\n]user:c<|end|>\nassistant:[d<|end|>\n]"),
        (PLAIN, {"prompt": "a", "completion": [says("b")]}, "user:a<|end|>\nassistant:[b<|end|>\n]"),
        (FORGETFUL, {"prompt": [user("a")], "completion": [says("bc")]}, "user:a<|end|>\nassistant:[bc<|end|>\n]"),
        (END_LAST, {"messages": TALK[1:]}, "user:a\nassistant:[one\n]user:b\nassistant:[two\n<|end|>]"),
        (ENDLESS, {"prompt": [user("a")], "completion": [says("b")]}, "user:a\nassistant:[b\n<|end|>]"),
        (PLAIN, {"prompt": "a", "completion": "b"}, "a[b<|end|>]"),
        *(("{{ mark }}" + PLAIN, {"prompt": "a", "completion": [says("b")], "chat_template_kwargs": given},
           f"{mark}user:a<|end|>\nassistant:[b<|end|>\n]")
          for mark, given in (("!", {"mark": "!"}), ("?", '{"mark": "?"}'), ("", {"mark": None}))),
    ],
)  # fmt: skip
def test_what_the_assistant_wrote_is_learnt(
    shown: Callable[..., str], template: str, row: dict[str, Any], text: str
) -> None:
    assert shown(template, row) == text


def test_a_row_and_the_recipe_agree_about_arguments(shown: Callable[..., str]) -> None:
    row = {"prompt": "a", "completion": [says("b")], "chat_template_kwargs": {"mark": "!", "thinks": True}}
    with pytest.warns(UserWarning, match=r"chat_template_kwargs \['thinks'\] are not read by the model's"):
        assert shown("{{ mark }}" + PLAIN, row, arguments={"mark": "!"})[:2] == "!u"
    named = {"default": PLAIN, "other": "{{ mark }}" + PLAIN}
    row["chat_template_kwargs"] = {"mark": "!", "chat_template": "other"}  # as rows are sampled by one of several
    assert shown(named, row)[:2] == "!u"
    del row["chat_template_kwargs"]["chat_template"]
    with pytest.raises(DataError, match=r"line 1: its chat_template_kwargs have mark = '!', the recipe's .* '\?'"):
        shown("{{ mark }}" + PLAIN, row, arguments={"mark": "?"})


def test_texts_are_turns_where_the_recipe_says_so(shown: Callable[..., str]) -> None:
    row = {"q": {"text": "a"}, "answer": "b"}
    fields = {"prompt_field": "q.text", "completion_field": "answer"}
    assert shown(PLAIN, row, chat=True, **fields) == "user:a<|end|>\nassistant:[b<|end|>\n]"
    assert shown(PLAIN, row, **fields) == "a[b<|end|>]"
    with pytest.raises(DataError, match="line 1: field 'input' would be read by nothing: write it into 'instruction'"):
        shown(PLAIN, {"instruction": "a", "input": "1", "completion": "b"}, prompt_field="instruction")
    assert shown(None, {"text": "abc"}, "all") == "a[bc<|end|>]"
    assert shown(PLAIN, {"messages": TALK[1:3]}, "all")[:5] == "[user"


@pytest.mark.parametrize(
    ("template", "row", "sentence"),
    [
        (FORGETFUL, {"messages": TALK}, r"line 1: the chat template writes 'ne<\|end\|>.*' while a turn is the last"),
        (PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"), {"messages": TALK},
         "line 1: the chat template leaves out what system says, 'S'"),
        (PLAIN, {"messages": [user("a"), says("b", reasoning_content="why")]}, "leaves out what assistant says, 'why'"),
        (PLAIN, {"messages": [user("a"), says("b", thinking="hm"), user("c"), says("d")]}, "what assistant says, 'hm'"),
        (PLAIN, {"messages": [user("a"), says("b", function_call="go")]}, "leaves out what assistant says, 'go'"),
        (PLAIN.replace("tool_calls", "no_calls"), {"messages": CALLS}, "leaves out what assistant says, 'f'"),
        ("{{ tools }}" + PLAIN.replace("tool_calls", "no_calls"),
         {"messages": CALLS, "tools": [{"function": {"name": "f"}}]}, "leaves out what assistant says, 'f'"),
        (PLAIN, {"messages": [user("a"), says("", function_call=[{"name": "f"}]), says("b")]}, "assistant says, 'f'"),
        (PLAIN, {"prompt": "a", "completion": "b", "system": "S"}, "line 1: field 'system' would be read by nothing"),
        (PLAIN, {"prompt": "a", "completion": "b", "chat_template_kwargs": {"a": 1}}, "_kwargs' would be read"),
        (PLAIN, {"messages": [user("a")]}, "line 1 has no token of the assistant"),
        (PLAIN, {"messages": [user("a"), says("b", weight=0)]}, "line 1 has no token of the assistant"),
        (PLAIN, {"messages": [user("a"), says("b", weight=0.5)]}, r"message 2: weight is 0\.5; 1 for a turn"),
        (PLAIN, {"messages": [says("a")]}, "line 1 begins with the assistant"),
        (PLAIN, {"prompt": [user("a")], "completion": [user("b")]}, "line 1: user begins the completion"),
        (PLAIN, {"messages": [user("a" * 300), says("b")]}, "line 1 has 3.. tokens; allowed are 256"),
        (None, {"messages": TALK}, "line 1 is a conversation, but the tokenizer has no chat template"),
        (PLAIN, {"text": "abc"}, "the text that begins 'abc' has no prompt"),
        (PLAIN, {"question": "a"}, "line 1 has no field 'prompt' or 'completion', nor 'messages' or 'text'; its"),
        (PLAIN, {"prompt": "a", "completion": None}, "line 1 has no field 'prompt' or 'completion'"),
        (PLAIN, {"messages": TALK, "chat_template_kwargs": [1]}, "field 'chat_template_kwargs' is .* an object is"),
    ],
)  # fmt: skip
def test_what_cannot_be_learnt_rightly_is_refused(
    shown: Callable[..., str], template: str | None, row: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((DataError, ModelError), match=sentence):
        shown(template, row)


@pytest.mark.parametrize("row", [("1😀", "2"), ("1", "2😀"), Pieces((("1", False), ("2😀", True)), "1")])
def test_characters_that_the_tokenizer_lacks_are_not_learnt(make_model: Callable[..., Any], row: Any) -> None:
    digits = make_policy(make_model(), character_tokenizer("0123456789"), ModelConfig(device="cpu"))
    assert encode(digits, [("1", "2")], "completion")
    with pytest.raises(DataError, match="cannot write all characters of the example that begins '1"):
        encode(digits, [row], "completion")


def test_a_stage_that_needs_texts_refuses_conversations(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": TALK}))
    with pytest.raises(DataError, match="holds a conversation or a text alone"):
        read_pairs(PairsData(path=str(tmp_path / "rows.jsonl")))
