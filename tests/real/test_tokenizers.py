"""Tokenizers of real models: pieces make the whole, chat templates go there and back, stop tokens are the file's."""

import json
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from groupwise.models.loading import read_tokenizer
from groupwise.models.located import locate
from groupwise.models.prompts import rendered
from groupwise.rollout.pieces import Written
from groupwise.tasks.base import ChatArguments

pytestmark = pytest.mark.real
TEXTS = ("naïve 数学 🙂👩‍👩‍👧 e\u0301", "  def f(x):\n\n\treturn x", "\\boxed{42} don't 1,234.5", "<think>a</think> b")
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
TURNS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "2 + 2?"},
    ],
]


@pytest.fixture(scope="module")
def directory(file: Path) -> Path:
    return Path(locate(str(file)).tokenizer)


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Any:
    return read_tokenizer(str(directory))


def test_pieces_make_the_whole(tokenizer: Any, text: str) -> None:
    for whole in (*TEXTS, text[:2000]):
        ids = tokenizer(whole, add_special_tokens=False).input_ids
        written = Written(tokenizer)
        pieces = [written.add(ids[: n + 1], n + 1 == len(ids)) for n in range(len(ids))]
        assert "".join(pieces) == tokenizer.decode(ids)
        assert normalize("NFC", "".join(pieces)) == normalize("NFC", whole)  # as Qwen's reads every text


def test_stop_tokens_are_special_and_decode_alone(tokenizer: Any, directory: Path) -> None:
    stops = json.loads((directory / "generation_config.json").read_text())["eos_token_id"]
    assert tokenizer.eos_token_id in stops
    for stop in stops:
        token = tokenizer.decode([stop])
        assert tokenizer(token, add_special_tokens=False).input_ids == [stop]
        assert token in tokenizer.get_added_vocab()


@pytest.mark.parametrize("turns", TURNS, ids=["question", "system", "dialogue"])
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["plain", "tools"])
def test_a_chat_template_goes_there_and_back(tokenizer: Any, turns: list[dict[str, str]], tools: Any) -> None:
    if not tokenizer.chat_template or (tools and "tools" not in tokenizer.chat_template):
        pytest.skip("has no chat template, or one without tools")
    asked = rendered(tokenizer, turns, ChatArguments(), generation=True, tools=tools).text
    ids = tokenizer(asked, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == asked
    answered = rendered(tokenizer, [*turns, {"role": "assistant", "content": "It is 4."}], ChatArguments(), tools=tools)
    assert answered.text.startswith(f"{asked}It is 4.")
    rest = tokenizer(answered.text, add_special_tokens=False).input_ids[len(ids) :]
    assert tokenizer.decode(rest).startswith("It is 4.")
