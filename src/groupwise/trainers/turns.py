"""Conversations as token ids, and the tokens that are learnt: those that the assistant wrote."""

import re
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from groupwise.errors import DataError
from groupwise.models.backbone import Backbone
from groupwise.models.prompts import arguments_read, common, reads_tools, rendered
from groupwise.models.steps import refuse_unknown
from groupwise.rollout.dialogue import in_text
from groupwise.tasks.base import ChatArguments
from groupwise.tasks.conversations import ARGUMENTS, Message, is_learnt

_THINKING = re.compile(r"\s*([<\[]/?\S*think\S*?[>\]]\s*)+", re.IGNORECASE)
"""Tags of thinking alone."""
Spans = Sequence[tuple[int, int]]


class Dialogue(NamedTuple):
    """A conversation of data."""

    prompt: list[Message]
    """Turns that are only read; empty where every turn of the assistant is learnt."""
    completion: list[Message]
    tools: list[dict[str, Any]] | None
    place: str
    """Its place, for messages."""
    calls: str = ""
    """`hermes`: a template that shows no tools gets tools, calls and results as text, as episodes do."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """Arguments of the chat template beside the recipe's: those that the row was sampled with."""

    @property
    def messages(self) -> list[Message]:
        return [*self.prompt, *self.completion]


class Turns(NamedTuple):
    """A conversation as token ids."""

    ids: list[int]
    prompt: int
    """Tokens before the completion, as the prompt alone has them, too; 0 without a prompt."""
    trained: list[bool]
    """For every token, True where the assistant wrote it."""


def turns(model: Backbone, dialogue: Dialogue, chat: ChatArguments) -> Turns:
    """Render a conversation and write it as token ids; an end token is added where the template writes none.

    Of a completion that is the assistant's alone every token is trained, as TRL does. Else trained are the spans that
    the template marks with `{% generation %}`, or what each turn of the assistant adds to the rendering of what stands
    before it.

    Raises:
        ModelError: the template refuses the conversation.
        DataError: the template writes a turn otherwise once others follow; nothing or too much would be trained.
    """
    tokenizer, place, named = model.tokenizer, dialogue.place, dialogue.arguments
    if not tokenizer.chat_template:
        raise DataError(f"{place} is a conversation, but the tokenizer has no chat template: give it as plain text")
    if named:
        if other := [name for name in named if chat.arguments.get(name, named[name]) != named[name]]:
            raise DataError(
                f"{place}: its {ARGUMENTS} have {other[0]} = {named[other[0]]!r}, the recipe's arguments "
                f"{chat.arguments[other[0]]!r}; only equal ones are allowed"
            )
        read = arguments_read(tokenizer, ChatArguments(arguments={**chat.arguments, **named}))
        if unread := sorted(named.keys() - read.keys()):
            warnings.warn(f"the rows' {ARGUMENTS} {unread} are not read by the model's chat template", stacklevel=2)
        chat = chat.model_copy(update={"arguments": {**chat.arguments, **read}})
    if dialogue.tools and dialogue.calls == "hermes" and not (dialogue.prompt or reads_tools(tokenizer, chat)):
        dialogue = dialogue._replace(completion=in_text(dialogue.completion, dialogue.tools), tools=None)
    text, _, marked = rendered(tokenizer, dialogue.messages, chat, tools=dialogue.tools, place=place)
    prompt, begin = list[int](), 0
    if dialogue.prompt:
        start = _asked(model, dialogue, dialogue.prompt, chat, text)
        prompt, begin = tokenizer(start, add_special_tokens=False)["input_ids"], len(start)
    roles = {message["role"] for message in dialogue.completion}
    spans: Spans = [(begin, len(text))] if dialogue.prompt and roles == {"assistant"} else marked
    if not spans or not all(map(is_learnt, dialogue.completion)):
        spans = _answers(model, dialogue, chat, text)
    squeezed = "".join(text.split())  # templates strip and lay out anew what they write
    for message in dialogue.messages:
        if message["role"] != "tool" and "".join(message["content"].split()) not in squeezed:
            raise DataError(
                f"{place}: the chat template leaves out what {message['role']} says, {message['content']!r:.60}"
            )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = list[int](encoded["input_ids"]), encoded["offset_mapping"]
    shared = common(prompt, ids)
    trained = [
        index >= shared and any(first < end and last > start for start, end in spans)
        for index, (first, last) in enumerate(offsets)
    ]
    ends = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    if dialogue.messages[-1]["role"] == "assistant" and not text.rstrip().endswith(tuple(ends)):
        ids, trained = [*ids, tokenizer.eos_token_id], [*trained, is_learnt(dialogue.messages[-1])]
    bos = tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise DataError(f"{place} begins with two BOS tokens as the chat template writes it; one is allowed")
    if len(ids) > model.context_length:
        raise DataError(f"{place} has {len(ids)} tokens; allowed are {model.context_length}, the model's context")
    refuse_unknown(tokenizer, text, ids, place)
    if not any(trained):
        raise DataError(f"{place} has no token of the assistant, so nothing could be learnt from it")
    return Turns(ids, shared, trained)


def _answers(model: Backbone, dialogue: Dialogue, chat: ChatArguments, text: str) -> Spans:
    """Spans of what the assistant's turns add, each checked against the whole rendering."""
    spans, messages, place = [], dialogue.messages, dialogue.place
    for number, message in enumerate(messages):
        if message["role"] != "assistant" or number < len(dialogue.prompt) or not is_learnt(message):
            continue
        if number == 0:
            raise DataError(
                f"{place} begins with the assistant: a turn before it is needed, or {{% generation %}} marks"
            )
        after = rendered(model.tokenizer, messages[: number + 1], chat, tools=dialogue.tools, place=place).text
        before = _asked(model, dialogue, messages[:number], chat, after)
        ended = after.rstrip().removesuffix(model.tokenizer.eos_token)
        if text.startswith(ended) and not text.startswith(after):
            after = ended  # some templates write the end token behind the last turn alone
        _check_past(after, text, place)
        spans.append((len(before), len(after)))
    return spans


def _asked(model: Backbone, dialogue: Dialogue, messages: Sequence[Message], chat: ChatArguments, answered: str) -> str:
    """Text up to an answer; without the thinking that a template opens for the model alone, not in answers of data."""
    text, opened, _ = rendered(
        model.tokenizer, messages, chat, generation=True, tools=dialogue.tools, place=dialogue.place
    )
    if _THINKING.fullmatch(opened) and not answered.startswith(text):
        text = text.removesuffix(opened)
    _check_past(text, answered, dialogue.place)
    return text


def _check_past(before: str, text: str, place: str) -> None:
    if not text.startswith(before):
        same = common(before, text)
        raise DataError(
            f"{place}: the chat template writes {before[same : same + 40]!r} while a turn is the last, and "
            f"{text[same : same + 40]!r} once another follows, so what is learnt would not be what is sampled; allowed "
            "is a template that does not change its past, or that marks answers with {% generation %}"
        )
