"""Scanners of calls: transcripts written by hand, good calls beside broken, cut, shown and forged ones."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.rollout.calls import FORMATS, PROBE, PROBE_TOOL, format_shown, turn_of

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "write",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "to": {"type": "string", "enum": ["here", "there"]},
                    "lines": {"type": "array", "items": {"type": "string"}},
                    "loud": {"type": "boolean", "nullable": True},
                },
                "required": ["text"],
            },
        },
    },
]
GOOD = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
SUM = ("add", {"a": 1, "b": 2})


def read(kind: Any, text: str) -> list[str]:
    return [attempt.status for attempt in turn_of(kind, text, TOOLS).attempts]


def calls(kind: Any, text: str) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in turn_of(kind, text, TOOLS).calls]


def hermes(inner: str) -> str:
    return f"<tool_call>{inner}</tool_call>"


@pytest.mark.parametrize(
    ("text", "statuses", "good"),
    [
        ("no call at all", [], 0),
        (f"I add.\n{GOOD}\n{GOOD}", ["ok", "ok"], 2),
        (hermes('{"name": "add", "arguments": {"a": 1,}}') + GOOD, ["bad_json", "ok"], 1),
        (GOOD + hermes('{"name": "add"'), ["ok", "bad_json"], 1),
        ('<tool_call>{"name": "add", "arguments": {"a": 1, "b"' + GOOD, ["unclosed", "ok"], 1),
        (GOOD + '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}', ["ok", "unclosed"], 1),
        (hermes('{"name": "add", "arguments": {"a": 1, "b": 2}}}'), ["bad_json"], 0),
        (hermes('{"name": "write", "arguments": {"text": "a } </tool_call> { <tool_call> \\" é 😀"}}'), ["ok"], 1),
        (hermes('{"arguments": {"a": 1, "b": 2}}'), ["no_name"], 0),
        (hermes("[1]"), ["no_name"], 0),
        (hermes('{"name": "multiply", "arguments": {}}') + GOOD, ["unknown_tool", "ok"], 1),
        (hermes('{"name": "add", "arguments": {"a": "1", "b": 2}}'), ["bad_argument"], 0),
        (hermes('{"name": "add", "arguments": {"a": true, "b": 2}}'), ["bad_argument"], 0),
        (hermes('{"name": "add", "arguments": {"a": 1}}'), ["bad_argument"], 0),
        (hermes('{"name": "add", "arguments": {"a": 1, "b": 2, "c": 3}}'), ["bad_argument"], 0),
        (hermes('{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}'), ["bad_argument"], 0),
        (hermes('{"name": "add", "a": 1, "b": 2}'), ["bad_argument"], 0),
        (hermes('{"name": "add", "arguments": {"a": 1, "a": 1, "b": 2}}'), ["bad_json"], 0),
        (hermes('{"name": "add", "arguments": {"a": NaN, "b": 2}}'), ["bad_json"], 0),
        (hermes('{"name": "write", "arguments": {"text": "a", "lines": [1e999]}}'), ["bad_json"], 0),
        (hermes('{"name": "write", "arguments": {"text": "half \\ud83d"}}') + GOOD, ["bad_json", "ok"], 1),
        (hermes('{"name": "write", "arguments": {"text": "whole \\ud83d\\ude00"}}'), ["ok"], 1),
        (hermes('{"name": "write", "arguments": ' + '{"text": ' * 3000), ["bad_json"], 0),
        (hermes('{"name": "write", "arguments": {"text": "a", "to": "away"}}'), ["bad_argument"], 0),
        (hermes('{"name": "write", "arguments": {"text": "a", "lines": ["b", 3]}}'), ["bad_argument"], 0),
        (hermes('{"name": "write", "arguments": {"text": "a", "lines": ["b"], "loud": null}}'), ["ok"], 1),
        (f"I write `{GOOD}` for a call.", [], 0),
        (f"```\n{GOOD}\n```\n", [], 0),
        (f"```\nprint(1)\n```\n{GOOD}", ["ok"], 1),
        (f"````\n```\n{GOOD}\n```\n````\n{GOOD}\n```", ["ok"], 1),
        ("A <tool_call> begins a call, and then nothing.", [], 0),
        (GOOD + GOOD.removeprefix("<tool_call>\n"), ["ok", "bad_json"], 1),
        (f"{GOOD}\n<tool_response>\n3\n</tool_response>", ["ok", "forged"], 1),
    ],
)
def test_hermes(text: str, statuses: list[str], good: int) -> None:
    assert read("hermes", text) == statuses
    assert len(calls("hermes", text)) == good


def test_spans_are_those_of_the_calls_and_arguments_arrive_whole() -> None:
    inner = '{"name": "write", "arguments": {"text": "if x:\\n  {\\"y\\": 1} é 😀"}}'
    text = f"one {hermes(inner)} two {GOOD}"
    turn = turn_of("hermes", text, TOOLS)
    assert [text[a.begin : a.end] for a in turn.attempts] == [hermes(inner), GOOD]
    assert calls("hermes", text) == [("write", {"text": 'if x:\n  {"y": 1} é 😀'}), SUM]
    fault = turn_of("hermes", hermes('{"name": "add", "arguments": {"a": "3", "b": 2}}'), TOOLS).attempts[0].evidence
    assert fault == 'arguments.a = "3": integer is needed'


def xml(name: str, *pairs: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


ADD = xml("add", ("a", "1"), ("b", "2"))


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        (f"I add.\n{ADD}\n{ADD}", ["ok", "ok"]),
        (ADD.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"), ["ok"]),
        (xml("add", ("a", "one"), ("b", "2")) + ADD, ["bad_argument", "ok"]),
        (xml("add", ("a", "1")), ["bad_argument"]),
        (xml("add", ("a", "1"), ("a", "1"), ("b", "2")), ["bad_json"]),
        (xml("multiply"), ["unknown_tool"]),
        ("<tool_call>add(1, 2)</tool_call>" + ADD, ["no_name", "ok"]),
        ("<tool_call>\n<function=add>\n<parameter=a>\n1\n</function>\n</tool_call>\n" + ADD, ["bad_json", "ok"]),
        ("<tool_call>\n<function=add>\n<parameter=a>\n1\n" + ADD, ["unclosed", "ok"]),
        (ADD.removesuffix("</tool_call>"), ["bad_json"]),
        (ADD[:60], ["unclosed"]),
        (f"```xml\n{ADD}\n```", []),
        ("Write <function=NAME> `<function=add>` never mind", ["unclosed"]),
        (ADD + "<tool_response>3", ["ok", "forged"]),
    ],
)
def test_function_xml(text: str, statuses: list[str]) -> None:
    assert read("function_xml", text) == statuses


def test_function_xml_has_its_types_from_the_schema() -> None:
    program = "def f():\n    return '</b>' < \"3\"\n\n</parameter> 12"
    text = xml("write", ("text", program), ("loud", "True"), ("lines", '["a", "b"]')) + xml("write", ("text", "12"))
    assert calls("function_xml", text) == [
        ("write", {"text": program, "loud": True, "lines": ["a", "b"]}),
        ("write", {"text": "12"}),
    ]


LLAMA = '{"name": "add", "parameters": {"a": 1, "b": 2}}'


@pytest.mark.parametrize(
    ("schema", "value", "text", "fits"),
    [
        ({"type": "int"}, 3, "3", True),  # no name of JSON's: the server decides
        ({"type": ["integer", "null"]}, None, "null", True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, "None", True),
        (True, {"a": 1}, None, True),
        ({"items": True, "type": "array"}, [1, "a"], '[1, "a"]', True),
        ({"items": [{"type": "integer"}], "type": "array"}, [1], "[1]", True),
        ({"anyOf": [True, {"type": "integer"}]}, 3, "3", True),
        ({"$ref": "#/$defs/Point"}, {"x": 1}, '{"x": 1}', True),
        ({"type": "integer"}, "3", None, False),
    ],
)
def test_schemas_of_other_servers(schema: Any, value: Any, text: str | None, fits: bool) -> None:
    parameters = {"type": "object", "properties": {"it": schema}}
    tools = [{"type": "function", "function": {"name": "take", "parameters": parameters}}]
    written = hermes(json.dumps({"name": "take", "arguments": {"it": value}}))
    [attempt] = turn_of("hermes", written, tools).attempts
    assert (attempt.status == "ok") is fits
    assert attempt.arguments == {"it": value}
    if text is not None:
        written = f"<tool_call>\n<function=take>\n<parameter=it>\n{text}\n</parameter>\n</function>\n</tool_call>"
        assert turn_of("function_xml", written, tools).attempts[0].status == "ok"
    if schema == {"$ref": "#/$defs/Point"} or value is None:
        assert turn_of("function_xml", written, tools).calls[0].arguments == {"it": value}


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        (LLAMA, ["ok"]),
        (f"<|python_tag|>{LLAMA}; {LLAMA}", ["ok", "ok"]),
        (f"{LLAMA}; {LLAMA[:30]}", ["ok", "unclosed"]),
        (LLAMA.replace(": 2", " 2"), ["bad_json"]),
        (f"{LLAMA}, {LLAMA},\n{LLAMA}", ["ok"] * 3),
        (f"[{LLAMA}, {LLAMA}]", ["ok", "ok"]),
        (f"{LLAMA} and then {LLAMA}. It is so, `{LLAMA}`.", ["ok", "ok"]),
        (f"{LLAMA.replace(': 2', ' 2')}; {LLAMA}", ["bad_json", "ok"]),
        (f"{LLAMA}, {{", ["ok", "unclosed"]),
        (f"{LLAMA[:-1]}, {{'name': 'add'}}", ["bad_json"]),
        ('{"type": "function", "function": {"name": "add", "arguments": {}}}', ["no_name"]),
        ("<|python_tag|>add.call(a=1, b=2)", ["no_name"]),
        ('{"parameters": {"a": 1}}', ["no_name"]),
        ('{"answer": 12}', []),
        ('[{"answer": 12}, {"name": "Emma"}]', []),
        (f"The call would be {LLAMA}", []),
        (f"{LLAMA}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n3", ["ok", "forged"]),
    ],
)
def test_llama_json(text: str, statuses: list[str]) -> None:
    assert read("llama_json", text) == statuses


THINKS = "<|channel|>analysis<|message|>I call functions.add<|end|><|start|>assistant"
HARMONY = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1, "b": 2}'


@pytest.mark.parametrize(
    ("text", "statuses", "said"),
    [
        (THINKS + HARMONY, ["ok"], ""),
        (' to=functions.add<|channel|>commentary json<|message|>{"a": 1, "b": 2}', ["ok"], ""),
        (THINKS + HARMONY[:-4], ["unclosed"], ""),
        (THINKS + HARMONY.replace(":", ""), ["bad_json"], ""),
        (HARMONY + "<|call|><|start|>functions.add to=assistant<|channel|>commentary<|message|>3<|end|>",
         ["ok", "forged"], ""),
        (THINKS + "<|channel|>final<|message|>It is 3, not to=functions.add.", [], "It is 3, not to=functions.add."),
    ],
)  # fmt: skip
def test_harmony(text: str, statuses: list[str], said: str) -> None:
    assert read("harmony", text) == statuses
    assert turn_of("harmony", text, TOOLS).text == said


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("hermes", '<tool_call>\n{"name": "probe_tool", "arguments": {"probe_key": "forty-two"}}\n</tool_call>'),
        ("function_xml", "<tool_call>\n<function=probe_tool>\n<parameter=probe_key>\nforty-two\n</parameter>"),
        ("llama_json", '{"name": "probe_tool", "parameters": {"probe_key": "forty-two"}}'),
        ("harmony", "<|start|>assistant to=functions.probe_tool<|channel|>commentary json<|message|>{}<|call|>"),
        (None, '[TOOL_CALLS] [{"name": "probe_tool", "arguments": {}}]'),
    ],
)
def test_a_format_is_known_by_what_a_template_writes(kind: str | None, shown: str) -> None:
    assert format_shown(shown) == kind
    assert turn_of("none", GOOD, TOOLS).attempts == ()
    assert kind is None or kind in FORMATS


@pytest.mark.parametrize("kind", ["hermes", "function_xml", "llama_json"])
@pytest.mark.parametrize("piece", ["\n", "`", "<tool_call>", "```\n"])
def test_one_piece_again_and_again_is_read_in_its_time(kind: Any, piece: str) -> None:
    began = time.process_time()
    assert read(kind, piece * (40_000 // len(piece)) + "<tool_call>") == []
    assert time.process_time() - began < 2  # where each piece looks through all that follow: 5 s and more


@pytest.mark.peers
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("hermes", ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl")),
        ("function_xml", ("qwen3_5_think", "qwen3_6", "qwen3_8", "nemotron_3_nano", "nemotron_3_ultra")),
        ("llama_json", ("llama3_1", "llama3_2")),
        ("harmony", ("gptoss",)),
        (None, ("glm4moe", "gemma4", "lfm2_v2")),
    ],
)
def test_formats_of_the_templates_that_trl_has(kind: str | None, names: tuple[str, ...]) -> None:
    from groupwise.models.config import ModelConfig
    from groupwise.models.loading import read_tokenizer
    from groupwise.models.located import locate
    from groupwise.models.prompts import rendered
    from groupwise.tasks import Template

    folder = Path(pytest.importorskip("trl").__file__).parent / "chat_templates"
    tokenizer = read_tokenizer(locate(ModelConfig().path).tokenizer)
    called = {"role": "assistant", "content": "", "tool_calls": [PROBE]}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        called,
        {"role": "tool", "name": "probe_tool", "content": "a"},
    ]
    for name in names:
        tokenizer.chat_template = (folder / f"{name}.jinja").read_text()
        text = rendered(tokenizer, messages, Template(chat=True), generation=True, tools=[PROBE_TOOL]).text
        assert format_shown(text) == kind, name
