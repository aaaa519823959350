"""Reading a model in rows: every rank builds it without numbers, keeps its rows of every weight and reads those alone.

No rank holds all weights. `read` builds the model on the device "meta", which has no memory, and finds every weight in
the safetensors files by their headers; `sharding.shard` leaves each rank its rows; `fill` gives them memory and reads
them. Buffers, such as the frequencies of positions, are no weights: they are computed as transformers computes them, at
once and whole.

Ranks on several hosts might see different files of one name. `fill` makes sure that headers and the first row of every
weight are the same for all, in which two trained models would differ. The fingerprint that a run compares with its
ledger is that of all rows of all ranks.
"""

import hashlib
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PreTrainedModel

from groupwise.errors import ConfigError, ModelError, UnsupportedModelError, told_as
from groupwise.models import attention
from groupwise.models.adapters import plain_name
from groupwise.models.backbone import Place, Unread, no_progress_bars
from groupwise.models.config import ModelConfig
from groupwise.models.loading import cannot_be_loaded, device_of, finish_adapters, read_pretrained, read_tokenizer
from groupwise.models.located import Located, say_left_out
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import first_row, is_sharded, materialise, own_rows

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Files of a Hugging Face directory: all weights, or which file holds which."""

Headers = Mapping[str, tuple[Path, tuple[int, ...]]]
"""Of every tensor in the files, by name: its file and its shape."""


def read(
    kind: Any, located: Located, config: ModelConfig, in_rows: bool, adapts: bool, **options: Any
) -> tuple[PreTrainedModel, Any, list[str], Unread | None]:
    """Read a plain model of this kind, or, among ranks, prepare to read it `in_rows`. `adapts`: it gets adapters.

    Returns:
        The model, its tokenizer, the weights that are missing, and what is still unread (None: nothing).

    Raises:
        ModelError: it cannot be read.
        UnsupportedModelError: it has a buffer whose numbers are in no file and not computed by transformers.
        ConfigError: its weights are to be in bf16.
    """
    # adapters are made beside weights in fp32, of which the base has its fingerprint; `place` converts these later
    dtype = torch.float32 if adapts or located.adapters else getattr(torch, config.weights_dtype)
    if not in_rows or RANKS.size == 1:
        with cannot_be_loaded(located):
            files = _weight_files(located.weights) if dtype is torch.bfloat16 else None
        if files:
            with opened(files[0]) as tensors:
                if tensors.get_slice(next(iter(tensors.keys()))).get_dtype() == "F32":
                    dtype = torch.float32  # as they lie in the files, which `place` converts and lets go one by one
        return *read_pretrained(kind, located, dtype, **options), None
    refuse_bfloat16(config.weights_dtype == "bfloat16")
    with cannot_be_loaded(located), no_progress_bars():
        model = _built(kind, located.weights, options)
        tokenizer = read_tokenizer(located.tokenizer)
        files = None if isinstance(model, str) else _weight_files(located.weights)
    if isinstance(model, str) or files is None:
        if RANKS.is_first:
            why = model if isinstance(model, str) else "it has no safetensors files"
            warnings.warn(
                f"{located.path!r}: every rank reads the whole model before it keeps its rows, because {why}",
                stacklevel=2,
            )
        return *read_pretrained(kind, located, dtype, **options), None
    device = torch.empty(0, device=device_of(config)).device
    headers: dict[str, tuple[Path, tuple[int, ...]]] = {}
    for file in files:
        with opened(file) as tensors:
            headers |= {name: (file, tuple(tensors.get_slice(name).get_shape())) for name in tensors.keys()}  # noqa: SIM118
    places, same, lost = _places(model, headers)
    taken = {place.name for place in (*places.values(), *(other for _, other in same))}
    say_left_out(located, model, headers.keys() - taken)
    _make_buffers(model, headers, device)
    return model, tokenizer, lost, Unread(located.path, device, places, same)


def refuse_bfloat16(is_used: bool) -> None:
    """Refuse weights in bf16 among ranks, which hold their shares in fp32."""
    if is_used:
        raise ConfigError(
            'model.weights_dtype = "bfloat16" is for one process: ranks keep fp32 weights in shares; allowed among '
            'ranks is compute_dtype = "bfloat16" alone'
        )


def _built(kind: Any, path: str, options: dict[str, Any]) -> PreTrainedModel | str:
    """The model without numbers, or why its weights cannot be read in rows."""
    from transformers.conversion_mapping import get_model_conversion_mapping

    config = AutoConfig.from_pretrained(path, **options)
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are quantized"
    with torch.device("meta"):
        model: PreTrainedModel = kind.from_config(config, dtype=torch.float32, attn_implementation=attention.NAME)
    if get_model_conversion_mapping(model, add_legacy=False):
        return "its files hold weights in another form than it computes with"
    if model.can_generate():
        with suppress(OSError):  # without a file it is what the model's configuration says of it
            model.generation_config = GenerationConfig.from_pretrained(path)
    return model


def _weight_files(path: str) -> list[Path] | None:
    """Files that hold weights, of a directory or from the hub's cache; None where there are none of safetensors."""
    from transformers.utils.hub import cached_file, get_checkpoint_shard_files

    if not Path(path).is_dir():
        single, index = (cached_file(path, n, _raise_exceptions_for_missing_entries=False) for n in (SINGLE, INDEX))
        if single or not index:
            return [Path(single)] if single else None
        return [Path(file) for file in get_checkpoint_shard_files(path, index)[0]]
    if (Path(path) / SINGLE).is_file():
        return [Path(path) / SINGLE]
    if not (Path(path) / INDEX).is_file():
        return None
    names = sorted(set(json.loads((Path(path) / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    if missing := [name for name in names if not (Path(path) / name).is_file()]:
        raise ModelError(f"{Path(path) / INDEX} names {missing[0]}, which is not there")
    return [Path(path) / name for name in names]


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """Open a file of safetensors, whose tensors are read when they are asked for."""
    with told_as(ModelError, f"{file} cannot be read", SafetensorError, OSError), safe_open(file, "pt") as tensors:
        yield tensors


def _place(headers: Headers, name: str, shape: torch.Size) -> Place | None:
    if name not in headers:
        return None
    file, stored = headers[name]
    if stored != tuple(shape):
        raise ModelError(f"{file} holds {name} as {list(stored)}, and the model wants {list(shape)}")
    return Place(file, name)


def _places(model: PreTrainedModel, headers: Headers) -> tuple[dict[str, Place], list[tuple[Place, Place]], list[str]]:
    """Places of every weight, of those that are there twice, and names of the missing ones.

    Files of a body alone, without the name of the whole model before its weights, are read, too.
    """
    prefix = f"{model.base_model_prefix}."
    names: dict[nn.Parameter, list[str]] = defaultdict(list)  # a tied weight has several
    for name, weight in model.named_parameters(remove_duplicate=False):
        names[weight].append(name)
    places, same, lost = {}, [], []
    for weight, (first, *others) in names.items():
        copies = []
        for name in (first, *others):
            place = _place(headers, name, weight.shape) or _place(headers, name.removeprefix(prefix), weight.shape)
            copies += [place] if place else []
        if copies:
            places[first] = copies[0]
            same += [(copies[0], other) for other in copies[1:] if other != copies[0]]
        else:
            lost.append(first)
    return places, same, sorted(lost)


@torch.no_grad()
def _make_buffers(model: PreTrainedModel, headers: Headers, device: torch.device) -> None:
    """Give buffers their numbers: those of the files, or those that transformers computes."""
    for module_name, module in model.named_modules():
        buffers = {name: buffer for name, buffer in module._buffers.items() if buffer is not None}
        if not buffers:
            continue
        first, second = (_computed(model, module, buffers, number) for number in (0, 1))
        for name, buffer in buffers.items():
            whole_name = f"{module_name}.{name}".removeprefix(".")
            place = _place(headers, whole_name, buffer.shape)
            if place is not None and name not in module._non_persistent_buffers_set:
                with opened(place.file) as tensors:
                    module._buffers[name] = tensors.get_tensor(place.name).to(device)
            elif torch.equal(first[name], second[name]):
                module._buffers[name] = first[name].to(device)
            else:
                raise UnsupportedModelError(
                    f"{type(model).__name__}: neither its files nor transformers say what is in {whole_name}, so ranks "
                    "cannot read it in rows"
                )


def _computed(model: PreTrainedModel, module: nn.Module, buffers: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """A module's buffers after transformers has initialised it; those that it leaves as they are have this number."""
    made = {name: torch.full(buffer.shape, number, dtype=buffer.dtype) for name, buffer in buffers.items()}
    module._buffers.update(made)
    with torch.random.fork_rng(devices=[]):
        model._init_weights(module)
    return made


def read_whole(model: PreTrainedModel, name: str, unread: Unread) -> None:
    """Read a small weight at once, whole, on every rank; it is 0 where no file has it."""
    weight = model.get_parameter(name)
    place = unread.places.pop(name, None)
    numbers = torch.zeros(weight.shape)
    if place is not None:
        with opened(place.file) as tensors:
            numbers.copy_(tensors.get_tensor(place.name))
    module, _, last = name.rpartition(".")
    parameter = nn.Parameter(numbers, requires_grad=weight.requires_grad)
    model.get_submodule(module).register_parameter(last, parameter)


@torch.no_grad()
def fill(root: nn.Module, model: PreTrainedModel, unread: Unread) -> None:
    """Read this rank's rows of the weights that were shared out: those of `root`, of this model or around its body.

    All ranks have to ask.

    Raises:
        ModelError: a file is damaged, or holds a tied weight as two that differ; or adapters have another base.
        InvariantError: the ranks see different files.
    """
    materialise(root, unread.device)
    seen = hashlib.sha256()
    weight: Tensor
    for name, weight in model.named_parameters():
        place = unread.places.get(plain_name(name))
        if place is not None and is_sharded(weight):
            with opened(place.file) as tensors:  # for each weight: closing lets go what was mapped of the file
                tensor = tensors.get_slice(place.name)
                start, rows = first_row(weight), own_rows(weight.detach())
                if len(rows):
                    rows.copy_(tensor[start : start + len(rows)])
                seen.update(f"{place.name} {tensor.get_shape()} {tensor.get_dtype()}".encode())
                seen.update(tensor[0:1].float().numpy().tobytes())
    RANKS.agree("the files that they read", seen.hexdigest())
    for one, other in unread.same:
        with opened(one.file) as left, opened(other.file) as right:
            a, b = left.get_slice(one.name), right.get_slice(other.name)
            count = -(-a.get_shape()[0] // RANKS.size)
            part = slice(RANKS.rank * count, (RANKS.rank + 1) * count)
            equal = torch.equal(a[part].float(), b[part].float())
        if not all(RANKS.to_all(equal)):
            raise ModelError(
                f"the model {unread.path!r} has one matrix for {one.name} and {other.name}, and its files hold two "
                "that differ: its config.json should say tie_word_embeddings = false"
            )
    finish_adapters(model, unread)
