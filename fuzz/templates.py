"""Fuzzes the rendering of messages through chat templates."""

import sys
from datetime import datetime

import atheris

with atheris.instrument_imports(include=["groupwise.models.prompts"]):
    from groupwise.errors import ModelError
    from groupwise.models.new_model import byte_tokenizer
    from groupwise.models.prompts import rendered
    from groupwise.tasks.base import ChatArguments

SHELLS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|a|>{% endif %}",
    "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[-1].content | trim }}",
)
ROLES = ["user", "assistant", "system", "tool"]
TOKENIZER = byte_tokenizer()


def check(data: bytes) -> None:
    """Messages give a text that ends in its prefill, without control tokens of theirs, or one sentence."""
    provider = atheris.FuzzedDataProvider(data)
    choice = provider.ConsumeIntInRange(0, 2)
    TOKENIZER.chat_template = SHELLS[choice] if choice < 2 else provider.ConsumeUnicodeNoSurrogates(80)
    turns = range(provider.ConsumeIntInRange(1, 4))
    messages = [
        {"role": provider.PickValueInList(ROLES), "content": provider.ConsumeUnicodeNoSurrogates(30)} for _ in turns
    ]
    try:
        text, prefill, _ = rendered(TOKENIZER, messages, ChatArguments(now=datetime(2020, 1, 1)), generation=True)
    except ModelError as error:
        if "\n" in str(error):
            raise
        return
    assert text.endswith(prefill), "a prefill is the end of its prompt"
    if choice == 0:
        assert text.count("<|end|>") == len(messages), "no end of a turn but the template's"


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
