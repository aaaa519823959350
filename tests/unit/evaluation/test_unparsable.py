"""One sentence where most completions cannot be read: what is missing, what would help, and one of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.evaluation.evaluate import unparsable
from groupwise.tasks.base import Template, asking
from groupwise.types import FinishReason, Outcome, Verdict
from groupwise.verifiers import verifier_config

ASKS = asking("boxed", thinks=False)
SET = "the prompt does not ask for it: set task.template.prompt = "


def said(texts: list[str], template: Template, reason: FinishReason = FinishReason.STOP, **more: Any) -> str:
    completions = [SimpleNamespace(text=text, finish_reason=reason) for text in texts]
    fine = more.pop("fine", 0)
    outcomes = [Outcome.CORRECT] * fine + [Outcome.UNPARSABLE] * (len(texts) - fine)
    verdicts = [Verdict(outcome, {}, "not JSON: line 1") for outcome in outcomes]
    group: Any = SimpleNamespace(group=SimpleNamespace(completions=completions), verdicts=verdicts)
    tokenizer = SimpleNamespace(chat_template=more.pop("chat_template", None))
    judge = SimpleNamespace(config=verifier_config({"kind": "math", **more}))
    actors: Any = SimpleNamespace(policy=SimpleNamespace(tokenizer=tokenizer), template=template, verifier=judge)
    return unparsable(actors, [group], 32)


@pytest.mark.parametrize(
    ("template", "more", "sentence"),
    [
        (Template(), {}, f"4 of 4 completions are unparsable: none of 4 contains \\boxed{{}}, and {SET}{ASKS!r}"),
        (Template(), {"extraction": "tag"}, "none of 4 contains <answer></answer>, and the prompt does not ask for it"),
        (Template(prompt=ASKS), {"chat_template": "x"}, "which the prompt does without: set task.template.chat = true"),
        (Template(prompt=ASKS, chat=True), {"chat_template": "x", "reason": FinishReason.LENGTH},
         "4 were cut at 32 tokens: set sampling.max_tokens = 64"),
        (Template(prompt=ASKS, chat=True), {"chat_template": "x"}, "the prompt asks for it: show the model an example"),
        (Template(), {"kind": "json"}, "4 of 4 completions are unparsable: not JSON: line 1, and the prompt asks"),
        (Template(), {"fine": 1}, "3 of 4 completions are unparsable: none of 3"),
    ],
)  # fmt: skip
def test_the_sentence(template: Template, more: dict[str, Any], sentence: str) -> None:
    told = said(["It is 4"] * 4, template, **more)
    assert sentence in told
    assert told.endswith("; one ends in 'It is 4'")
    assert "\n" not in told


def test_a_half_is_not_most() -> None:
    assert said(["It is 4"] * 4, Template(), fine=2) == ""


def test_those_that_hold_it_are_counted() -> None:
    assert "only 1 of 4 contains \\boxed{}" in said(["\\boxed{1} \\boxed{2}", "a", "b", "c"], Template())
