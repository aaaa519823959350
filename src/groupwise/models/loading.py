"""Reading a transformers model from a directory or a hub, and placing it where it computes."""

import logging
import timeit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from groupwise.config.schema import SHIPPED
from groupwise.errors import ConfigError, ModelError, UnsupportedModelError
from groupwise.models import attention
from groupwise.models.activations import allow_checkpointing
from groupwise.models.adapters import (
    SCORE,
    Adapters,
    adapted,
    add_product,
    inject,
    is_adapter,
    merge,
    new_adapters,
    plain_name,
    products,
    strip,
    target_layers,
)
from groupwise.models.backbone import Unread, fingerprint, no_progress_bars, precision
from groupwise.models.config import LoraConfig, ModelConfig, located
from groupwise.models.cores import ask_for_threads
from groupwise.models.flex import refuse_without_cuda, set_flex
from groupwise.models.located import PREFIX, WEIGHTS, AdapterFiles, lasting, name_on_disk


def refuse_unsupported(model: PreTrainedModel) -> None:
    """Refuse by name, from the configuration, what the packed forward would compute wrongly."""
    config = model.config.get_text_config()
    name = type(model).__name__
    if sliding := sorted(set(getattr(config, "layer_types", None) or []) - {"full_attention"}):
        raise UnsupportedModelError(f"{name} has layers of type {', '.join(sliding)}; only full_attention is supported")
    uses_window = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None) is not None
    if uses_window:
        raise UnsupportedModelError(
            f"{name} uses sliding-window attention (window {config.sliding_window}): not supported"
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None) is not None:
            raise UnsupportedModelError(f"{name} soft-caps its logits ({key}={getattr(config, key)}): not supported")
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModelError(f"{name} does not dispatch through transformers' attention interface")


@torch.no_grad()
def compare_with_eager(
    model: PreTrainedModel,
    device: torch.device,
    compute_dtype: torch.dtype,
    ours: Callable[[], Tensor],
    theirs: Callable[[], Tensor],
) -> None:
    """Compare what the packed forward makes of some tokens with what transformers' own eager attention makes of them.

    Args:
        model: computes both.
        device: where it does.
        compute_dtype: in which precision; it decides how much may differ.
        ours: in the packed forward.
        theirs: the same, every sequence alone.

    Raises:
        UnsupportedModelError: they differ.
    """
    with precision(device, compute_dtype):
        packed = ours().float()
        model.set_attn_implementation("eager")
        alone = theirs().float()
        model.set_attn_implementation(attention.NAME)
    difference = (packed - alone).abs().max().item()
    allowed = (1e-3 if compute_dtype is torch.float32 else 0.25) * max(1.0, alone.abs().max().item())
    if not difference <= allowed:
        raise UnsupportedModelError(
            f"{type(model).__name__}: the packed forward differs from transformers' eager forward by {difference:.2g} "
            f"(allowed {allowed:.2g}), so this architecture is not supported"
        )


SLOW = 1.5
"""A processor on which a product in bf16 takes this many times as long as in fp32 has no instructions for it."""


def read_pretrained(
    kind: Any, config: ModelConfig, files: AdapterFiles | None = None, **options: Any
) -> tuple[PreTrainedModel, Any, list[str]]:
    """Read a directory or hub name as this kind of model: the model, its tokenizer, the weights that are not there.

    Of a directory of adapters (`files`) it is the model that they stand on, without them.

    Raises:
        ModelError: it is missing or cannot be read.
    """
    path = located(files.base if files else config.path)
    with cannot_be_loaded(config.path, path):
        with no_progress_bars():
            model, report = kind.from_pretrained(
                path, dtype=torch.float32, attn_implementation=attention.NAME, output_loading_info=True, **options
            )
        tokenizer = AutoTokenizer.from_pretrained(located(files.tokenizer) if files else path)
    return model, tokenizer, sorted([*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])])


@contextmanager
def cannot_be_loaded(path: str, location: str) -> Iterator[None]:
    """Errors of the libraries that read a model become one sentence."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"the model {path!r} cannot be loaded: {_why(location, error)}") from error


def _why(path: str, error: Exception) -> str:
    if Path(path).exists() and not (Path(path) / "config.json").exists():
        return f"{path} has no config.json, so it is not a Hugging Face model directory"
    return str(error).split("\n")[0]


def damaged(path: str, lost: list[str]) -> ModelError:
    """What is said of a model without all of its weights."""
    return ModelError(f"the model {path!r} is damaged: weights {lost[:3]} are missing or of another shape")


def device_of(config: ModelConfig) -> str:
    """The kind of device that a model goes to."""
    return config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def place(model: PreTrainedModel, config: ModelConfig, is_read: bool = True) -> None:
    """Refuse what the packed forward cannot compute, and move the model to its device, if its weights are read.

    This is the one place that sets the number of CPU threads, which all models of a process share: the last one placed
    with `num_threads` decides it.
    """
    if config.num_threads:
        ask_for_threads(config.num_threads)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError("model.device = cuda, but torch finds no CUDA device here; allowed are auto and cpu")
    device = device_of(config)
    if device == "cpu" and config.compute_dtype == "bfloat16":
        _warn_if_slow(bfloat16_cost())
    refuse_unsupported(model)
    if config.attention == "flex":
        refuse_without_cuda(device)
    model.set_attn_implementation(attention.NAME)
    allow_checkpointing(model, config.activation_checkpointing, getattr(torch, config.compute_dtype))
    if is_read:
        _round(model, getattr(torch, config.weights_dtype))
        model.to(device)  # type: ignore[arg-type]
        _align(model)
    set_flex(model, config.attention == "flex")
    model.eval()


def _round(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Give all weights this precision. Buffers, such as the frequencies of positions, and adapters keep theirs."""
    for name, weight in model.named_parameters():
        if not is_adapter(name):
            weight.data = weight.data.to(dtype)


ALIGNMENT = 64
"""Bytes; where torch's own tensors begin."""


def _align(model: PreTrainedModel) -> None:
    """Let all weights begin where torch lets its own begin; those read from a file begin anywhere in it.

    Products with small matrices round differently at another alignment, so a resumed run would not repeat to the bit.
    """
    for weight in model.parameters():
        if weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()


def _warn_if_slow(times: float) -> None:
    if times > SLOW:
        warnings.warn(
            f"compute_dtype = bfloat16: on this processor a matrix product takes {times:.1f} times as long as in "
            "float32; model.compute_dtype = float32 is faster here",
            stacklevel=2,
        )


@cache
def bfloat16_cost() -> float:
    """How many times as long as in fp32 a matrix product takes in bf16 on this processor; the best of three of each."""
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


class Training(NamedTuple):
    """What a run trains of a model."""

    lora: LoraConfig | None
    """Adapters; None: the whole model."""
    seed: int
    """Of new adapters."""


def with_adapters(
    model: PreTrainedModel,
    files: AdapterFiles | None,
    training: Training | None,
    path: str,
    unread: Unread | None = None,
    *,
    scores: bool,
) -> tuple[Adapters | None, list[str]]:
    """Give a plain model the adapters that it is to have.

    Args:
        model: as read from its directory, in fp32 on a processor.
        files: the adapters that the recipe's path means; None where it means the plain model.
        training: what is trained; None: nothing is, and the model computes as it did when it was trained.
        path: the recipe's.
        unread: what is known of its weights, where they are read later; what has to be done with them is added to it.
        scores: whether the model is a reward model.

    Returns:
        The adapters, and the names of lost weights that came with them (a reward model's score).

    Raises:
        ModelError: the adapters do not fit the model, or are others than `training` says.
        ConfigError: peft is not installed.
    """
    lora = training.lora if training else None
    if files is None:
        if training is None or lora is None:
            return None, []
        base, found = lasting(path), LATER if unread else body_fingerprint(model)
        adapters = new_adapters(model, lora, base, found, training.seed, scores=scores)
        if unread:
            unread.then.append(partial(_know_base, model, adapters, None))
        return adapters, []
    expected = set(target_layers(model, lora)) if lora else None
    adapters, held = attach(model, files, scores=scores, is_read=unread is None)
    if unread:
        unread.then.append(partial(_know_base, model, adapters, files))
    if training and lora is None:
        _merge(model, unread)
        return None, held
    if lora is not None:
        _refuse_others(model, adapters, lora, expected, path)
    return adapters, held


LATER = ""
"""Stands for the fingerprint of weights that are not read yet."""


def _know_base(model: PreTrainedModel, adapters: Adapters, files: AdapterFiles | None) -> None:
    """Now that the weights are there: which ones the adapters stand on."""
    named = model.base_model.named_parameters()
    found = fingerprint((plain_name(name), weight) for name, weight in named if not is_adapter(name))
    if files:
        _refuse_other_base(files, found)
    adapters.base_fingerprint = found


def _merge(model: PreTrainedModel, unread: Unread | None) -> None:
    if unread is None:
        merge(model)
        return
    added = products(model)
    strip(model)

    def add() -> None:
        for name, product in added.items():
            add_product(model.get_parameter(name), product)

    unread.then.append(add)


def _refuse_others(
    model: PreTrainedModel, adapters: Adapters, lora: LoraConfig, expected: set[str] | None, path: str
) -> None:
    """Adapters that go on learning are those that the recipe describes."""
    config, layers = adapters.config, adapted(model)
    found = {"rank": config.r, "alpha": float(config.lora_alpha)}
    said = {"rank": lora.rank, "alpha": lora.alpha}
    different = [
        f"lora.{name} = {said[name]:g}, and theirs is {found[name]:g}" for name in said if said[name] != found[name]
    ]
    if set(layers) != expected:
        different.append(f"lora.targets = {lora.targets!r}, and they adapt {', '.join(sorted(config.target_modules))}")
    scales = {scale for layer in layers.values() for scale in layer.scaling.values()}
    if not different and scales != {lora.alpha / lora.rank}:
        different.append(f"their scales are {sorted(scales)}, not lora.alpha / lora.rank")
    if different:
        raise ConfigError(
            f"the adapters {path!r} cannot go on as the recipe says: {'; '.join(different)}; allowed are their own "
            "settings, or no [lora], which trains the whole model from where they left it"
        )


def body_fingerprint(model: PreTrainedModel) -> str:
    """Of the weights that make hidden states, in a model that has no adapters yet."""
    return fingerprint(model.base_model.named_parameters())


@torch.no_grad()
def attach(
    model: PreTrainedModel, files: AdapterFiles, *, scores: bool, is_read: bool = True
) -> tuple[Adapters, list[str]]:
    """Put a directory's adapters into the model that they stand on; the names of other lost weights it holds.

    Args:
        model: on a processor, in fp32, without adapters.
        files: what the directory says of itself.
        scores: whether the model is a reward model, whose score the directory may hold.
        is_read: whether its weights are there, so that they can be compared with those that the adapters stand on.

    Raises:
        ModelError: the model has other weights than the one they were trained on, or the file is damaged.
    """
    found = body_fingerprint(model) if is_read else LATER
    if is_read:
        _refuse_other_base(files, found)
    saved = _weights(Path(files.path) / WEIGHTS)
    inject(model, files.config, scores=scores)
    wanted = {name_on_disk(name): weight for name, weight in model.named_parameters() if is_adapter(name)}
    held = {name: weight for name, weight in model.named_parameters() if scores and name.startswith(f"{SCORE}.")}
    wanted |= {name: weight for name, weight in held.items() if name in saved}
    different = [n for n in saved.keys() | wanted.keys() if _shape(saved.get(n)) != _shape(wanted.get(n))]
    if different := sorted(name for name in different if scores or not name.startswith(f"{SCORE}.")):
        raise ModelError(f"the adapters {files.path!r} are damaged: weights {different[:3]} are missing, of another "
                         "shape, or too many")  # fmt: skip
    for name, weight in wanted.items():
        weight.copy_(saved[name])
    config = files.config
    config.task_type = "SEQ_CLS" if scores else "CAUSAL_LM"
    config.modules_to_save = [SCORE] if scores else None
    return Adapters(config, found), [name for name in held if name in saved]


def _refuse_other_base(files: AdapterFiles, found: str) -> None:
    if files.base_fingerprint not in (None, found):
        edition = "; the package ships another edition of it now" if files.base == SHIPPED else ""
        raise ModelError(
            f"the adapters {files.path!r} were trained on other weights: {files.base!r} has {found}, and they stand on "
            f"{files.base_fingerprint}{edition}"
        )


def _weights(file: Path) -> dict[str, Tensor]:
    try:
        return {name.removeprefix(PREFIX): tensor for name, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None


def _shape(weight: Tensor | None) -> tuple[int, ...] | None:
    return None if weight is None else tuple(weight.shape)
