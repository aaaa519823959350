"""From a problem to the tokens that a model reads."""

from typing import Any

from groupwise.errors import ModelError
from groupwise.models.backbone import Backbone
from groupwise.tasks.base import Template
from groupwise.types import Problem, Prompt


def encode_prompt(policy: Backbone, template: Template, problem: Problem) -> Prompt:
    """Render a problem as exactly what the model reads, once; training, evaluation and replay use these ids.

    Raises:
        ModelError: the tokenizer cannot write a character, has no chat template, or doubles its BOS.
    """
    tokenizer = policy.tokenizer
    text = template.render(problem)
    if template.chat:
        text, ids = _chat(tokenizer, template, text)
    else:
        ids = list(tokenizer(text)["input_ids"])
    if template.prefill:
        text += template.prefill
        ids += tokenizer(template.prefill, add_special_tokens=False)["input_ids"]
    if not ids:
        raise ModelError(f"the prompt of {problem.id} has no tokens: {text!r}")
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        unknown = sorted(
            {c for c in text if tokenizer.unk_token_id in tokenizer(c, add_special_tokens=False)["input_ids"]}
        )
        raise ModelError(
            f"the tokenizer cannot write {' '.join(map(repr, unknown))} in the prompt of {problem.id}: {text!r}"
        )
    bos = tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise ModelError(f"the prompt of {problem.id} begins with two BOS tokens: the chat template already writes one")
    return Prompt(problem, text, tuple(ids), template.prefill)


def _chat(tokenizer: Any, template: Template, question: str) -> tuple[str, list[int]]:
    if not tokenizer.chat_template:
        raise ModelError(
            "task.template.chat is on, but the tokenizer has no chat template: set task.template.chat=false"
        )
    messages = [{"role": "system", "content": template.system}] if template.system else []
    messages.append({"role": "user", "content": question})
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # the template writes its own special tokens; adding them again is the classic double BOS
    return text, list(tokenizer(text, add_special_tokens=False)["input_ids"])
