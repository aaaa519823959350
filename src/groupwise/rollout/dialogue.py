"""Between environments, which say messages, and completions, which are token ids: what is appended, and nothing else.

    prompt ids | turn ids, stop token | glue ids | turn ids, stop token | glue ids | ...

Sampled ids are never decoded and encoded again, and no past is rendered anew. The glue of new messages is what the chat
template writes for them behind the stop token of an answer. It must be the same behind any history, which is checked
once against the model's own template, for messages of users and for those of tools. Without a template messages are
written as `task.template.prompt` writes a question. For a template that shows no tools, `calls = "hermes"` writes them
into the system turn, and their results as the user.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.errors import ConfigError, ModelError
from groupwise.models.policy import Policy
from groupwise.models.prompts import encode_prompt, reads_tools, rendered, unknown_id
from groupwise.rollout.calls import FORMATS, PROBE, PROBE_TOOL, as_hermes, format_shown, turn_of
from groupwise.rollout.tools.base import without_controls
from groupwise.tasks.base import Template
from groupwise.tasks.environments.base import ENVIRONMENTS, CallFormat, EnvironmentConfig, Message, Turn
from groupwise.types import Problem, Prompt

_ASKED, _ANSWER, _NEXT, _CUT = "a question", "forty-two", "and then?", " [...]"
_THOUGHT = f"<think>\nsix by seven\n</think>\n\n{_ANSWER}"
_BEGIN = ({"role": "user", "content": _ASKED},)
_HISTORIES: tuple[tuple[Message, ...], ...] = (
    (*_BEGIN, {"role": "assistant", "content": _ANSWER}),
    (*_BEGIN, {"role": "assistant", "content": "seven."}, *_BEGIN, {"role": "assistant", "content": _ANSWER}),
    (*_BEGIN, {"role": "assistant", "content": _THOUGHT}),
)
"""Histories behind each of which the template must write the same for a next message."""
_TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""Text of Qwen 2.5's template."""


def in_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    r"""Return messages with tools in the system turn, calls in the assistant's text, results in turns of the user.

    >>> in_text([{"role": "tool", "content": "3"}, {"role": "user", "content": "and then?"}])
    [{'role': 'user', 'content': '<tool_response>\n3\n</tool_response>\nand then?'}]
    """
    written = list[dict[str, Any]]()
    for before, message in zip([{"role": ""}, *messages], messages, strict=False):
        role, text, rest = message["role"], as_hermes(message), {**message}
        rest.pop("tool_calls", None)
        if role == "tool":
            role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
        if before["role"] == "tool" and role == "user":
            text = f"{written.pop()['content']}\n{text}"
        written.append({**rest, "role": role, "content": text})
    if tools:
        is_system = written[0]["role"] == "system"
        shown = _TOOLS.format("\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
        content = f"{written[0]['content']}\n\n{shown}" if is_system else shown
        written = [{"role": "system", "content": content}, *written[is_system:]]
    return written


def _called(name: str, content: str = "") -> Message:
    """Return a turn that calls a tool."""
    call = {"type": "function", "function": {**PROBE["function"], "name": name}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def _histories(role: str, name: str) -> tuple[tuple[Message, ...], ...]:
    if role != "tool":
        return _HISTORIES
    thought = "<think>\nsix by seven\n</think>\n\nI look."
    calls = [_called(name, content) for content in ("", "I look.", thought)]
    return ((*_BEGIN, calls[0]), (*_HISTORIES[1][:2], *_BEGIN, calls[1]), (*_BEGIN, calls[2]))


def check_shown(tools: Sequence[Mapping[str, Any]], template: Template, tokenizer: Any) -> None:
    """Raise ModelError where a chat template shows no tools."""
    if tools and template.chat and not reads_tools(tokenizer, template):
        raise ModelError(
            'the chat template shows no tools; task.environment.calls = "hermes" writes them into '
            "the system turn and their results as the user"
        )


class Dialogue:
    """Writes the messages of one environment for one model, and reads its turns."""

    def __init__(self, policy: Policy, template: Template, config: EnvironmentConfig) -> None:
        """Check the chat template, where there is one.

        Raises:
            ModelError: it writes a message otherwise behind another history, or no stop token behind an answer, or it
                changes past turns and `past = "refuse"`.
        """
        self._policy, self._template, self._config = policy, template, config
        self._most, self._checked = config.max_reply_tokens, set[str]()
        self._controls = tuple(policy.tokenizer.all_special_tokens)
        self._stops = tuple(policy.tokenizer.convert_ids_to_tokens(sorted(policy.stop_ids)))
        self._format: CallFormat | None = None if config.calls == "auto" else config.calls
        self._in_text = template.chat and config.calls == "hermes" and not reads_tools(policy.tokenizer, template)
        self._check("user" if self._in_text else ENVIRONMENTS.find(config.kind).answers_as)

    def _check(self, role: str) -> None:
        if not self._template.chat or role in self._checked:
            return
        name, tools = "probe_tool", (PROBE_TOOL,) if role == "tool" else ()
        check_shown(tools, self._template, self._policy.tokenizer)
        message = {"role": role, "content": _NEXT} | ({"name": name} if role == "tool" else {})
        following = {self._following([message], tools, history) for history in _histories(role, name)}
        if len(following) > 1:
            first, second = sorted(following)[:2]
            raise ModelError(
                f"the chat template writes {first!r:.80} for a message behind one history and {second!r:.80} behind "
                "another, so replies cannot be appended to what was sampled; allowed is a template that does not"
            )
        if _NEXT not in (glue := following.pop()):
            raise ModelError("the chat template ends a call by no stop token of the model, so a turn would never end")
        self._glued(glue)
        if self._config.past == "refuse" and (changed := self._changes_past(message, tools)):
            raise ModelError(
                f"the chat template {changed} once a message follows, so a later turn would be sampled behind a text "
                'that it never writes; allowed are task.environment.past = "keep", which accepts that, and a template '
                "that does not change its past"
            )
        self._checked.add(role)

    def _changes_past(self, message: Message, tools: Sequence[Mapping[str, Any]]) -> str:
        asked = self._rendered(_BEGIN, tools)
        histories = _histories(message["role"], "probe_tool")
        whole = [self._rendered([*history, message], tools) for history in histories]
        if not whole[0].startswith(asked):
            return f"writes {whole[0][: len(asked)]!r:.120} where a turn was sampled behind {asked!r:.120}"
        # some templates write the end token behind the last turn alone
        tokenizer, shown = self._policy.tokenizer, list(tools) or None
        answered = rendered(tokenizer, histories[0], self._template, tools=shown).text.rstrip()
        end = answered.removesuffix(tokenizer.eos_token).partition(_ANSWER)[2]
        if not whole[0].partition(_ANSWER)[2].startswith(end):
            return f"writes {answered[-24:]!r} at the end of the last turn, and something else"
        return "" if "six by seven" in whole[2] else "leaves the thinking of a turn out"

    def turn(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> Turn:
        """Read a turn; its calls where there are tools."""
        return turn_of(self._format if tools and self._format else "none", text, tools)

    def _shown(self, tools: Sequence[Mapping[str, Any]]) -> CallFormat:
        allowed = f"allowed as task.environment.calls are {', '.join(map(repr, FORMATS))}"
        if not self._template.chat:
            raise ModelError(f"no chat template shows how this model calls tools: {allowed}")
        try:
            written = self._rendered([*_BEGIN, _called("probe_tool"), {"role": "tool", "content": _NEXT}], tools)
        except ModelError as error:
            raise ModelError(f"calls of tools cannot be written ({error}): {allowed}") from None
        if (shown := format_shown(written)) is None:
            at = max(written.find("probe_tool") - 40, 0)
            raise ModelError(
                f"the chat template writes calls as {written[at : at + 120]!r}, which is not read: {allowed}"
            )
        return shown

    def prompt(self, problem: Problem, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Prompt:
        """Return the prompt of an episode, written as that of a problem with this question.

        Raises:
            ModelError: there are tools, and the chat template writes calls in no format that is known.
        """
        if not self._in_text:
            check_shown(tools, self._template, self._policy.tokenizer)
        if tools and self._format is None:
            self._format = self._shown(tools)
        messages = list[Message](self._apart(messages))
        if self._in_text:
            messages, tools = in_text(messages, tools), ()
        roles, question = [message["role"] for message in messages], "\n".join(map(as_hermes, messages))
        asked = replace(problem, question=question)
        if self._template.chat and (tools or roles != ["user"]):
            data = {**problem.data, "tools": list(tools)} if tools else problem.data
            asked = replace(asked, messages=tuple(messages), data=data)
        return replace(encode_prompt(self._policy, self._template, asked), problem=problem)

    def glue(self, problem: Problem, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the ids behind a turn's stop token: the messages, and the header of the turn to come.

        Raises:
            ConfigError: the template alone has more than `max_reply_tokens`.
            ModelError: the tokenizer cannot write the messages.
        """
        messages = self._apart(messages)
        longest = max(len(message["content"]) for message in messages)

        def written(most: int) -> list[int]:
            texts = [text if len(text := m["content"]) <= most else text[:most] + _CUT for m in messages]
            return self._written(
                problem, [{**m, "content": text} for m, text in zip(messages, texts, strict=True)], tools
            )

        if len(ids := written(longest)) <= self._most:
            return ids
        most = bisect_right(range(1, longest), self._most, key=lambda most: len(written(most)))
        if len(ids := written(most)) > self._most:
            raise ConfigError(
                f"task.environment.max_reply_tokens = {self._most}: the shortest reply has {len(ids)} tokens; allowed "
                "are at least as many"
            )
        return ids

    def _written(self, problem: Problem, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        if self._in_text:
            messages, tools = in_text(messages), ()
        if self._template.chat:
            self._check(role := messages[0]["role"])
            text = self._following(messages, tools, _histories(role, str(messages[0].get("name", "")))[0])
        else:
            question = "\n".join(message["content"] for message in messages)
            text = self._policy.tokenizer.eos_token + self._template.render(replace(problem, question=question))
        return self._glued(text + self._template.prefill)

    def _glued(self, text: str) -> list[int]:
        first, *ids = self._policy.tokenizer(text, add_special_tokens=False)["input_ids"]
        if first not in self._policy.stop_ids:
            raise ModelError(
                f"the chat template writes {text!r:.60} behind an answer, which begins with no stop token, so a turn "
                "would never end; allowed is a template that ends each turn by one"
            )
        if unknown_id(self._policy.tokenizer) in ids:
            raise ModelError(f"the tokenizer cannot write all characters of the reply {text!r:.120}")
        return list(ids)

    def _following(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], history: Sequence[Message]
    ) -> str:
        _, answer, behind = self._rendered([*history, *messages], tools).partition(_ANSWER)
        if not answer:
            raise ModelError(
                "the chat template leaves calls of tools out of the conversation, so their results cannot be appended; "
                "allowed is a template that writes them"
            )
        if messages[0]["role"] == "tool":  # the rest of the call was sampled
            behind = behind[min((at for stop in self._stops if (at := behind.find(stop)) >= 0), default=0) :]
        return behind

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        shown = list(tools) or None
        return rendered(self._policy.tokenizer, messages, self._template, generation=True, tools=shown).text

    def _apart(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [{**m, "content": without_controls(str(m["content"]), self._controls)} for m in messages]
