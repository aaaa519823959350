"""Tokenizers and scaled positions of GGUF files, rebuilt from their keys.

Tokenizers: byte-level BPE, and sentencepiece's by its merges. Positions: linear and YaRN by keys, Llama 3's by a tensor
of factors. What llama.cpp and transformers do not compute alike is refused in both directions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedConfig, PreTrainedTokenizerFast
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from groupwise.errors import ModelError

if TYPE_CHECKING:
    from groupwise.models.gguf import GGUF

FREQUENCIES = "rope_freqs.weight"
"""Tensor of (head_dim / 2,) factors by which Llama 3's scaling divides frequencies: what came out of its settings."""
LLAMA3 = {
    "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
"""Settings that all models with this scaling have (Llama 3.1 to 3.3); the factor is a model's own."""
YARN = ("original_max_position_embeddings", "beta_fast", "beta_slow")  # Settings beside the factor
NEUTRAL = {
    "attn_factor": (1.0,), "yarn_attn_factor": (1.0,), "yarn_ext_factor": (1.0, -1.0), "yarn_log_multiplier": (0.0,),
}  # fmt: skip
"""Keys of YaRN that transformers has no place for, and their values without effect."""


def scaling_of(file: "GGUF") -> dict[str, Any]:
    """Return transformers' settings of a file's scaled positions; empty where they are not scaled."""
    key, has_factors = "rope.scaling.", FREQUENCIES in file.tensors
    # llama.cpp's own defaults, and the older name of the factor
    factor = file.number(f"{key}factor", file.number("rope.scale_linear", 0.0))
    kind = file.number(f"{key}type", "linear" if factor else "none")
    if kind == "none":
        return LLAMA3 | {"factor": round(float(_factors(file).max()), 4)} if has_factors else {}
    if has_factors or kind not in ("linear", "yarn"):
        why = f"scales positions by {kind!r}{f' and {FREQUENCIES}' * has_factors}"
        file.refuse(f"{why}, which its keys do not say whole; put config.json beside it")
    scaling = {"rope_type": kind, "factor": factor or file.number(f"{key}factor")}
    if kind == "yarn":
        for name, plain in NEUTRAL.items():
            if (value := file.number(key + name, plain[0])) not in plain:
                file.refuse(f"has {key}{name} = {value:g}, which is not supported; put config.json beside it")
        scaling[YARN[0]] = file.number(f"{key}original_context_length")
        betas = {name: file.number(f"{key}yarn_{name}", 0.0) for name in YARN[1:]}
        scaling |= {name: beta for name, beta in betas.items() if beta}
    return scaling


def check_factors(file: "GGUF", config: PreTrainedConfig) -> None:
    """Refuse a file whose factors are not those of the configuration made of it."""
    if FREQUENCIES in file.tensors and not np.allclose(_factors(file), frequency_factors(config), rtol=1e-4):
        file.refuse(f"has a {FREQUENCIES} that is not of Llama 3's scaling of positions; put config.json beside it")


def _factors(file: "GGUF") -> Any:
    return np.array(file.tensors[FREQUENCIES].data, dtype=np.float32)


def frequency_factors(config: PreTrainedConfig) -> Any:
    """Return the factors of Llama 3's scaling (head_dim / 2,) that a configuration describes."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
    steps = torch.arange(0, 2 * len(scaled), 2, dtype=torch.float32) / (2 * len(scaled))
    return (config.rope_parameters["rope_theta"] ** -steps / scaled).numpy()


def unwritable(directory: Path, why: str) -> ModelError:
    """Return the error for a model that has no form in a GGUF file."""
    return ModelError(f"{directory} cannot be written as GGUF: {why}")


def scaling_keys(rope: Mapping[str, Any], model_type: str, directory: Path) -> dict[str, Any]:
    """Return the keys, without their architecture, of a model's scaled positions.

    Raises:
        ModelError: a file has no place for them.
    """
    kind = rope["rope_type"]
    allowed: dict[str, tuple[str, ...]] = {"default": (), "linear": ()}
    allowed |= {} if model_type == "gemma3_text" else {"yarn": YARN}
    allowed |= {"llama3": tuple(LLAMA3)} if model_type == "llama" else {}
    if kind not in allowed:
        raise unwritable(directory, f"it scales positions by {kind!r}; allowed are {', '.join(allowed)}")
    known = {"rope_type", "rope_theta", "factor", *allowed[kind]}
    others = [name for name, value in rope.items() if name not in known and value is not None]
    if kind != "default" and (others or (kind == "llama3" and LLAMA3.items() - rope.items())):
        raise unwritable(directory, f"there is no key for its scaling of positions, {rope}")
    if kind not in ("linear", "yarn"):
        return {}
    keys: dict[str, Any] = {"rope.scaling.type": kind, "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn":
        keys["rope.scaling.original_context_length"] = int(rope[YARN[0]])
        keys |= {f"rope.scaling.yarn_{name}": float(rope[name]) for name in YARN[1:] if rope.get(name)}
    return keys


NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # Types of tokens
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Special tokens of transformers, and their keys in GGUF files."""
ENDS = ("eot", "eom")  # Keys of tokens that end a text beside eos: of a turn, of a message
SPACE = "▁"  # Stands for a space in the vocabularies of sentencepiece

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_WORDS,),
    "smollm": (r"\p{N}", _WORDS),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
}
"""Patterns that cut a text before byte-level BPE, by the key `tokenizer.ggml.pre`: one after the other."""


def tokenizer_of(file: "GGUF") -> PreTrainedTokenizerFast:
    """Return the tokenizer that the keys describe."""
    key = {name.removeprefix("tokenizer.ggml."): value for name, value in file.keys.items() if "tokenizer" in name}
    kind, tokens, types = key.get("model"), key.get("tokens"), key.get("token_type")
    if not tokens or not types:
        file.refuse("has no vocabulary (tokenizer.ggml.tokens, token_type)")
    if kind == "gpt2":
        tokenizer = _byte_level(file, key)
    elif kind == "llama":
        tokenizer = _sentencepiece(file, key)
    else:
        file.refuse(
            f"has a tokenizer of the kind {kind!r}; allowed are gpt2 and llama; or put tokenizer.json beside it"
        )
    known = tokenizer.get_vocab()
    for wanted, add in ((CONTROL, tokenizer.add_special_tokens), (USER_DEFINED, tokenizer.add_tokens)):
        named = [token for token, its in zip(tokens, types, strict=True) if its == wanted and token in known]
        add([AddedToken(token, normalized=False, special=wanted == CONTROL) for token in named])
    special = _special(file)
    # where the key is left out llama.cpp adds it in these two kinds of tokenizers
    begins = key.get("add_bos_token", kind == "llama" or SPLITS.get(key.get("pre", "")) == (_LLAMA3,))
    ends = key.get("add_eos_token", False)
    for name, is_used in (("bos", begins), ("eos", ends)):
        if is_used and f"{name}_token" not in special:
            file.refuse(f"adds a {name} token to every text and lacks the key tokenizer.ggml.{name}_token_id")
    if begins or ends:
        used = [special[f"{name}_token"] for name, is_used in (("bos", begins), ("eos", ends)) if is_used]
        single = [used[0]] * begins + ["$A"] + [used[-1]] * ends
        pairs = [(token, tokenizer.token_to_id(token)) for token in used]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=pairs)
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)
    return filled(file, whole)


def filled(file: "GGUF", tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Give a tokenizer the special tokens and the chat templates that the file has, where it has none of its own."""
    tokenizer.add_special_tokens({name: text for name, text in _special(file).items() if not getattr(tokenizer, name)})
    if not tokenizer.chat_template:  # never one of another model
        plain, names = (file.keys.get(f"tokenizer.chat_template{end}") for end in ("", "s"))
        named = {name: file.keys[f"tokenizer.chat_template.{name}"] for name in names or ()}
        tokenizer.chat_template = named | ({"default": plain} if plain else {}) if named else plain
    return tokenizer


def _special(file: "GGUF") -> dict[str, str]:
    """Special tokens by transformers' names; an id outside the vocabulary is none, as in llama.cpp."""
    tokens = dict(enumerate(file.keys.get("tokenizer.ggml.tokens", ())))
    ids = {f"{name}_token": file.keys.get(f"tokenizer.ggml.{its}_token_id") for name, its in SPECIAL.items()}
    return {name: tokens[i] for name, i in ids.items() if i in tokens}


def _byte_level(file: "GGUF", key: Mapping[str, Any]) -> Tokenizer:
    if (pre := key.get("pre")) not in SPLITS:
        file.refuse(
            f"cuts texts in a way that is not known here, tokenizer.ggml.pre = {pre!r}; allowed are "
            f"{', '.join(SPLITS)}; or put the model's tokenizer.json beside it"
        )
    vocabulary = {
        token: i for i, (token, its) in enumerate(zip(key["tokens"], key["token_type"], strict=True)) if its != UNUSED
    }
    merges = [tuple(merge.split(" ")) for merge in key["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre.startswith("llama")))
    if SPLITS[pre] == (_QWEN2,):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(file: "GGUF", key: Mapping[str, Any]) -> Tokenizer:
    # Gemma's files spell runs of spaces as they are; and its merges stand in the order of its vocabulary
    tokens = [token.replace(" ", SPACE) if not token.strip(" ") else token for token in key["tokens"]]
    vocabulary = {
        token: i for i, (token, its) in enumerate(zip(tokens, key["token_type"], strict=True)) if its != UNUSED
    }
    is_gemma = file.architecture.startswith("gemma")
    ranks = {token: i if is_gemma else -key["scores"][i] for token, i in vocabulary.items()}
    pairs = [
        (ranks[token], vocabulary[token[:cut]], token[:cut], token[cut:])
        for token in vocabulary
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    unknown, has_bytes = key.get("unknown_token_id"), BYTE in key["token_type"]
    tokenizer = Tokenizer(models.BPE(
        vocabulary, [(left, right) for *_, left, right in sorted(pairs)], byte_fallback=has_bytes,
        fuse_unk=has_bytes, unk_token=None if unknown is None else tokens[unknown],
    ))  # fmt: skip
    before: list[Any] = [normalizers.Replace(" ", SPACE)]
    after: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback()]
    if key.get("add_space_prefix", True):
        before, after = [normalizers.Prepend(SPACE), *before], [*after, decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.normalizer = normalizers.Sequence(before)
    tokenizer.decoder = decoders.Sequence([*after, decoders.Fuse()])
    return tokenizer


def stop_ids(file: "GGUF", tokenizer: Any) -> list[int]:
    """Return the tokens that end a completion: the file's ends, and the one behind the template's last turn."""
    stops = {file.keys.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", *ENDS)}
    template = tokenizer.chat_template
    template = template.get("default") if isinstance(template, dict) else template
    if template:
        turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "xyz"}]
        rendered = tokenizer.apply_chat_template(turns, chat_template=template, tokenize=False)
        after = rendered.rpartition("xyz")[2].lstrip()
        ids = tokenizer.encode(after, add_special_tokens=False)
        if ids and tokenizer.decode(ids[:1]) in tokenizer.get_added_vocab():
            stops.add(ids[0])
    return sorted(int(stop) for stop in stops if stop is not None)
