"""Tokenizers of GGUF files, rebuilt from their keys: byte-level BPE, and sentencepiece's by its merges."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from groupwise.models.gguf_positions import File

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # Types of tokens
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Special tokens of transformers, and their keys in GGUF files."""
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


def tokenizer_of(file: File) -> PreTrainedTokenizerFast:
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
    special = {
        f"{name}_token": tokens[key[f"{its}_token_id"]] for name, its in SPECIAL.items() if f"{its}_token_id" in key
    }
    begins = key.get("add_bos_token", kind == "llama")
    ends = key.get("add_eos_token", False)
    if begins or ends:
        used = [special[f"{name}_token"] for name, is_used in (("bos", begins), ("eos", ends)) if is_used]
        single = [used[0]] * begins + ["$A"] + [used[-1]] * ends
        pairs = [(token, tokenizer.token_to_id(token)) for token in used]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=pairs)
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **special)
    whole.chat_template = file.keys.get("tokenizer.chat_template")  # never one of another model
    return whole


def _byte_level(file: File, key: Mapping[str, Any]) -> Tokenizer:
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


def _sentencepiece(file: File, key: Mapping[str, Any]) -> Tokenizer:
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


def stop_ids(file: File, tokenizer: Any) -> list[int]:
    """Return the tokens that end a completion: the file's ends, and the one behind the template's last turn."""
    stops = {file.keys.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")}
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "xyz"}]
        after = tokenizer.apply_chat_template(turns, tokenize=False).rpartition("xyz")[2].lstrip()
        ids = tokenizer.encode(after, add_special_tokens=False)
        if ids and tokenizer.decode(ids[:1]) in tokenizer.get_added_vocab():
            stops.add(ids[0])
    return sorted(int(stop) for stop in stops if stop is not None)
