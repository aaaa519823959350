"""Hugging Face directories written as GGUF files, which Ollama, LM Studio and llama.cpp run.

What is written is read back by `models/gguf.py` before the file has its name: keys, and the tokens of a few texts.
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from groupwise.errors import ConfigError, ModelError, told_as
from groupwise.models.gguf import ARCHITECTURES, GGUF, rotated_heads
from groupwise.models.gguf_keys import (
    BYTE,
    CONTROL,
    ENDS,
    FREQUENCIES,
    NORMAL,
    SPACE,
    SPECIAL,
    SPLITS,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    frequency_factors,
    scaling_keys,
    tokenizer_of,
    unwritable,
)
from groupwise.models.loading import PROBES, read_tokenizer

Precision = Literal["f32", "f16", "q8_0"]
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}
"""Number of each precision in the key `general.file_type`."""
BLOCK = 32  # Weights that share a scale in Q8_0; rows must be whole blocks
FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"), "hidden_activation": ("gelu_pytorch_tanh",), "attn_logit_softcapping": (None,),
    "use_bidirectional_attention": (False, None), "mlp_bias": (False,),
}  # fmt: skip
"""Settings that llama.cpp has in its code for every model of an architecture, and their values there."""


def write_gguf(directory: Path, target: Path, precision: Precision) -> None:
    """Write the model of a Hugging Face directory as one GGUF file.

    Norms and biases stay fp32. With `q8_0` a matrix whose rows are no whole blocks of 32 is written in fp16.

    Raises:
        ModelError: the model or its tokenizer has no form in a GGUF file.
        ConfigError: the package `gguf` is not installed.
    """
    try:
        import gguf
    except ImportError:
        raise ConfigError("writing a GGUF file needs the package gguf: pip install groupwise[gguf]") from None

    config = AutoConfig.from_pretrained(directory)
    names = {model_type: name for name, model_type in ARCHITECTURES.items()} | {"mistral": "llama"}
    if config.model_type not in names:
        raise unwritable(directory, f"its model type is {config.model_type!r}; allowed are {', '.join(names)}")
    architecture = names[config.model_type]
    temporary = target.with_name(f".{target.name}.tmp")
    writer = gguf.GGUFWriter(temporary, architecture)
    try:
        writer.add_name(target.stem)
        writer.add_file_type(FILE_TYPES[precision])
        writer.add_quantization_version(2)
        for name, value in _keys(config, directory).items():
            _add(writer, f"{architecture}.{name}", value)
        tokenizer = read_tokenizer(str(directory))
        for name, value in _tokenizer(tokenizer, directory, config).items():
            _add(writer, f"tokenizer.{name}", value)
        mapping = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
        for name, value in _weights(directory):
            known = mapping.get_name(name, try_suffixes=(".weight", ".bias"))
            if known is None:
                raise unwritable(directory, f"there is no place for its weight {name}")
            if architecture == "llama" and (heads := rotated_heads(name, config)):
                value = value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
            if architecture == "gemma3" and name.endswith("norm.weight"):
                value = value + 1
            kind = "f32" if value.ndim == 1 else precision
            kind = "f16" if kind == "q8_0" and value.shape[1] % BLOCK else kind
            dtype = gguf.GGMLQuantizationType[kind.upper()]
            writer.add_tensor(known, gguf.quantize(np.ascontiguousarray(value), dtype), raw_dtype=dtype)
        if config.rope_parameters.get("rope_type") == "llama3":
            writer.add_tensor(FREQUENCIES, frequency_factors(config), raw_dtype=gguf.GGMLQuantizationType.F32)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        _check(temporary, directory, tokenizer, config)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _keys(config: PreTrainedConfig, directory: Path) -> dict[str, Any]:
    """The keys of an architecture; a setting that has none is refused."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    is_gemma = config.model_type == "gemma3_text"
    is_cut = config.model_type == "mistral" and (config.sliding_window or math.inf) < config.max_position_embeddings
    if is_cut or ("sliding_attention" in kinds and not is_gemma):
        raise unwritable(directory, f"{config.model_type} files have no attention windows")
    rope = config.rope_parameters["full_attention"] if is_gemma else config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_head = config.hidden_size // config.num_attention_heads if config.num_hidden_layers == 62 else head_dim
    for name, allowed in (FIXED | {"query_pre_attn_scalar": (per_head,)}).items():
        if (value := getattr(config, name, allowed[0])) not in allowed:
            raise unwritable(directory, f"there is no key for its {name} = {value!r}; allowed is {allowed[0]!r}")
    keys: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        "vocab_size": config.vocab_size,
        **scaling_keys(rope, config.model_type, directory),
    }
    if is_gemma:
        keys["attention.sliding_window"] = config.sliding_window
        keys["rope.freq_base_swa"] = float(config.rope_parameters["sliding_attention"]["rope_theta"])
        if config.final_logit_softcapping:
            keys["final_logit_softcapping"] = float(config.final_logit_softcapping)
    return keys


def _weights(directory: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                yield name, tensors.get_tensor(name).to(torch.float32).numpy()


def _tokenizer(tokenizer: Any, directory: Path, config: PreTrainedConfig) -> dict[str, Any]:
    """The keys of a tokenizer and of the tokens that end a text, without their beginning `tokenizer.`."""
    facts: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {}
    model = facts.get("model", {"type": "in Python"})
    if not isinstance(model.get("vocab"), dict):  # of Unigram it is a list
        raise unwritable(directory, f"there is no form for its tokenizer, {model['type']}")
    added = {entry["id"]: entry for entry in facts["added_tokens"]}
    tokens = {i: token for token, i in model["vocab"].items()} | {i: entry["content"] for i, entry in added.items()}
    types = dict.fromkeys(tokens, NORMAL) | {
        i: CONTROL if entry["special"] else USER_DEFINED for i, entry in added.items()
    }
    keys, size = dict[str, Any](), config.vocab_size
    if model["type"] == "BPE" and not model["byte_fallback"] and model["merges"]:
        keys |= {"ggml.model": "gpt2", "ggml.pre": _pre(facts["pre_tokenizer"], directory)}
        keys["ggml.merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    elif model["type"] == "WordLevel" or model.get("byte_fallback"):
        merged = {left + right: -rank for rank, (left, right) in reversed([*enumerate(model.get("merges", []), 1)])}
        normalizer = json.dumps(facts["normalizer"])
        keys |= {"ggml.model": "llama", "ggml.pre": "default", "ggml.add_space_prefix": "Prepend" in normalizer}
        keys["ggml.scores"] = [float(merged.get(tokens.get(i, ""), 0)) for i in range(size)]
        types |= {
            i: BYTE for i, token in tokens.items() if model.get("byte_fallback") and re.fullmatch("<0x..>", token)
        }
        unknown = model["vocab"].get(model["unk_token"])
        types |= {} if unknown is None else {unknown: UNKNOWN}
        if model["type"] == "WordLevel":
            tokens |= {i: token.replace(" ", SPACE) for i, token in tokens.items()}
    else:
        raise unwritable(directory, f"there is no form for its tokenizer, {model['type']}")
    ids = tokenizer("a").input_ids
    for name, key in SPECIAL.items():
        if (token := getattr(tokenizer, f"{name}_token_id")) in range(size):
            keys[f"ggml.{key}_token_id"] = token
    file = directory / "generation_config.json"
    ends = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else config.eos_token_id
    others = sorted({*(ends if isinstance(ends, list) else [ends])} - {None, tokenizer.eos_token_id})
    if len(others) > len(ENDS):
        raise unwritable(directory, f"it ends at {others} beside eos; allowed are {len(ENDS)} tokens beside it")
    keys |= {f"ggml.{name}_token_id": token for name, token in zip(ENDS, others, strict=False)}
    keys["ggml.add_bos_token"] = ids[0] == tokenizer.bos_token_id
    keys["ggml.add_eos_token"] = ids[-1] == tokenizer.eos_token_id
    templates = tokenizer.chat_template or {}
    templates = templates if isinstance(templates, dict) else {"default": templates}
    for name, template in templates.items():
        keys["chat_template" if name == "default" else f"chat_template.{name}"] = template
    if named := [name for name in templates if name != "default"]:
        keys["chat_templates"] = named
    keys["ggml.tokens"] = [tokens.get(i, f"[PAD{i}]") for i in range(size)]
    keys["ggml.token_type"] = [types.get(i, UNUSED) for i in range(size)]
    return keys


def _pre(pre_tokenizer: Mapping[str, Any] | None, directory: Path) -> str:
    """The key for the way a byte-level tokenizer cuts texts."""
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if pre_tokenizer else []
    patterns: list[str] = []
    for step in steps:
        if step["type"] == "Split":
            patterns.append(step["pattern"].get("Regex", ""))
        elif step["type"] == "Digits" and step["individual_digits"]:
            patterns.append(r"\p{N}")
        elif step["type"] == "ByteLevel":
            patterns += SPLITS["gpt-2"] if step["use_regex"] else ()
        else:
            patterns.append(json.dumps(step))  # which has no name
    pre = next((pre for pre, splits in SPLITS.items() if splits == tuple(patterns)), None)
    if pre is None:
        known = ", ".join(SPLITS)
        why = f"llama.cpp has no name here for the way its tokenizer cuts texts, {patterns}; known are {known}"
        raise unwritable(directory, why)
    return pre


def _add(writer: Any, name: str, value: Any) -> None:
    add = {bool: writer.add_bool, str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    (writer.add_array if isinstance(value, list) else add[type(value)])(name, value)


def _check(file: Path, directory: Path, tokenizer: Any, config: PreTrainedConfig) -> None:
    """Read the file back: keys must mean this configuration, the vocabulary the same tokens, weights are numbers."""
    written = GGUF.open(file)
    again, read = tokenizer_of(written), written.config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read)
    with told_as(ModelError, f"{directory} cannot be written as GGUF", ModelError):
        for name, tensor in written.weights(model):
            written.weight(name, tensor, read)
    added = [f"a {token} a" for token, i in tokenizer.get_added_vocab().items() if i < config.vocab_size]
    for text in (*PROBES, *added):  # some tokens take the spaces around them
        before, after = tokenizer(text).input_ids, again(text).input_ids
        if before != after:
            why = f"its tokenizer reads {text!r} as {before}, and as {after} by what a GGUF file can say"
            raise unwritable(directory, why)
    means, given = read.to_dict(), config.to_dict()
    for name in ("hidden_size", "head_dim", "rope_parameters", "tie_word_embeddings", "layer_types", "sliding_window"):
        if config.model_type != "mistral" and name in means and means[name] != given.get(name, means[name]):
            raise ModelError(f"{file} would say {name} = {means[name]} where the model has {given[name]}")
