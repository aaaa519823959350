"""Conversations in data: lists of messages as TRL, OpenAI, verl, OpenRLHF and ShareGPT write them."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.jsonl import Record, read_json
from groupwise.tasks.data_files import field_of

Message = dict[str, Any]
"""One turn: `role`, `content` (text), and what else a chat template may read, for example `tool_calls`."""
Said = str | list[Message]
"""Plain text, or messages that the tokenizer's chat template will render."""
ROLES = ("system", "developer", "user", "assistant", "tool")
"""Those who may speak; a template drops the turns of others without a word."""
LEARNT = ("weight", "loss", "train", "training")
"""Fields of a message, of OpenAI, ms-swift and Axolotl, that say with 0 that supervised training only reads it."""
ARGUMENTS = "chat_template_kwargs"
"""Field of a row, TRL's name, with arguments of the chat template."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_SHAREGPT = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}


def said(record: Record, field: str) -> Said:
    """Return the text or the messages in a field."""
    value = field_of(record, field)
    if isinstance(messages := messages_in(value, place := f"{record.place}: field '{field}'"), list):
        return messages
    if isinstance(value, str) and value:
        return value
    raise DataError(f"{place} is {value!r:.60}; text or a list of messages with role and content is needed")


def messages_in(value: Any, place: str) -> list[Message] | None:
    """Return the messages that a value is, as a list or, as in tables, its JSON; None for other values."""
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        try:
            parsed = read_json(value, place)
        except DataError:
            return None
        is_said = all(isinstance(item, dict) and item.keys() & {"role", "from"} for item in parsed)
        value = parsed if is_said else None
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return None
    return [_message(item, f"{place}, message {number}") for number, item in enumerate(value, 1)]


def tools_of(record: Record, *, reads_arguments: bool = False) -> list[dict[str, Any]] | None:
    """Return the descriptions of tools in the field `tools`, a list or its JSON; None without any."""
    tools = record.fields.get("tools")
    if isinstance(tools, str) and tools:
        tools = read_json(tools, f"{record.place}: field 'tools'")
    if not reads_arguments:
        refuse_arguments(record)
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise DataError(f"{record.place}: field 'tools' is {tools!r:.60}; a list of objects is needed")
    return [_without_nulls(tool) for tool in tools]


def refuse_arguments(record: Record) -> None:
    """Raise DataError where a row has arguments of the chat template and is not rendered with them."""
    if arguments_of(record):
        raise DataError(
            f"{record.place}: field {ARGUMENTS!r} would be read by nothing: here a chat template's arguments are "
            "the recipe's (`arguments`), one set for all rows, and plain text has none"
        )


def with_system(record: Record, messages: list[Message]) -> list[Message]:
    """Return a row's messages behind its field `system`, where ShareGPT and others have it, unless they begin so."""
    system = record.fields.get("system")
    is_more = isinstance(system, str) and system and messages[0]["role"] != "system"
    return [{"role": "system", "content": system}, *messages] if is_more else messages


def refuse_more(record: Record, prompt_field: str, *, in_chat: bool = False) -> None:
    """Raise DataError where a row of plain texts has more of its prompt in a second field, as Alpaca's have."""
    if not in_chat:
        refuse_arguments(record)
    names = ["input"] * (prompt_field == "instruction") + ["system"] * (not in_chat)  # which is a turn of a chat
    if more := next((name for name in names if str(record.fields.get(name) or "").strip()), None):
        raise DataError(f"{record.place}: field {more!r} would be read by nothing: write it into {prompt_field!r}")


def arguments_of(record: Record) -> dict[str, Any]:
    """Return the arguments that the chat template gets for this row, an object or its JSON; empty without any."""
    arguments = record.fields.get(ARGUMENTS) or {}
    if isinstance(arguments, str):
        arguments = read_json(arguments, f"{record.place}: field {ARGUMENTS!r}")
    if not isinstance(arguments, dict):
        raise DataError(f"{record.place}: field {ARGUMENTS!r} is {arguments!r:.60}; an object is needed")
    return dict(_without_nulls(arguments))


def is_learnt(message: Mapping[str, Any]) -> bool:
    """Tell whether a turn of the assistant is learnt."""
    return all(message.get(name, 1) for name in LEARNT)


def question_in(messages: Sequence[Message]) -> str:
    """Return what a conversation asks: its one turn beside the system's, or all turns with who speaks."""
    turns = [message for message in messages if message["role"] not in ("system", "developer")]
    if len(turns) == 1:
        return str(turns[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def _message(item: Any, place: str) -> Message:
    item = dict(_without_nulls(item))
    if "role" not in item and "from" in item:
        role = item.pop("from")
        item = {"role": _SHAREGPT.get(str(role), role), "content": item.pop("value", None), **item}
    role, content, calls = item.get("role"), item.get("content"), item.get("tool_calls")
    if role not in ROLES:
        raise DataError(f"{place} is of the role {role!r}; with role and content, {', '.join(ROLES)} are allowed")
    if isinstance(content, list) and content:
        texts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part for part in content
        ]
        if others := [part for part in texts if not isinstance(part, str)]:
            raise DataError(f"{place}: a part of its content is {others[0]!r:.60}; parts with text are allowed")
        content = "".join(map(str, texts))
    if odd := next((name for name in LEARNT if item.get(name, 1) not in (0, 1)), None):
        raise DataError(
            f"{place}: {odd} is {item[odd]!r:.60}; 1 for a turn that is learnt and 0 for others are allowed"
        )
    if content is None and (calls or any(map(item.get, THOUGHTS))):
        content = ""  # a template would write the word None
    if not isinstance(content, str):
        raise DataError(f"{place}: its content is {content!r:.60}; role and content as text are needed")
    if calls is not None:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise DataError(f"{place}: tool_calls is {calls!r:.60}; a list of objects is needed")
        item["tool_calls"] = list(calls)
        for number, call in enumerate(calls):
            function = call.get("function", call)
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise DataError(f"{place}: a tool call is {call!r:.60}; the name of a function is needed")
            # as JSON text, which OpenAI gives, a template would quote the arguments once more
            if isinstance(arguments := function.get("arguments"), str):
                function = {**function, "arguments": read_json(arguments, f"{place}: arguments of {function['name']}")}
                item["tool_calls"][number] = {**call, "function": function} if "function" in call else function
    return {**item, "content": content}


def _without_nulls(value: Any) -> Any:
    """Leave out the fields that are null: a table gives every message the fields of all."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
