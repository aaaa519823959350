"""The ends of steps in tokens equal those of a loop over all beginnings, in linear time."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from groupwise.rollout import steps
from groupwise.rollout.steps import TokenEnds, step_ends

WORDS = ["the", "sum", "of", "23", "is", "40,", "so", "x", "=", "−5", "·", "数学", "🙂", "é", "ñ", "naïve\n\n"]


@pytest.fixture(scope="module")
def merged() -> Any:
    """A tokenizer of bytes with merges, whose tokens cut characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="module")
def spaced() -> Any:
    """A tokenizer of words, whose text has no space at its beginning."""
    words = {word: number for number, word in enumerate(dict.fromkeys([f"▁{word}" for word in WORDS] + ["?"]))}
    tokenizer = Tokenizer(models.WordLevel(words, "?"))
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


class Odd:
    """Decodes nothing piece by piece: a text's characters depend on how many tokens it has."""

    def decode(self, ids: Sequence[int]) -> str:
        return "x" * (len(ids) + len(ids) ** 2 // 9)


def ends_of(tokenizer: Any, ids: Sequence[int], char_ends: Sequence[int], prefill: str = "") -> list[int]:
    policy, prompt = SimpleNamespace(tokenizer=tokenizer), SimpleNamespace(prefill=prefill)
    completion = SimpleNamespace(token_ids=np.array(ids, np.int64), text=tokenizer.decode(list(ids)))
    return step_ends(policy, prompt, completion, char_ends)  # type: ignore[arg-type]


def slow_ends(tokenizer: Any, ids: Sequence[int], char_ends: Sequence[int], prefill: str = "") -> list[int]:
    lengths, total = [len(tokenizer.decode(list(ids[:count]))) for count in range(1, len(ids) + 1)], 0
    total, found = lengths[-1], []
    for number, end in enumerate(char_ends, 1):
        inside = min(max(end - len(prefill), 0), total)
        reaching = (count for count, length in enumerate(lengths, 1) if length >= inside)
        is_whole = inside >= total and number == len(char_ends)
        found.append(len(ids) if is_whole else next(reaching))
    return found


@pytest.mark.parametrize("kind", ["bytes", "merged", "spaced", "odd"])
@pytest.mark.parametrize("piece", [3, 64])
def test_they_are_those_of_a_slow_loop(
    kind: str, piece: int, tokenizer: Any, merged: Any, spaced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PIECE", piece)
    one = {"bytes": tokenizer, "merged": merged, "spaced": spaced, "odd": Odd()}[kind]
    for seed in range(20):
        random = np.random.default_rng(seed)
        if kind == "odd" or seed % 2:  # tokens that nobody wrote as text
            size = 9 if kind == "odd" else len(one)
            ids = random.integers(0, size, random.integers(1, 150)).tolist()
        else:
            text = " ".join(random.choice(WORDS, random.integers(1, 30)))
            ids = one(text, add_special_tokens=False)["input_ids"]
        total = len(one.decode(ids))
        char_ends = sorted({0, 1, total // 2, *random.integers(0, total + 8, 20).tolist(), total, total + 5})
        assert ends_of(one, ids, char_ends, "<a>") == slow_ends(one, ids, char_ends, "<a>")


def test_a_long_text_takes_seconds(merged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding every beginning of it would take minutes."""
    random = np.random.default_rng(0)
    text = ""
    while len(text) < 200_000:
        text += " ".join(random.choice(WORDS, 1000))
    ids = merged(text)["input_ids"]
    assert len(ids) > 50_000
    whole = merged.decode(ids)
    char_ends = [place for place, character in enumerate(whole) if character == "\n"]
    began = time.process_time()
    found = ends_of(merged, ids, char_ends)
    assert time.process_time() - began < 4
    for place in (7, len(found) // 2, len(found) - 1):
        before, after = (len(merged.decode(ids[: found[place] + shift])) for shift in (-1, 0))
        assert before < char_ends[place] <= after


@pytest.mark.parametrize("text", ["2 × 3 = 6", "plain", "数学 é 🙂 end", "🙂"])
def test_the_tokens_join_to_the_text_and_a_character_is_its_last_byte_s(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ends = TokenEnds(tokenizer)(ids, text)
    assert ends is not None
    assert len(ids) == len(text.encode())  # a token is a byte
    whole = [len(text.encode()[: i + 1].decode(errors="ignore")) for i in range(len(ids))]
    assert ends.tolist() == whole


def test_the_stop_token_is_empty(tokenizer: Any) -> None:
    ids = [*tokenizer("ab", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    ends = TokenEnds(tokenizer)(ids, "ab")
    assert ends is not None
    assert ends.tolist() == [1, 2, 2]


def test_bytes_that_never_became_a_character_belong_to_the_last_token(tokenizer: Any) -> None:
    ids = tokenizer("a🙂", add_special_tokens=False)["input_ids"][:3]
    text = tokenizer.decode(ids)
    ends = TokenEnds(tokenizer)(ids, text)
    assert ends is not None
    assert (ends[0], ends[-1]) == (1, len(text))


def test_another_text_has_no_offsets(tokenizer: Any) -> None:
    ids = tokenizer("abc", add_special_tokens=False)["input_ids"]
    assert TokenEnds(tokenizer)(ids, "xyz") is None
