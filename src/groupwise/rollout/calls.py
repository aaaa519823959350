"""Calls of tools as a model's family writes them: every attempt in a turn, with its status.

    hermes         <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>            Qwen 2.5 and 3, Hermes
    function_xml   <tool_call><function=f><parameter=x>1</parameter></function></tool_call>  Qwen 3.5, Nemotron 3
    llama_json     {"name": "f", "parameters": {"x": 1}}                                  Llama 3.1 and 3.2
    harmony        <|channel|>commentary to=functions.f<|message|>{"x": 1}                gpt-oss

A good call is never lost for a bad neighbour. What was cut is not run, whatever of it is whole. A text that shows a
call as code, or names its mark alone, calls nothing. Thinking is not read at all. The kind is what the chat template
writes of a call, never guessed from a model's name.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from groupwise.runs.jsonl import of_pairs
from groupwise.tasks.environments.base import Attempt, CallFormat, Turn
from groupwise.tasks.environments.tools import Schema, fault_of, names_in

PROBE: dict[str, Any] = {
    "type": "function",
    "function": {"name": "probe_tool", "arguments": {"probe_key": "forty-two"}},
}
"""A call that is rendered to see how a template writes it."""
PROBE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "probe_tool", "description": "Probe.",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string", "description": "a key"}}},
    },
}  # fmt: skip


class Format(NamedTuple):
    """A way to write calls."""

    shown: re.Pattern[str]
    """Finds the probe in what a template writes."""
    scan: Callable[[str], Iterator[Attempt]]
    """Finds attempts in a text; arguments are not compared with schemas yet."""
    writes_text: bool = False
    """True where arguments are written without their types."""


def turn_of(kind: CallFormat, text: str, tools: Sequence[Mapping[str, Any]]) -> Turn:
    """Read a turn, without its thinking and its stop token."""
    if kind not in FORMATS:
        return Turn(text)
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
    attempts = tuple(_checked(attempt, schemas, FORMATS[kind].writes_text) for attempt in FORMATS[kind].scan(text))
    if kind == "harmony" and (messages := list(_MESSAGE.finditer(text))):
        text = "".join(m["body"] for m in messages if "<|channel|>final" in m["header"])
    return Turn(text, attempts)


def format_shown(text: str) -> CallFormat | None:
    """Return the format in which a template wrote `PROBE`; None where nothing here reads it."""
    return next((kind for kind, each in FORMATS.items() if each.shown.search(text)), None)


def _checked(attempt: Attempt, schemas: Mapping[str, Schema], writes_text: bool) -> Attempt:
    if attempt.status != "ok":
        return attempt
    if attempt.name not in schemas:
        known = ", ".join(schemas)
        return replace(
            attempt, status="unknown_tool", evidence=f"there is no tool {attempt.name!r:.80}; there are {known}"
        )
    schema, arguments = schemas[attempt.name], attempt.arguments
    if writes_text:
        properties = schema.get("properties", {})
        arguments = {name: _typed(text, properties.get(name, {})) for name, text in arguments.items()}
    fault = fault_of(arguments, {"type": "object", **schema}, "arguments")
    return replace(attempt, arguments=arguments, status="bad_argument" if fault else "ok", evidence=fault)


def _typed(text: str, schema: Any) -> Any:
    """Read a value that was written without quotes by the types that its schema allows."""
    schema = schema if isinstance(schema, Mapping) else {}
    names = [name for each in schema.get("anyOf", [schema]) for name in names_in(each)]
    if (schema.get("nullable") or "null" in names) and text in ("null", "None"):
        return None
    if "$ref" not in schema and (not names or "string" in names):
        return text
    try:
        return _told(_JSON.decode({"True": "true", "False": "false"}.get(text, text)))
    except (ValueError, RecursionError):
        return text  # which does not fit, and is named so


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _told(value: Any) -> Any:
    """Return a value that JSON can tell on (ValueError): no infinity, as 1e999 is, and no half of a character."""
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


_JSON = json.JSONDecoder(object_pairs_hook=of_pairs, parse_constant=_refused)
_SPACE = re.compile(r"\s*")
_BEGUN = re.compile(r"\s*[{\[]")


def _json_at(text: str, at: int) -> tuple[Any, int, str, bool]:
    """Read JSON: its value, its end, its fault, and true where it was cut."""
    begin = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches everything
    try:
        value, end = _JSON.raw_decode(text, begin)
        return _told(value), end, "", False
    except json.JSONDecodeError as error:
        was_cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        return None, at, f"no JSON: {error.msg}", was_cut
    except (ValueError, RecursionError) as error:
        return None, at, f"no JSON: {error or 'too many objects within one another'}", False


def _named(value: Any, span: tuple[int, int], keys: Sequence[str]) -> Attempt:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name:
        return Attempt("no_name", *span, evidence="a call is an object with a `name`, a text")
    key = next((key for key in keys if key in value), keys[0])
    arguments = value.get(key, {})
    if not isinstance(arguments, dict) or (key not in value and len(value) > 1):
        return Attempt("bad_argument", *span, name, evidence=f"`{key}` is an object with all arguments")
    return Attempt("ok", *span, name, arguments)


_FENCE = re.compile(r"(?m)^[ \t]*+(?:```|~~~)")
_FENCED = re.compile(r"(?ms)^[ \t]*+(`{3,16}|~{3,16})[^\n]*+\n.*?^[ \t]*+\1")


def _marks(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str] | None:
    """Find the next mark that the text does not show as code."""
    for mark in pattern.finditer(text, at):
        for fence in _FENCE.finditer(text, at, mark.start()):
            if fence.start() >= at and (fenced := _FENCED.match(text, fence.start())):
                at = fenced.end()
        if mark.start() < at:
            continue
        if text[mark.start() - 1 : mark.start()] != "`":
            return mark
        at = mark.end()
    return None


OPEN, CLOSE = "<tool_call>", "</tool_call>"


def as_hermes(message: Mapping[str, Any]) -> str:
    """Return a message with its calls as text."""
    calls = [call.get("function", call) for call in message.get("tool_calls", ())]
    written = (json.dumps({name: call[name] for name in ("name", "arguments")}, ensure_ascii=False) for call in calls)
    return "\n".join([*[message["content"]] * bool(message["content"]), *(f"{OPEN}\n{w}\n{CLOSE}" for w in written)])


_HERMES = re.compile(r"<tool_call>|(?P<forged><tool_response>)")
_HERMES_OR_END = re.compile(rf"{_HERMES.pattern}|(?P<end>\}}\s*</tool_call>(?!`))")
_FORGED = "a tool's result was written by the model itself"


def _hermes(text: str) -> Iterator[Attempt]:
    at = 0
    while mark := _marks(_HERMES_OR_END, text, at):
        begin, inner = mark.span()
        if mark["end"]:
            at = inner
            yield Attempt("bad_json", begin, inner, evidence=f"a call without {OPEN} was not run")
            continue
        if mark["forged"]:
            at = inner
            yield Attempt("forged", begin, inner, evidence=_FORGED)
            continue
        value, at, fault, _ = _json_at(text, inner)
        close, following = text.find(CLOSE, at), _HERMES.search(text, at)
        if close < 0 or (following and following.start() < close):
            if _BEGUN.match(text, inner):
                end = following.start() if following else len(text)
                yield Attempt("unclosed", begin, end, evidence=f"a call without {CLOSE} was not run")
            continue
        if not fault and (behind := text[at:close].strip()):
            fault = f"no JSON: {behind!r:.40} stands behind the object"
        at = close + len(CLOSE)
        yield Attempt("bad_json", begin, at, evidence=fault) if fault else _named(value, (begin, at), ["arguments"])


_XML = re.compile(
    r"(?P<call><tool_call>\s*)?<function=(?P<name>[^<>\n]*)>|(?P<bare><tool_call>)|(?P<forged><tool_response>)"
)
_PARAMETER = re.compile(  # a value without its end does not reach into the next call
    r"\s*<parameter=(?P<name>[^<>\n]+)>\n?"
    r"(?P<value>(?:(?!<parameter=|<tool_call>|</function>\s*(?:</tool_call>|<function=|\Z)).)*?)"
    r"\n?</parameter>\s*(?=<parameter=|</function>)",
    re.DOTALL,
)


def _function_xml(text: str) -> Iterator[Attempt]:
    at = 0
    while mark := _marks(_XML, text, at):
        begin, at = mark.span()
        if mark["forged"]:
            yield Attempt("forged", begin, at, evidence=_FORGED)
            continue
        if mark["bare"]:
            if (close := text.find(CLOSE, at)) >= 0 and not _XML.search(text, at, close):
                at = close + len(CLOSE)
                yield Attempt("no_name", begin, at, evidence="a call is <function=NAME> within <tool_call>")
            continue
        arguments, twice = dict[str, str](), ""
        while parameter := _PARAMETER.match(text, at):
            twice = parameter["name"] if parameter["name"] in arguments else twice
            arguments[parameter["name"]] = parameter["value"]
            at = parameter.end()
        closing = re.compile(r"\s*</function>" + (r"\s*</tool_call>" if mark["call"] else "")).match(text, at)
        if closing:
            at = closing.end()
            if twice or not mark["name"].strip():
                fault = f"the parameter {twice} is there twice" if twice else "a call is <function=NAME>"
                yield Attempt("bad_json" if twice else "no_name", begin, at, evidence=fault)
            else:
                yield Attempt("ok", begin, at, mark["name"].strip(), arguments)
            continue
        following = _XML.search(text, at)
        end = following.start() if following else len(text)
        close = text.rfind("</function>", at, end)
        if close < 0:
            yield Attempt("unclosed", begin, end, mark["name"].strip(), evidence="a call without its end was not run")
        else:
            fault = "a call is <tool_call><function=NAME><parameter=NAME>VALUE</parameter></function></tool_call>"
            yield Attempt("bad_json", begin, close, mark["name"].strip(), evidence=fault)
        at = end if close < 0 else close


_LLAMA = re.compile(r"[\s;,\[\]]*+(?:<\|python_tag\|>[\s\[]*+)?(?=\{)")
_KEY = r"""\{\s*["']?(?:name|type|function|parameters|arguments)["']?\s*:"""
_LOOKS = re.compile(f"(?={_KEY})")
_BEHIND = re.compile(rf"(?:\}}\s*\}}\s*,?|;)\s*(?:<\|python_tag\|>\s*)?(?={_KEY})")  # an object that is no JSON
_IPYTHON = re.compile(r"<\|start_header_id\|>\s*(?:ipython|tool)\s*<\|end_header_id\|>")


def _llama_json(text: str) -> Iterator[Attempt]:
    keys, mark, is_first = ("parameters", "arguments"), _LLAMA.match(text), True
    if mark is None and text.lstrip().startswith("<|python_tag|>"):
        yield _named(None, (0, len(text)), keys)
    while mark:
        value, at, fault, was_cut = _json_at(text, begin := mark.end())
        is_call = isinstance(value, dict) and any(key in value for key in (*keys, "function"))
        if is_first and not is_call and not (fault and _LOOKS.match(text, begin)):
            break  # an answer in JSON
        is_first = False
        if fault:
            mark = _BEHIND.search(text, begin)
            end = mark.end() if mark else len(text)
            fault = "a call without its end was not run" if was_cut else fault
            yield Attempt("unclosed" if was_cut else "bad_json", begin, end, evidence=fault)
        else:
            yield _named(value, (begin, at), keys)
            mark = _LLAMA.match(text, at) or _marks(_LOOKS, text, at)
    for mark in _IPYTHON.finditer(text):
        yield Attempt("forged", *mark.span(), evidence=_FORGED)


_MESSAGE = re.compile(
    r"(?:<\|start\|>(?P<role>[^<]{0,200}))?(?P<header>(?:[^<]|<\|(?:channel|constrain)\|>){0,200})<\|message\|>(?P<body>.*?)"
    r"(?P<end><\|end\|>|<\|call\|>|<\|return\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_TO = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")


def _harmony(text: str) -> Iterator[Attempt]:
    for message in _MESSAGE.finditer(text):
        span, header = message.span(), f"{message['role'] or ''}{message['header']}"
        if not (message["role"] or "assistant").startswith("assistant"):
            yield Attempt("forged", *span, evidence=_FORGED)
        elif to := _TO.search(header):
            begin = message.start("body")
            value, end, fault, was_cut = _json_at(message["body"], 0)
            behind = message["body"][end:].strip()
            if was_cut:
                yield Attempt("unclosed", *span, to[1], evidence="a call without its end was not run")
            elif fault or behind:
                fault = fault or f"no JSON: {behind!r:.40} stands behind the object"
                yield Attempt("bad_json", begin, span[1], to[1], evidence=fault)
            else:
                yield _named({"name": to[1], "arguments": value}, span, ["arguments"])


FORMATS: dict[CallFormat, Format] = {
    "hermes": Format(re.compile(r'<tool_call>\s*\{"name": ?"probe_tool", ?"arguments": ?\{'), _hermes),
    "function_xml": Format(re.compile(r"<function=probe_tool>\s*<parameter=probe_key>"), _function_xml, True),
    "llama_json": Format(re.compile(r'\{"name": ?"probe_tool", ?"parameters": ?\{'), _llama_json),
    "harmony": Format(re.compile(r"to=functions\.probe_tool\b.*<\|message\|>"), _harmony),
}
