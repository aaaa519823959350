"""Reading a transformers model from a directory or a hub, and placing it where it computes."""

import logging
import timeit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models import attention
from groupwise.models.activations import allow_checkpointing
from groupwise.models.adapter_files import AdapterFiles
from groupwise.models.adapters import is_adapter
from groupwise.models.backbone import no_progress_bars, precision
from groupwise.models.config import ModelConfig, located
from groupwise.models.cores import ask_for_threads
from groupwise.models.flex import refuse_without_cuda, set_flex


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
