"""From a plain model as it was read to one with adapters, or with those of a directory added to its weights."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.config.artifacts import SHIPPED
from groupwise.errors import ConfigError, ModelError
from groupwise.models.adapter_files import PREFIX, WEIGHTS, AdapterFiles, lasting, name_on_disk
from groupwise.models.adapters import (
    SCORE,
    Adapters,
    adapted,
    add_product,
    inject,
    is_adapter,
    merge,
    new_adapters,
    products,
    strip,
)
from groupwise.models.backbone import fingerprint
from groupwise.models.lora_config import LoraConfig
from groupwise.models.lora_targets import target_layers
from groupwise.models.rows import fingerprint_of_rows, plain_name
from groupwise.models.unread import Unread


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
    found = fingerprint_of_rows((plain_name(name), weight) for name, weight in named if not is_adapter(name))
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
