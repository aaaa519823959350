"""Reading a transformers model from a directory or a hub, giving it adapters, and placing it where it computes."""

import logging
import timeit
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.hub import cached_file

from groupwise.config.schema import SHIPPED
from groupwise.errors import ConfigError, ModelError, UnsupportedModelError, told_as
from groupwise.models import attention, experts
from groupwise.models.activations import allow_checkpointing
from groupwise.models.adapters import (
    SCORE,
    Adapters,
    adapted,
    add_products,
    inject,
    is_adapter,
    new_adapters,
    plain_name,
    strip,
    target_layers,
)
from groupwise.models.backbone import Unread, fingerprint, no_progress_bars
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.cores import ask_for_threads, keep_to_quota
from groupwise.models.located import PREFIX, WEIGHTS, AdapterFiles, Located, lasting, locate, name_on_disk, say_left_out
from groupwise.models.recurrent import KINDS, is_recurrent
from groupwise.ranks.group import RANKS

SLOW = 1.5
"""A processor on which a product in bf16 takes this many times as long as in fp32 has no instructions for it."""
ALIGNMENT = 64  # Bytes; torch's own tensors begin at multiples of them


def read_pretrained(
    kind: Any, located: Located, dtype: torch.dtype, **options: Any
) -> tuple[PreTrainedModel, Any, list[str]]:
    """Read a plain model of this kind: the model on a processor, its tokenizer, names of missing weights."""
    with cannot_be_loaded(located), no_progress_bars():
        model, report = kind.from_pretrained(
            located.weights,
            dtype=dtype,  # a weight is converted as it is read: the whole model never stands in two precisions
            attn_implementation=attention.NAME,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are reported, and refused with the missing ones
            **options,
        )
        tokenizer = read_tokenizer(located.tokenizer)
    say_left_out(located, model, report["unexpected_keys"])
    others = [f"{name} of {list(theirs)}, not {list(ours)}" for name, theirs, ours in report["mismatched_keys"]]
    return model, tokenizer, sorted([*report["missing_keys"], *others])


PROBES = (
    "What is 60 x 64?\n", "1234567890 3.14159 1e-05 2024-11-26", "a  b   c\td\r\n\n\n  e ", " I'm we'LL DON'T ", "x",
    "naïve café Å ﬁ ½ ①", "e\u0301 n\u0303", "数学问题：三十七加五等于多少？", "日本語 한국어 العربية ١٢٣ हिन्दी",
    "🙂👩‍👩‍👧 →≤√∑",
    "def f(x):\n    return x**2 # ok\n\n\tif (a!=b):{}", "\\frac{1}{2}\\boxed{42} $x_1^2$",
    "camelCase HTTPServer snake_case",
)  # fmt: skip
"""Texts on which tokenizers differ: digits, spaces, newlines, accents, scripts, emoji, code, LaTeX."""


def read_tokenizer(location: str) -> Any:
    """Read a tokenizer whose ids are those of its `tokenizer.json`, where it has one.

    transformers chooses the class by the model's type or by a name, and some classes put rules of their own in the
    place of the file's; then the file is read as it is, and so checkpoints have it.

    Raises:
        ModelError: neither gives the ids of the file.
    """
    chosen = AutoTokenizer.from_pretrained(location)
    file = cached_file(location, "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    if file is None:
        return chosen
    meant = Tokenizer.from_file(file)
    meant.no_truncation()
    meant.no_padding()
    plain = chosen
    if type(chosen) is not PreTrainedTokenizerFast:
        plain = PreTrainedTokenizerFast.from_pretrained(location)
        if chosen.get_vocab() == plain.get_vocab() and not _difference(chosen, meant):
            return chosen
    if difference := _difference(plain, meant):
        raise ModelError(
            f"the tokenizer that transformers makes of {location!r} is not that of its tokenizer.json: {difference}"
        )
    return plain


def _difference(tokenizer: Any, meant: Tokenizer) -> str:
    """Say where a tokenizer differs from that of the file; empty where it does not."""
    added = [token.content for token in meant.get_added_tokens_decoder().values()]
    has_own = any(key in tokenizer.init_kwargs for key in ("add_bos_token", "add_eos_token"))
    for text in (*PROBES, "a" + "b".join(added)):
        for special in (False,) if has_own else (False, True):
            ids, theirs = (
                tokenizer(text, add_special_tokens=special)["input_ids"],
                meant.encode(text, add_special_tokens=special).ids,
            )
            if ids != theirs:
                return f"{text[:40]!r} is {ids[:8]} and not {theirs[:8]}"
    return ""


@contextmanager
def cannot_be_loaded(located: Located) -> Iterator[None]:
    """Turn errors of the libraries that read a model into one sentence."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        why, path = str(error).split("\n")[0], Path(located.weights)
        if path.exists() and not (path / "config.json").exists():
            why = f"{path} has no config.json, so it is not a Hugging Face model directory"
            why += f"; a run's models are in {path}/checkpoints" if (path / "checkpoints").is_dir() else ""
        raise ModelError(f"the model {located.path!r} cannot be loaded: {why}") from error


def tokenizer_of(path: str) -> Any:
    """Read the tokenizer of the model that a path names. Raises ModelError."""
    located = locate(path)
    with cannot_be_loaded(located):
        return read_tokenizer(located.tokenizer)


def damaged(path: str, lost: list[str]) -> ModelError:
    """Return the error for a model without all of its weights."""
    return ModelError(f"the model {path!r} is damaged: weights {lost[:3]} are missing or of another shape")


class Training(NamedTuple):
    """The part of a model that a run trains."""

    lora: LoraConfig | None  # Adapters; None: the whole model
    seed: int  # Of new adapters


def with_adapters(
    model: PreTrainedModel, located: Located, training: Training | None, unread: Unread | None = None, *, scores: bool
) -> tuple[Adapters | None, list[str]]:
    """Give a plain model its adapters: those of its directory, or new ones; or add them to the weights.

    The model is in fp32 on a processor; where its weights are still `unread`, what depends on them is left to
    `finish_adapters`. Without `training` it computes as it did when it was trained.

    Returns:
        The adapters, and the names of missing weights that came with them (a reward model's score).

    Raises:
        ModelError: the adapters do not fit the model, or are others than `training` says.
        ConfigError: peft is not installed.
    """
    lora, files = training.lora if training else None, located.adapters
    if files is None and (training is None or lora is None):
        return None, []
    base = None if unread else base_fingerprint(model)
    held: list[str] = []
    if files is None:
        assert training is not None and lora is not None
        adapters = Adapters(new_adapters(model, lora, lasting(located.path), training.seed, scores=scores), base)
    else:
        _refuse_other_base(files, base)
        expected = target_layers(model, lora).keys() if lora else None
        held = attach(model, files, scores=scores)
        adapters = Adapters(files.config, base)
        if lora and expected is not None:
            _refuse_others(model, adapters, lora, set(expected), located.path)
    is_added = training is not None and lora is None
    products = strip(model) if is_added else {}
    if unread:
        unread.adapters, unread.files, unread.products = adapters, files, products
    else:
        add_products(model, products)
    return None if is_added else adapters, held


def finish_adapters(model: PreTrainedModel, unread: Unread) -> None:
    """Compare the weights, now read, with those that the adapters stand on, and add what is to be added to them.

    All ranks have to call it.

    Raises:
        ModelError: the adapters were trained on other weights.
    """
    if unread.adapters:
        unread.adapters.base_fingerprint = base_fingerprint(model)
        if unread.files:
            _refuse_other_base(unread.files, unread.adapters.base_fingerprint)
    add_products(model, unread.products)


def base_fingerprint(model: PreTrainedModel) -> str:
    """Return the fingerprint of the weights that make hidden states, without adapters."""
    named = model.base_model.named_parameters()
    return fingerprint((plain_name(name), weight) for name, weight in named if not is_adapter(name))


OF_WEIGHTS = ("pissa", "olora", "corda", "loftq", "mica")
"""Beginnings that peft makes of a layer's weights, again whenever it loads adapters; most stand on what is left."""


@torch.no_grad()
def attach(model: PreTrainedModel, files: AdapterFiles, *, scores: bool) -> list[str]:
    """Put a directory's adapters into the model that they stand on; return the names of other weights it holds."""
    began = str(files.config.init_lora_weights).lower()
    is_early = began.startswith(OF_WEIGHTS) and any(weight.is_meta for weight in model.parameters())
    if is_early or "_niter_" in began:
        why = "ranks have not read when adapters are made" if is_early else "is found from random numbers, each time"
        raise ModelError(
            f"the adapters {files.path!r} began with init_lora_weights = {began!r}, as a part of the weights that "
            f"{why}: what they stand on would be another model; allowed are adapters that peft saved as plain LoRA "
            f"(path_initial_model_for_weight_conversion){', and one process' * is_early}"
        )
    file = Path(files.path) / WEIGHTS
    with told_as(ModelError, f"{file} cannot be read", SafetensorError, OSError):
        saved = {name.removeprefix(PREFIX): tensor for name, tensor in load_file(file).items()}
    inject(model, files.config, scores=scores)
    weights = dict(model.named_parameters())
    held = [name for name in weights if scores and name.startswith(f"{SCORE}.") and name in saved]
    wanted = {name_on_disk(name): weight for name, weight in weights.items() if is_adapter(name)}
    wanted |= {name: weights[name] for name in held}
    different = [
        name
        for name in saved.keys() | wanted.keys()
        if not (name in saved and name in wanted and saved[name].shape == wanted[name].shape)
        and (scores or not name.startswith(f"{SCORE}."))
    ]
    if different:
        raise ModelError(
            f"the adapters {files.path!r} are damaged: weights {sorted(different)[:3]} are missing, of another shape, "
            "or too many"
        )
    for name, weight in wanted.items():
        weight.copy_(saved[name])
    files.config.task_type = "SEQ_CLS" if scores else "CAUSAL_LM"
    files.config.modules_to_save = [SCORE] if scores else None
    return held


def _refuse_other_base(files: AdapterFiles, found: str | None) -> None:
    if None not in (files.base_fingerprint, found) and files.base_fingerprint != found:
        edition = "; the package ships another edition of it now" if files.base == SHIPPED else ""
        raise ModelError(
            f"the adapters {files.path!r} were trained on other weights: {files.base!r} has {found}, and they stand on "
            f"{files.base_fingerprint}{edition}"
        )


def _refuse_others(model: PreTrainedModel, adapters: Adapters, lora: LoraConfig, expected: set[str], path: str) -> None:
    """Refuse to train adapters other than those that the recipe describes."""
    config, layers = adapters.config, adapted(model)
    pairs = {"rank": (lora.rank, config.r), "alpha": (lora.alpha, float(config.lora_alpha))}
    different = [f"lora.{key} = {a:g}, and theirs is {b:g}" for key, (a, b) in pairs.items() if a != b]
    if set(layers) != expected:
        different.append(f"lora.targets = {lora.targets!r}, and they adapt {', '.join(sorted(config.target_modules))}")
    scales = {scale for layer in layers.values() for scale in layer.scaling.values()}
    if not different and scales != {lora.alpha / lora.rank}:
        different.append(f"their scales are {sorted(scales)}, not lora.alpha / lora.rank")
    if different:
        raise ConfigError(
            f"the adapters {path!r} cannot be trained further as the recipe says: {'; '.join(different)}; allowed are "
            "their own settings, or no [lora], which trains the whole model from where they left it"
        )


def device_of(config: ModelConfig) -> str:
    """Return the kind of device that a model goes to: `cpu` or `cuda`."""
    return config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


LARGE = 30_000_000
"""Weights from which on `auto` computes in bfloat16. On a processor with AMX and AVX512-BF16 (Xeon, one thread) a
forward and backward of 512 tokens in bfloat16 took 0.92 of the time of float32 at 1.8 million weights, 0.80 at 6, 0.66
at 17, 0.61 at 36 and 0.58 at 71."""


def compute_dtype(config: ModelConfig, num_weights: int) -> Literal["float32", "bfloat16"]:
    """Return the precision of a model's products: as the recipe says, or by size and device where it says `auto`."""
    if config.compute_dtype != "auto":
        return config.compute_dtype
    if device_of(config) == "cuda":
        is_fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:  # older versions of torch have no public list of a processor's instructions
        has: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        is_fast = bool(has.get("amx_bf16") or has.get("avx512_bf16"))
    is_rounded = config.weights_dtype == "bfloat16"
    return "bfloat16" if is_rounded or (is_fast and num_weights >= LARGE) else "float32"


def place(model: PreTrainedModel, config: ModelConfig, is_read: bool = True) -> torch.dtype:
    """Refuse what the packed forward cannot compute, and move the model to its device, if its weights are read.

    Returns the precision of its products.

    This is the one place that sets the number of CPU threads, which all models of a process share: the last one placed
    with `num_threads` decides it.

    Raises:
        ModelError: there is no such device, or it has no such attention.
        UnsupportedModelError: the model computes attention in a way that is not supported.
    """
    if config.num_threads:
        ask_for_threads(config.num_threads)
    else:
        keep_to_quota()
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError("model.device = cuda, but torch finds no CUDA device here; allowed are auto and cpu")
    device = device_of(config)
    dtype: torch.dtype = getattr(torch, compute_dtype(config, model.num_parameters()))
    if device == "cpu" and config.compute_dtype == "bfloat16" and (times := bfloat16_cost()) > SLOW:
        warnings.warn(
            f"compute_dtype = bfloat16: on this processor a matrix product takes {times:.1f} times as long as in "
            "float32; model.compute_dtype = float32 is faster here",
            stacklevel=2,
        )
    _refuse_unsupported(model)
    model.set_attn_implementation(attention.NAME)
    if model._can_set_experts_implementation():
        model.set_experts_implementation(experts.NAME)
    allow_checkpointing(model, config.activation_checkpointing, dtype)
    if is_read:
        for name, weight in model.named_parameters():  # buffers, such as the frequencies of positions, stay fp32
            if not is_adapter(name):
                weight.data = weight.data.to(getattr(torch, config.weights_dtype))
        model.to(device)  # type: ignore[arg-type]
        # weights read from a file begin anywhere in memory, and products with small matrices round differently at
        # another alignment, so a resumed run would not repeat to the bit
        for weight in model.parameters():
            if weight.data_ptr() % ALIGNMENT:
                weight.data = weight.data.clone()
    model.eval()
    return dtype


def _refuse_unsupported(model: PreTrainedModel) -> None:
    """Refuse by name, from the configuration, what the packed forward would compute wrongly."""
    config = model.config.get_text_config()
    name = type(model).__name__
    supported = ("full_attention", "sliding_attention", *sorted(KINDS))
    if others := sorted(set(getattr(config, "layer_types", None) or []) - set(supported)):
        raise UnsupportedModelError(
            f"{name} has layers of type {', '.join(others)}; supported are {', '.join(supported)}"
        )
    if is_recurrent(model):
        if RANKS.size > 1:
            raise UnsupportedModelError(
                f"{name} has layers with a state, so its sequences are computed in rows of their own, as many at a "
                "time as are of like length; ranks would not agree on how many, so it trains in one process"
            )
    elif not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModelError(f"{name} does not dispatch through transformers' attention interface")


@cache
def bfloat16_cost() -> float:
    """Return the time of a matrix product in bf16 over that in fp32 on this processor; the best of three of each."""
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(256, 256, dtype=dtype)
        seconds.append(min(timeit.repeat(partial(torch.mm, matrix, matrix), repeat=3, number=1)))
    return seconds[1] / seconds[0]


def quiet_transformers() -> None:
    """Keep the progress bars and notices of transformers and the hub out of our display; errors still raise."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    for library in ("transformers", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
