"""Models with random weights, for pretraining and for tests."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from groupwise.config import Section
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, make_policy

TAGS = ("<think>", "</think>", "<answer>", "</answer>", "\\boxed{")
END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"


def character_tokenizer(alphabet: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token per character of the alphabet and per tag; other characters are UNKNOWN."""
    vocabulary = {token: index for index, token in enumerate([PAD, END, UNKNOWN, *TAGS, *sorted(set(alphabet))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens(list(TAGS))
    return _wrap(tokenizer, unk_token=UNKNOWN)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token per UTF-8 byte and per tag, which reads any text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate([PAD, END, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(list(TAGS))
    return _wrap(tokenizer)


def _wrap(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False, **special
    )


class NewModel(Section):
    """A model with random weights."""

    architecture: Literal["qwen2", "qwen3", "llama", "mistral"] = "qwen3"
    """Architecture name of transformers."""
    hidden_size: int = Field(192, ge=2)
    """Width d of the residual stream."""
    num_hidden_layers: int = Field(4, ge=1)
    """Number of blocks."""
    num_attention_heads: int = Field(4, ge=1)
    """Query heads."""
    num_key_value_heads: int = Field(2, ge=1)
    """Key and value heads; fewer than query heads is grouped-query attention."""
    intermediate_size: int = Field(512, ge=1)
    """Width of the gated MLP."""
    context_length: int = Field(1024, ge=1)
    """Most positions."""
    tie_word_embeddings: bool = True
    """Use one matrix for the embedding and the head."""
    seed: int = 0
    """Seed of the initial weights."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size = {self.hidden_size} must be a multiple of 2 × num_attention_heads = "
                f"{2 * self.num_attention_heads}: each head has an even width for its rotary positions"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads = {self.num_attention_heads} must be a multiple of num_key_value_heads = "
                f"{self.num_key_value_heads}"
            )
        return self


def new_policy(config: NewModel, tokenizer: Any, model_config: ModelConfig | None = None) -> Policy:
    """Return a policy with random weights for this tokenizer."""
    architecture = AutoConfig.for_model(
        config.architecture,
        vocab_size=len(tokenizer),
        head_dim=config.hidden_size // config.num_attention_heads,
        max_position_embeddings=config.context_length,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        sliding_window=None,
        **config.model_dump(exclude={"architecture", "context_length", "seed"}),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return make_policy(AutoModelForCausalLM.from_config(architecture, dtype=torch.float32), tokenizer, model_config)
