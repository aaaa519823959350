"""A chat model is recognised by its tokenizer, and asked for what the verifier reads, where a recipe says nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.errors import ConfigError
from groupwise.models import prompts
from groupwise.models.prompts import settled_task
from groupwise.tasks.base import ASKED, Template
from groupwise.tasks.table import TASKS, settled, with_verifier
from groupwise.types import Problem
from groupwise.verifiers import verifier_config

BOXED = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
TAG = "{question}\n\nPlease reason step by step, and put your final answer within <answer></answer>."
THINKING = BOXED.replace("reason step by step", "think inside <think> </think>")
PUZZLES = {"a": {"task": {"kind": "knights_knaves"}}, "b": {"task": {"kind": "countdown"}}}
GIVEN = {"prompt": "{question}\n"}
OWN = f"{__file__}:Own"


class Own(Template):
    prompt: str = "{question} Box it."


def chosen(task: dict[str, Any], has_chat: bool, **verifier: Any) -> Template:
    config: Any = TASKS.read(task)
    judge = verifier_config(with_verifier({"task": config, "verifier": verifier}, None)["verifier"])
    result = settled(config, judge, lambda: has_chat)
    assert settled(TASKS.read(result.model_dump()), judge, lambda: not has_chat) == result  # type: ignore[arg-type]
    return result.template


@pytest.mark.parametrize(
    ("task", "verifier", "prompt"),
    [
        ({"kind": "arithmetic"}, {}, BOXED),
        ({"kind": "arithmetic"}, {"extraction": "tag"}, TAG),
        ({"kind": "arithmetic"}, {"format_reward": 0.1}, THINKING),
        ({"kind": "arithmetic"}, {"kind": "answered"}, "{question}"),
        ({"kind": "arithmetic", "template": GIVEN}, {}, "{question}\n"),
        ({"kind": "arithmetic", "template": {"system": "Be brief."}}, {}, BOXED),
        ({"kind": "arithmetic", "template": OWN}, {}, "{question} Box it."),
        ({"kind": "jsonl", "path": "a", "template": {"kind": OWN, "system": "Be brief."}}, {}, "{question} Box it."),
        ({"kind": "jsonl", "preset": "gsm8k"}, {}, BOXED),
        ({"kind": "jsonl", "preset": "gsm8k", "template": {"chat": True}}, {}, BOXED),
        ({"kind": "json_extraction"}, {}, "{question}"),
        ({"kind": "mixture", "parts": PUZZLES}, {}, BOXED),
        ({"kind": "mixture", "parts": {**PUZZLES, "c": {"task": {"kind": "json_extraction"}}}}, {}, "{question}"),
    ],
)
def test_a_chat_model_is_asked_for_what_the_verifier_reads(
    task: dict[str, Any], verifier: dict[str, Any], prompt: str
) -> None:
    template = chosen(task, True, **verifier)
    assert (template.chat, template.prompt) == (True, prompt)


def test_a_prompt_that_says_its_form_is_kept() -> None:
    template = chosen({"kind": "propositional_proofs"}, True)
    assert template.prompt == TASKS.read("propositional_proofs").template.prompt  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_chat", [True, False])
@pytest.mark.parametrize("task", [{"kind": "arithmetic", "template": {"chat": False}}, {"kind": "jsonl", "path": "a"}])
def test_a_base_model_reads_what_it_read(task: dict[str, Any], has_chat: bool) -> None:
    template = chosen(task, has_chat and "template" in task)
    assert template == TASKS.read(task).template.model_copy(update={"chat": False})  # type: ignore[attr-defined]


def test_what_is_asked_for_stays_out_of_conversations() -> None:
    problem = Problem("p", "q", "1", messages=({"role": "user", "content": "q, boxed"},))
    assert [Template(chat=True, prompt=prompt).messages(problem)[0]["content"] for prompt in ASKED] == ["q, boxed"] * 8


@pytest.mark.parametrize("given", [{"arguments": {"enable_thinking": False}}, {"system": "Be brief."}])
def test_what_is_of_a_chat_template_needs_one(given: dict[str, Any]) -> None:
    name = next(iter(given))
    with pytest.raises(ConfigError, match=rf"task\.template\.{name} is of a chat template, which"):
        chosen({"kind": "arithmetic", "template": given}, False)
    with pytest.raises(ValidationError, match=f"{name} is of the chat template, which chat = false leaves out"):
        Template(chat=False, **given)


@pytest.mark.parametrize(
    ("template", "chat", "said"),
    [
        ("{{ messages }}", None, "chat = true: m has a chat template; it is asked: Please reason step by step, and"),
        ("{{ messages }}", False, ""),
        (None, None, ""),
    ],
)
def test_the_choice_is_said(monkeypatch: pytest.MonkeyPatch, template: Any, chat: bool | None, said: str) -> None:
    lines = list[str]()
    monkeypatch.setattr(prompts, "tell", lines.append)
    monkeypatch.setattr(prompts, "tokenizer_of", lambda path: SimpleNamespace(chat_template=template))
    config: Any = TASKS.read({"kind": "arithmetic", "template": {} if chat is None else {"chat": chat}})
    settled_task(config, verifier_config("math"), "m")
    assert "".join(lines)[: len(said)] == said
    assert bool(lines) == bool(said)
