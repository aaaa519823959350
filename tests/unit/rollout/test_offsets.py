"""Token offsets: cut at them, a text falls into its tokens, also where a token is part of a character."""

from typing import Any

import pytest

from groupwise.rollout.offsets import TokenEnds


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
