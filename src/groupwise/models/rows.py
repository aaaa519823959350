"""Reading a model in rows: every rank builds it without numbers, keeps its rows of every weight and reads those alone.

No rank holds all weights. `read` builds the model on the device "meta", which has no memory, and finds every weight in
the safetensors files by their headers; `sharding.shard` leaves each rank its rows; `fill` gives them memory and reads
them. Buffers, such as the frequencies of positions, are no weights: they are computed as transformers computes them, at
once and whole.

Ranks on several hosts might see other files of one name. `fill` makes sure that headers and the first row of every
weight are the same for all, in which two trained models would differ. The fingerprint that a run compares with its
ledger is that of all rows of all ranks.
"""

import hashlib
import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedModel

from groupwise.errors import ConfigError, ModelError, UnsupportedModelError
from groupwise.models import attention
from groupwise.models.adapters import plain_name
from groupwise.models.backbone import Place, Unread, no_progress_bars
from groupwise.models.config import ModelConfig, located
from groupwise.models.loading import cannot_be_loaded, device_of, read_pretrained
from groupwise.models.located import AdapterFiles
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import first_row, is_sharded, materialise, own_rows

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Files of a Hugging Face directory that hold the weights, or say which file holds which."""


def read(
    kind: Any, config: ModelConfig, files: AdapterFiles | None, in_rows: bool, **options: Any
) -> tuple[PreTrainedModel, Any, list[str], Unread | None]:
    """Read a directory or hub name as this kind of model, or, among ranks, prepare to read it `in_rows`.

    Returns:
        The model, its tokenizer, the weights that are not there, and what is still unread (None: nothing).

    Raises:
        ModelError: it is missing or cannot be read.
        UnsupportedModelError: it has a buffer of which nobody says what is in it.
        ConfigError: its weights are to be in bf16.
    """
    if not in_rows or RANKS.size == 1:
        return *read_pretrained(kind, config, files, **options), None
    refuse_bfloat16(config.weights_dtype == "bfloat16")
    path = located(files.base if files else config.path)
    with cannot_be_loaded(config.path, path), no_progress_bars():
        found = _built(kind, path, options)
        tokenizer = AutoTokenizer.from_pretrained(located(files.tokenizer) if files else path)
        where = found if isinstance(found, str) else _weight_files(path)
    if isinstance(found, str) or where is None:
        if RANKS.is_first:
            why = found if isinstance(found, str) else "it has no safetensors files"
            warnings.warn(
                f"{config.path!r}: every rank reads the whole model before it keeps its rows, because {why}",
                stacklevel=2,
            )
        return *read_pretrained(kind, config, files, **options), None
    device = torch.empty(0, device=device_of(config)).device
    assert not isinstance(where, str)
    headers = _Headers.of(where)
    places, same, lost = _places(found, headers)
    _make_buffers(found, headers, device)
    return found, tokenizer, lost, Unread(config.path, device, places, same)


def refuse_bfloat16(is_used: bool) -> None:
    """Ranks hold their shares of the weights in fp32.

    Raises:
        ConfigError: the weights are in bf16.
    """
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
        try:
            model.generation_config = GenerationConfig.from_pretrained(path)
        except OSError:  # as transformers does: what the model's configuration says of it
            model.generation_config = GenerationConfig.from_pretrained(
                path, config_file_name="config.json", _from_model_config=True
            )
    return model


def _weight_files(path: str) -> list[Path] | None:
    """Files that hold weights, of a directory or from the hub's cache; None where there are none of safetensors."""
    from transformers.utils.hub import cached_file, get_checkpoint_shard_files

    if Path(path).is_dir():
        single, index = (Path(path) / name for name in (SINGLE, INDEX))
        if single.is_file():
            return [single]
        if not index.is_file():
            return None
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if missing := [name for name in names if not (Path(path) / name).is_file()]:
            raise ModelError(f"{index} names {missing[0]}, which is not there")
        return [Path(path) / name for name in names]
    found = [cached_file(path, name, _raise_exceptions_for_missing_entries=False) for name in (SINGLE, INDEX)]
    if found[0] or not found[1]:
        return [Path(found[0])] if found[0] else None
    return [Path(file) for file in get_checkpoint_shard_files(path, found[1])[0]]


@dataclass(frozen=True, slots=True)
class _Headers:
    """What files say that they hold."""

    files: list[Path]
    shapes: dict[str, tuple[Path, tuple[int, ...]]]
    """By name: in which file, and its shape."""

    @classmethod
    def of(cls, files: list[Path]) -> "_Headers":
        shapes: dict[str, tuple[Path, tuple[int, ...]]] = {}
        for file in files:
            with opened(file) as tensors:
                shapes |= {name: (file, tuple(tensors.get_slice(name).get_shape())) for name in tensors.keys()}  # noqa: SIM118
        return cls(files, shapes)

    def place(self, names: Iterable[str], shape: torch.Size) -> Place | None:
        """Where the first of these names is that is there.

        Raises:
            ModelError: it has another shape.
        """
        for name in names:
            if name in self.shapes:
                file, found = self.shapes[name]
                if found != tuple(shape):
                    raise ModelError(f"{file} holds {name} as {list(found)}, and the model wants {list(shape)}")
                return Place(file, name)
        return None


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """A file of safetensors whose tensors are read when they are asked for.

    Raises:
        ModelError: it is damaged.
    """
    try:
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None


def _places(model: PreTrainedModel, headers: _Headers) -> tuple[dict[str, Place], list[tuple[Place, Place]], list[str]]:
    """Where every weight is, which are there twice, and which are not there.

    Files of a body alone, without the name of the whole model before its weights, are read, too.

    Raises:
        ModelError: one has another shape.
    """
    prefix = f"{model.base_model_prefix}."
    names: dict[int, list[str]] = defaultdict(list)
    weights = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names[id(weight)].append(name)
        weights[id(weight)] = weight
    places, same, lost = {}, [], []
    for key, weight in weights.items():
        found = [headers.place((name, name.removeprefix(prefix)), weight.shape) for name in names[key]]
        there = [place for place in found if place]
        if not there:
            lost.append(names[key][0])
            continue
        places[names[key][0]] = there[0]
        same += [(there[0], other) for other in there[1:] if other != there[0]]
    return places, same, sorted(lost)


@torch.no_grad()
def _make_buffers(model: PreTrainedModel, headers: _Headers, device: torch.device) -> None:
    """Give buffers their numbers: those of the files, or what transformers computes.

    Raises:
        UnsupportedModelError: nobody says what is in one.
    """
    for module_name, module in model.named_modules():
        own = {name: buffer for name, buffer in module._buffers.items() if buffer is not None}
        once, again = (_computed(model, module, own, number) for number in (0, 1)) if own else ({}, {})
        for name in own:
            whole_name = f"{module_name}.{name}".removeprefix(".")
            place = headers.place([whole_name], own[name].shape)
            if place is not None and name not in module._non_persistent_buffers_set:
                with opened(place.file) as tensors:
                    module._buffers[name] = tensors.get_tensor(place.name).to(device)
            elif torch.equal(once[name], again[name]):
                module._buffers[name] = once[name].to(device)
            else:
                raise UnsupportedModelError(
                    f"{type(model).__name__}: neither its files nor transformers say what is in {whole_name}, so ranks "
                    "cannot read it in rows"
                )


def _computed(model: PreTrainedModel, module: nn.Module, own: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """What transformers computes for the buffers of a module; those that it leaves as they are have this number."""
    made = {name: torch.full(buffer.shape, number, dtype=buffer.dtype) for name, buffer in own.items()}
    module._buffers.update(made)
    with torch.random.fork_rng(devices=[]):
        model._init_weights(module)
    return made


def read_whole(model: PreTrainedModel, name: str, unread: Unread) -> Tensor:
    """Give a weight memory and numbers at once, whole, on every rank: those of the files, or 0 where it is not there.

    It is for what is small and trained beside adapters.
    """
    parent = model.get_submodule(name.rpartition(".")[0])
    weight = model.get_parameter(name)
    place = unread.places.pop(name, None)
    numbers = torch.zeros(weight.shape)
    if place is not None:
        with opened(place.file) as tensors:
            numbers.copy_(tensors.get_tensor(place.name))
    parent.register_parameter(name.rpartition(".")[2], nn.Parameter(numbers, requires_grad=weight.requires_grad))
    return model.get_parameter(name)


@torch.no_grad()
def fill(root: nn.Module, model: PreTrainedModel, unread: Unread) -> None:
    """Read this rank's rows of the weights that were shared out. All ranks have to ask.

    Args:
        root: what was shared out, of this model, or around its body.
        model: what `read` gave.
        unread: what it gave beside it.

    Raises:
        ModelError: a file is damaged, or ties what it holds as two.
        InvariantError: the ranks see other files.
    """
    materialise(root, unread.device)
    seen = hashlib.sha256()
    weight: Tensor
    for name, weight in model.named_parameters():
        place = unread.places.get(plain_name(name))
        if place is not None and is_sharded(weight):
            with opened(place.file) as tensors:  # anew for each: closing lets go what was mapped of the file
                seen.update(_fill_one(tensors.get_slice(place.name), place, weight))
    RANKS.agree("the files that they read", seen.hexdigest())
    _compare(unread)
    for work in unread.then:
        work()


def _fill_one(tensor: Any, place: Place, weight: Tensor) -> bytes:
    """Read this rank's rows; what all ranks have to agree about."""
    first, own = first_row(weight), own_rows(weight.detach())
    if len(own):
        own.copy_(tensor[first : first + len(own)])
    row: bytes = tensor[0:1].float().numpy().tobytes()
    return f"{place.name} {tensor.get_shape()} {tensor.get_dtype()}".encode() + row


def _compare(unread: Unread) -> None:
    for one, other in unread.same:
        with opened(one.file) as left, opened(other.file) as right:
            a, b = left.get_slice(one.name), right.get_slice(other.name)
            rows = -(-a.get_shape()[0] // RANKS.size)
            own = slice(RANKS.rank * rows, (RANKS.rank + 1) * rows)
            equal = torch.equal(a[own].float(), b[own].float())
        if not all(RANKS.to_all(equal)):
            raise ModelError(
                f"the model {unread.path!r} has one matrix for {one.name} and {other.name}, and its files hold two "
                "that differ: its config.json should say tie_word_embeddings = false"
            )
