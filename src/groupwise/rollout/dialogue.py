"""Between environments, which say messages, and completions, which are token ids: what is appended, and nothing else.

    prompt ids | turn ids, stop token | glue ids | turn ids, stop token | glue ids | ...

Sampled ids are never decoded and encoded again, and no past is rendered anew. The glue of new messages is what the chat
template writes for them behind the stop token of an answer. It must be the same behind any history, which is checked
once against the model's own template. Without a template messages are written as `task.template.prompt` writes a
question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.errors import ConfigError, ModelError
from groupwise.models.policy import Policy
from groupwise.models.prompts import encode_prompt, rendered
from groupwise.rollout.tools.base import without_controls
from groupwise.tasks.base import Template
from groupwise.tasks.environments.base import EnvironmentConfig, Message
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


class Dialogue:
    """Writes the messages of one environment for one model."""

    def __init__(self, policy: Policy, template: Template, config: EnvironmentConfig) -> None:
        """Check the chat template, where there is one.

        Raises:
            ModelError: it writes a message otherwise behind another history, or no stop token behind an answer, or it
                changes past turns and `past = "refuse"`.
        """
        self._policy, self._template, self._most = policy, template, config.max_reply_tokens
        self._controls = tuple(policy.tokenizer.all_special_tokens)
        if not template.chat:
            return
        following = {self._following([{"role": "user", "content": _NEXT}], (), history) for history in _HISTORIES}
        if len(following) > 1:
            first, second = sorted(following)[:2]
            raise ModelError(
                f"the chat template writes {first!r:.80} for a message behind one history and {second!r:.80} behind "
                "another, so replies cannot be appended to what was sampled; allowed is a template that does not"
            )
        self._glued(following.pop())
        if config.past == "refuse" and (changed := self._changes_past()):
            raise ModelError(
                f"the chat template {changed} once a message follows, so a later turn would be sampled behind a text "
                'that it never writes; allowed are task.environment.past = "keep", which accepts that, and a template '
                "that does not change its past"
            )

    def _changes_past(self) -> str:
        asked = rendered(self._policy.tokenizer, _BEGIN, self._template, generation=True).text
        whole = [self._rendered([*h, {"role": "user", "content": _NEXT}], ()) for h in _HISTORIES]
        if not whole[0].startswith(asked):
            return f"writes {whole[0][: len(asked)]!r:.120} where a turn was sampled behind {asked!r:.120}"
        return "" if "six by seven" in whole[2] else "leaves the thinking of a turn out"

    def prompt(self, problem: Problem, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Prompt:
        """Return the prompt of an episode, written as that of a problem with this question."""
        messages = self._apart(messages)
        roles, question = [message["role"] for message in messages], "\n".join(m["content"] for m in messages)
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
        *others, last = self._apart(messages)
        text = str(last["content"])

        def written(content: str) -> list[int]:
            return self._written(problem, [*others, {**last, "content": content}], tools)

        if len(ids := written(text)) <= self._most:
            return ids
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(written(text[:middle] + _CUT)) <= self._most else (low, middle - 1)
        if len(ids := written(text[:low] + _CUT)) > self._most:
            raise ConfigError(
                f"task.environment.max_reply_tokens = {self._most}: the shortest reply has {len(ids)} tokens; allowed "
                "are at least as many"
            )
        return ids

    def _written(self, problem: Problem, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        if self._template.chat:
            text = self._following(messages, tools, _HISTORIES[0])
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
        if self._policy.tokenizer.unk_token_id in ids:
            raise ModelError(f"the tokenizer cannot write all characters of the reply {text!r:.120}")
        return list(ids)

    def _following(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], history: Sequence[Message]
    ) -> str:
        text = self._rendered([*history, *messages], tools)
        return text[text.index(_ANSWER) + len(_ANSWER) :]

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        shown = list(tools) or None
        return rendered(self._policy.tokenizer, messages, self._template, generation=True, tools=shown).text

    def _apart(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [{**m, "content": without_controls(str(m["content"]), self._controls)} for m in messages]
