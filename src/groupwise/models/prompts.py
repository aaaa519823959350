"""From messages and texts to the ids that a model reads: the one place that knows chat templates and control tokens."""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from jinja2 import Environment, nodes
from jinja2.meta import find_undeclared_variables
from transformers.utils import chat_template_utils

from groupwise.errors import ModelError
from groupwise.models.backbone import Backbone
from groupwise.models.loading import tokenizer_of
from groupwise.ranks.group import RANKS
from groupwise.runs.progress import tell
from groupwise.tasks.base import ChatArguments, TaskConfig, Template
from groupwise.tasks.conversations import THOUGHTS, is_learnt
from groupwise.tasks.table import settled
from groupwise.types import Problem, Prompt
from groupwise.verifiers import VerifierConfig

BEGAN = datetime.now().replace(microsecond=0)
"""The instant that templates read where no run has recorded one: one for the whole process."""
CLOCK = "strftime_now"
THINKING = re.compile(r"</?[\w:|]*think\w*\|?>|\[/?THINK\]")
_ASKS = ("defined", "undefined", "none", "default", "d")
_ANSWER, _NEXT = "forty-two", "and then?"
"""Texts of turns that are rendered to see what a template writes around them."""
_OTHER = "_of_another_name"


class Rendered(NamedTuple):
    """A conversation as text."""

    text: str
    prefill: str = ""
    """The end of `text` that the template writes behind the header of the turn to come, for example `<think>`."""
    marked: tuple[tuple[int, int], ...] = ()
    """Spans that the template itself marks as generated."""


def rendered(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    chat: ChatArguments,
    *,
    generation: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    prefill: str = "",
    place: str = "the conversation",
) -> Rendered:
    """Render messages through the chat template; with `generation` up to the turn that the model writes next.

    `prefill` is what the caller will put behind it.

    Raises:
        ModelError: there is no template, it does not read an argument, refuses the messages, leaves one out, or writes
            no header of the turn to come; or a message holds a control token.
    """
    for message in messages:
        refuse_controls(tokenizer, message, place)
    text, marked = _rendered(tokenizer, messages, chat, generation, tools, place)
    asked, dense = messages, "".join(text.split())
    if tools and any(map(_called, messages)):  # a template that lists the tools may drop their calls
        asked = copy.deepcopy(messages)
        for message in asked:
            for call, outer in zip(_called(message), message.get("tool_calls") or [{}], strict=False):
                if isinstance(call, dict) and isinstance(name := call.get("name"), str):
                    call["name"] += _OTHER
                    if isinstance(outer, dict) and "id" in outer:  # of some templates the call's only name
                        outer["id"] = str(outer["id"]).replace(name, call["name"])
        try:
            dense = "".join(_rendered(tokenizer, asked, chat, generation, tools, place)[0].split())
        except ModelError:  # it knows the tools by name
            asked = messages
    for message in asked:
        said: list[Any] = [call.get("name") if isinstance(call, Mapping) else call for call in _called(message)]
        if message is asked[-1] and message["role"] == "assistant" and is_learnt(message):  # thoughts of the past go
            said += [message.get(name) for name in THOUGHTS]
        if generation and message["role"] in ("system", "user"):
            said.append(message.get("content"))
        for each in filter(lambda text: isinstance(text, str), said):
            forms = each, json.dumps(each, ensure_ascii=False)[1:-1]  # as it is, or inside a string of JSON
            if not any("".join(form.split()) in dense for form in forms):
                each = each.removesuffix(_OTHER)
                raise ModelError(f"{place}: the chat template leaves out what {message['role']} says, {each!r:.60}")
    if not generation:
        return Rendered(text, "", marked)
    plain, _ = _rendered(tokenizer, messages, chat, False, tools, place)
    at = common(text, plain)
    header = _header(tokenizer, messages, chat, tools, text[:at])
    if text == plain and header is not None and header.strip() and not prefill.startswith(header.strip()):
        raise ModelError(
            f"the chat template ignores add_generation_prompt: {place} ends without {header!r}, which it writes before "
            f"an answer; allowed is a template that writes it, or task.template.prefill = {header!r}"
        )
    written = text[at:]
    end = len(written) if header is None else common(written, header)
    if tag := THINKING.search(written):
        end = min(end, tag.start())
    return Rendered(text, written[end:] if written[end:].strip() else "", marked)


def _called(message: Mapping[str, Any]) -> list[Any]:
    """Return what has the names of a message's calls, and calls that are texts."""
    one = message.get("function_call")
    calls = [*(message.get("tool_calls") or ()), *(one if isinstance(one, list) else [one])]
    return [call.get("function", call) if isinstance(call, Mapping) else call for call in calls if call]


def common(first: Sequence[object], second: Sequence[object]) -> int:
    """Count the characters, or tokens, that two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _header(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    chat: ChatArguments,
    tools: Sequence[Mapping[str, Any]] | None,
    before: str,
) -> str | None:
    """Text of the template between this text and an answer; None where it cannot be seen."""
    answered = [*messages, {"role": "assistant", "content": _ANSWER}]
    # of an answer in the past templates leave thinking out, of the last one some write it, empty
    for conversation in ([*answered, {"role": "user", "content": _NEXT}], answered):
        try:
            text, _ = _rendered(tokenizer, conversation, chat, False, tools, "")
        except ModelError:
            continue
        end = text.find(_ANSWER, len(before))
        if text.startswith(before) and end >= 0:
            return text[len(before) : end]
    return None


def _rendered(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    chat: ChatArguments,
    generation: bool,
    tools: Sequence[Mapping[str, Any]] | None,
    place: str,
) -> tuple[str, tuple[tuple[int, int], ...]]:
    arguments = dict(chat.arguments)
    name = arguments.pop("chat_template", None)
    of_recipe = arguments.pop("tools", None)
    tools = of_recipe if tools is None else tools
    template, named = _template(tokenizer, name, bool(tools))
    used = arguments.keys() | ({"tools"} if tools else set())
    if unread := sorted(used - named.reads):
        others = ", ".join(sorted(named.reads)) or "none"
        raise ModelError(f"the chat template does not read the argument {', '.join(unread)}; it reads {others}")
    # a function among the arguments would reach the template as a text; the renderer takes it from the same cache
    chat_template_utils._compile_jinja_template(template).globals[CLOCK] = (chat.now or BEGAN).strftime
    kept = [{key: value for key, value in message.items() if value is not None} for message in messages]
    try:
        renderer: Any = chat_template_utils.render_jinja_template  # its types say less than it takes
        texts, spans = renderer(
            [kept], tools=tools, documents=arguments.pop("documents", None), chat_template=template,
            return_assistant_tokens_mask=named.marks, add_generation_prompt=generation,
            **{**tokenizer.special_tokens_map, **arguments},
        )  # fmt: skip
    except Exception as error:  # of jinja2, or of what the template does with the messages
        roles = ", ".join(str(message.get("role")) for message in messages)
        said = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"the chat template refuses {place} ({roles}): {said}") from None
    return texts[0], tuple((begin, end) for begin, end in spans[0]) if spans else ()


class _Named(NamedTuple):
    reads: frozenset[str]  # Arguments that may be given
    clock: bool
    marks: bool


@lru_cache(maxsize=32)
def _compiled(template: str) -> _Named:
    try:
        environment: Environment = chat_template_utils._compile_jinja_template(template).environment
        tree = environment.parse(template)
    except Exception as error:
        raise ModelError(f"the chat template cannot be read: {' '.join(str(error).split())}") from None
    if any(node.name == "random" for node in tree.find_all(nodes.Filter)):
        raise ModelError("the chat template draws at random, so no prompt would repeat; allowed is one that does not")
    given = find_undeclared_variables(tree) - {"messages", "add_generation_prompt"}  # functions are declared
    # a variable that the template sets counts as given only where it asks for it before
    tests = [node for node in tree.find_all((nodes.Test, nodes.Filter)) if node.name in _ASKS]
    asked = {node.node.name for node in tests if isinstance(node.node, nodes.Name)}
    for assignment in tree.find_all(nodes.Assign):
        target, value = (
            {name.name for name in nodes.List([part]).find_all(nodes.Name)}
            for part in (assignment.target, assignment.node)
        )
        given -= target - value - asked
    reads = frozenset(name for name in given if not name.endswith("_token"))
    clock = any(node.name == CLOCK for node in tree.find_all(nodes.Name))
    return _Named(reads, clock, bool(re.search(r"\{%-?\s*generation\s*-?%\}", template)))


def _template(tokenizer: Any, name: str | None, has_tools: bool) -> tuple[str, _Named]:
    templates = tokenizer.chat_template
    if not templates:
        raise ModelError(
            "the tokenizer has no chat template, which messages need: give plain text, and task.template.chat = false"
        )
    if isinstance(templates, Mapping):
        wanted = name or ("tool_use" if has_tools and "tool_use" in templates else "default")
        if wanted not in templates:
            raise ModelError(
                f"the tokenizer has no chat template {wanted!r}; arguments.chat_template may be one of "
                f"{', '.join(sorted(templates))}"
            )
        templates = templates[wanted]
    elif name:
        raise ModelError(f"arguments.chat_template = {name!r}, but the tokenizer has one chat template: leave it out")
    templates = str(templates).removeprefix("\ufeff")  # of an editor that wrote chat_template.jinja
    return templates, _compiled(templates)


def reads_tools(tokenizer: Any, chat: ChatArguments) -> bool:
    """Tell whether the chat template shows tools."""
    return "tools" in _template(tokenizer, chat.arguments.get("chat_template"), True)[1].reads


def reads_clock(tokenizer: Any) -> bool:
    """Tell whether a chat template of this tokenizer writes the day or the time."""
    templates = tokenizer.chat_template or {}
    each = templates.values() if isinstance(templates, Mapping) else [templates]
    return any(_compiled(template).clock for template in each)


def settled_task(task: TaskConfig, verifier: VerifierConfig, path: str) -> TaskConfig:
    """Return the task with the chat template that the tokenizer of a model has, unless the recipe says; and say so.

    Raises ModelError: there is no such model.
    """
    read: list[bool] = []

    def has_chat() -> bool:
        read.append(RANKS.by_first(lambda: bool(tokenizer_of(path).chat_template)))
        return read[0]

    chosen = settled(task, verifier, has_chat)
    if read == [True] and RANKS.is_first:
        asked = chosen.template.prompt.replace("{question}", "").strip()
        tell(f"chat = true: {path} has a chat template" + (f"; it is asked: {asked}" if asked else ""))
    return chosen


def arguments_read(tokenizer: Any, chat: ChatArguments) -> dict[str, Any]:
    """Return those of the arguments that this tokenizer's template reads, too; for a second model beside a policy."""
    templates, name = tokenizer.chat_template, chat.arguments.get("chat_template")
    chosen = {"chat_template"} if isinstance(templates, Mapping) and name in templates else set[str]()
    reads = _template(tokenizer, name if chosen else None, False)[1].reads if templates else frozenset[str]()
    return {name: value for name, value in chat.arguments.items() if name in reads | chosen}


def unknown_id(tokenizer: Any) -> int | None:
    """Return the id that stands for what a tokenizer cannot write; None where nothing does.

    Those of GPT-2, Pythia and others write every byte, and call their end token the unknown one.
    """
    found: int | None = tokenizer.unk_token_id
    return None if found in (tokenizer.eos_token_id, tokenizer.bos_token_id) else found


@lru_cache(maxsize=16)
def _controls(tokenizer: Any) -> re.Pattern[str]:
    """Pattern of the tokens that no text of a question may spell; the unknown token is refused where it is written."""
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    others = {"", tokenizer.unk_token} if unknown_id(tokenizer) is not None else {""}
    names = sorted({*special, *tokenizer.all_special_tokens} - others, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, names)) or r"(?!)")


def control_in(tokenizer: Any, content: object) -> str | None:
    """Return the first control token that a text, or the texts of a message, spell; None without one."""
    if isinstance(content, str):
        match = _controls(tokenizer).search(content)
        return match[0] if match else None
    inner: Iterable[object] = content.values() if isinstance(content, Mapping) else ()
    inner = content if isinstance(content, list | tuple) else inner
    return next((name for item in inner if (name := control_in(tokenizer, item))), None)


def refuse_controls(tokenizer: Any, content: object, place: str) -> None:
    """Refuse data that spells a control token: the model would read it as one. Raises ModelError."""
    if name := control_in(tokenizer, content):
        raise ModelError(
            f"{place} holds the text {name!r}, which the tokenizer reads as a control token: leave it out of the data, "
            "or write it apart"
        )


class Reads(Protocol):
    """A model and its tokenizer."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def stop_ids(self) -> frozenset[int]: ...


def prompt_ids(model: Reads, text: str, place: str, *, is_chat: bool = False) -> list[int]:
    """Return the ids of a prompt, without an end token that the tokenizer adds behind every text.

    Raises:
        ModelError: it ends in a stop token, holds one though there is no chat template, or begins with two BOS.
    """
    tokenizer, stops = model.tokenizer, model.stop_ids
    # a template writes its own special tokens; adding them again is the classic double BOS
    ids: list[int] = list(tokenizer(text, add_special_tokens=not is_chat)["input_ids"])
    if ids and ids[-1] in stops and not is_chat:
        bare = tokenizer(text, add_special_tokens=False)["input_ids"]
        begin = next(k for k in range(len(ids)) if ids[k : k + len(bare)] == bare)
        ids = ids[: begin + len(bare)]
    bos, special = tokenizer.bos_token_id, set(tokenizer.all_special_ids)
    is_whole = not (is_chat or tokenizer.chat_template)
    if found := [
        token
        for i, token in enumerate(ids)
        if token in stops and (i + 1 == len(ids) or (is_whole and token in special)) and (i or token != bos)
    ]:
        raise ModelError(
            f"{place} {'ends in' if ids[-1] in found else 'holds'} the stop token "
            f"{tokenizer.convert_ids_to_tokens(found[-1])!r}, behind which nothing was ever to be said: leave it out"
        )
    if bos is not None and ids[:2] == [bos, bos]:
        raise ModelError(
            f"{place} begins with two BOS tokens: "
            + ("the chat template already writes one" if is_chat else "the tokenizer already writes one")
        )
    return ids


def ended(model: Reads, ids: Sequence[int]) -> list[int]:
    """Return the ids of a completion with the end token, which its text may have spelt already."""
    end = model.tokenizer.eos_token_id
    return [*ids] if ids and ids[-1] == end else [*ids, end]


def encode_prompt(policy: Backbone, template: Template, problem: Problem, *, prefill: bool = True) -> Prompt:
    """Render a problem as exactly what the model reads; without `prefill` up to where its answer begins.

    Raises:
        ModelError: the chat template refuses, the tokenizer cannot write the prompt, or it holds what no model was
            trained on: control tokens from the data, a stop token at its end, two BOS tokens.
    """
    tokenizer, place = policy.tokenizer, f"the prompt of {problem.id}"
    refuse_controls(tokenizer, problem.question, place)
    if template.chat:
        messages, tools = template.messages(problem), problem.data.get("tools") if problem.messages else None
        text, opened, _ = rendered(
            tokenizer, messages, template, generation=True, tools=tools, prefill=template.prefill, place=place
        )
        if (said := template.prefill.strip()) and opened.rstrip().endswith(said):
            raise ModelError(f"the chat template already writes task.template.prefill = {said!r}: leave it out")
        if not prefill:
            text = text[: len(text) - len(opened)]
    elif problem.messages:
        raise ModelError(
            f"{place} is a conversation, which a chat template alone can write: set task.template.chat = true"
        )
    else:
        text, opened = template.render(problem), ""
    ids = prompt_ids(policy, text, place, is_chat=bool(template.chat))
    begun = opened + template.prefill if prefill else ""
    if prefill and template.prefill:
        text += template.prefill
        ids += tokenizer(template.prefill, add_special_tokens=False)["input_ids"]
    if not ids:
        raise ModelError(f"the prompt of {problem.id} has no tokens: {text!r}")
    unknown = unknown_id(tokenizer)
    if unknown in ids:
        lost = sorted({c for c in text if unknown in tokenizer(c, add_special_tokens=False)["input_ids"]})
        raise ModelError(
            f"the tokenizer cannot write {' '.join(map(repr, lost))} in the prompt of {problem.id}: {text!r}"
        )
    return Prompt(problem, text, tuple(ids), begun)
