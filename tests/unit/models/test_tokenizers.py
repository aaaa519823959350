"""A completion that is read as it grows is the completion: added tokens, half characters, spaces, stop texts."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from groupwise.models.new_model import NewModel, new_policy
from groupwise.models.policy import make_policy
from groupwise.rollout.pieces import Written

ADDED = ("<think>", "</think>", "<|over|>")


def whole(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens(["<|over|>"])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ADDED[:2]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **special)


def byte_level() -> PreTrainedTokenizerFast:
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he", "Ġthe"]
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return whole(tokenizer, eos_token="<|over|>")


def byte_fallback() -> PreTrainedTokenizerFast:
    """As sentencepiece has it: a space before every text, and bytes for what is not in the vocabulary."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "t", "h", "e", "he", "▁t", "▁the"]
    merges = [("h", "e"), ("▁", "t"), ("▁t", "he")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return whole(tokenizer, eos_token="<|over|>", unk_token="<unk>")


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}
WORDS = st.sampled_from([*ADDED, "the", " ", "  ", "\n", "ab", "é", "数学", "🙂", "👩‍👩‍👧", "e\u0301"])


def read(tokenizer: Any, ids: Sequence[int]) -> str:
    written = Written(tokenizer)
    return "".join(written.add(ids[: n + 1], n + 1 == len(ids)) for n in range(len(ids)))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.lists(WORDS, max_size=8).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_pieces_of_a_text_make_the_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert read(tokenizer, ids) == tokenizer.decode(ids)
    # sentencepiece writes a space behind every added token, too
    spaces = {} if name == "byte level" else {ord(" "): None}
    assert tokenizer.decode(ids).translate(spaces) == text.translate(spaces)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(draws=st.lists(st.integers(0, 1 << 16), min_size=1, max_size=12))
def test_pieces_of_any_tokens_make_their_text(name: str, draws: list[int]) -> None:
    tokenizer = TOKENIZERS[name]
    ids = [draw % len(tokenizer) for draw in draws]
    text, pieces = tokenizer.decode(ids), read(tokenizer, ids)
    # bytes that are no text make sentencepiece take back the bytes before them: then the whole stands there again
    assert pieces == text or (name == "byte fallback" and pieces.endswith(f"\n{text}"))


def test_half_a_character_waits_for_its_other_bytes() -> None:
    tokenizer = TOKENIZERS["byte level"]
    written, ids = Written(tokenizer), tokenizer("é🙂").input_ids
    assert [written.add(ids[: n + 1]) for n in range(len(ids))] == ["", "é", "", "", "", "🙂"]
    assert Written(tokenizer).add(ids[:1], is_end=True) == "\ufffd"


def test_stop_texts_of_the_generation_config_are_stop_tokens_or_said() -> None:
    tokenizer = TOKENIZERS["byte level"]
    shape = NewModel(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, context_length=64
    )
    model: Any = new_policy(shape, tokenizer).model
    model.generation_config.stop_strings = ["</think>", "Question:"]
    with pytest.warns(UserWarning, match=r"stops at the texts \['Question:'\].*sampling.stop"):
        policy = make_policy(model, tokenizer)
    assert policy.stop_ids == {tokenizer.convert_tokens_to_ids(name) for name in ("<|over|>", "</think>")}
