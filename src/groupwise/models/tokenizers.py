"""Tokenizers we make ourselves: characters for the shipped base model, bytes for random test models.

Both are plain Hugging Face `tokenizers` files. Tags are single tokens, digits are always single.
"""

from collections.abc import Sequence
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TAGS = ("<think>", "</think>", "<answer>", "</answer>", "\\boxed{")
END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"

TokenizerKind = Literal["characters", "bytes"]


def character_tokenizer(alphabet: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token per character of the alphabet and one per tag; any other character is UNKNOWN."""
    vocabulary = {token: index for index, token in enumerate([PAD, END, UNKNOWN, *TAGS, *sorted(set(alphabet))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens(list(TAGS))
    return _wrap(tokenizer, unk_token=UNKNOWN)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per UTF-8 byte and one per tag; reads any text, for models made to test and to time."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([PAD, END, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(list(TAGS))
    return _wrap(tokenizer)


def _wrap(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False, **special
    )
