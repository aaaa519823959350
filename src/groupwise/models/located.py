"""Adapters on disk, in peft's own format: `adapter_config.json` and `adapter_model.safetensors`.

The directory names the model that its adapters stand on. Which weights that model had is kept in a file of our own,
which peft does not read: adapters on other weights would be another model without a word.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from groupwise.config.schema import SHIPPED
from groupwise.errors import ModelError
from groupwise.models.adapters import NAME, SCORE, Adapters, is_adapter, peft
from groupwise.models.config import ADAPTER_CONFIG as CONFIG
from groupwise.models.config import located, resolve

WEIGHTS, OWN = "adapter_model.safetensors", "adapter_base.json"
PREFIX = "base_model.model."
"""Begins every name of a weight in peft's files."""
BASE, BASE_WEIGHTS = "model", "weights"
"""Keys of our file: the base, where it is one that this package ships, wherever that lies; and its fingerprint."""
ANY_OTHER = ("bias", "modules_to_save", "target_parameters", "trainable_token_indices", "layer_replication")


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A directory of adapters, read but for their weights."""

    path: str
    config: Any
    """peft's."""
    base: str
    """Directory or hub name of the model that they stand on."""
    base_fingerprint: str | None
    """Of its body; None in directories that others wrote."""

    @property
    def scores(self) -> bool:
        """Whether the adapted model is a reward model."""
        return bool(self.config.task_type == "SEQ_CLS")

    @property
    def tokenizer(self) -> str:
        """Where the tokenizer is: beside the adapters, or with the model that they stand on."""
        return self.path if (Path(self.path) / "tokenizer_config.json").is_file() else self.base


def is_adapter_directory(path: str) -> bool:
    """Whether a model's path means a directory of adapters."""
    return (Path(resolve(path)) / CONFIG).is_file()


def base_path(path: str) -> str:
    """The model that a path's adapters stand on; the path itself where it means a plain model.

    Raises:
        ModelError: the configuration of the adapters cannot be read.
    """
    if not is_adapter_directory(path):
        return path
    facts = _facts(Path(path))
    base = _own(Path(path)).get(BASE) or facts.get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise ModelError(f"{path}/{CONFIG} does not name the model that its adapters stand on: base_model_name_or_path")
    if is_adapter_directory(base):
        raise ModelError(
            f"the adapters {path!r} stand on other adapters, {base!r}, which is not supported: export those"
        )
    try:
        located(base)
    except ModelError as error:
        raise ModelError(
            f"the adapters {path!r} stand on a model that is not there; if it was moved, mend base_model_name_or_path "
            f"in their {CONFIG}: {error}"
        ) from None
    return base


def read_adapters(path: str) -> AdapterFiles | None:
    """What a directory of adapters says of itself; None for a plain model.

    Raises:
        ModelError: it cannot be read, or holds another kind of adapters than LoRA on linear layers.
        ConfigError: peft is not installed.
    """
    if not is_adapter_directory(path):
        return None
    base, facts = base_path(path), _facts(Path(path))
    if (kind := facts.get("peft_type")) != "LORA":
        raise ModelError(f"{path!r} holds adapters of type {kind}; allowed is LORA")
    try:
        config = peft().LoraConfig.from_pretrained(path)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(f"{path}/{CONFIG} cannot be used: {error}") from None
    _refuse_more_than_products(path, config)
    config.lora_dropout, config.base_model_name_or_path = 0.0, lasting(base)
    if not (Path(path) / WEIGHTS).is_file():
        raise ModelError(f"the adapters {path!r} have no weights: there is no {WEIGHTS}")
    return AdapterFiles(path, config, base, _own(Path(path)).get(BASE_WEIGHTS))


def _refuse_more_than_products(path: str, config: Any) -> None:
    allowed: dict[str, tuple[Any, ...]] = {"bias": ("none",), "modules_to_save": ([SCORE], ["classifier", SCORE])}
    for name in ANY_OTHER:
        value = getattr(config, name, None)
        if value and value not in allowed.get(name, ()):
            raise ModelError(f"{path}/{CONFIG}: {name} = {value!r} is not supported; allowed is LoRA on linear layers")


def _facts(path: Path) -> dict[str, Any]:
    return _read(path / CONFIG)


def _own(path: Path) -> dict[str, Any]:
    """Empty in directories that others wrote."""
    return _read(path / OWN) if (path / OWN).is_file() else {}


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None


def name_on_disk(name: str) -> str:
    """What a weight of a model is called in peft's files, but for their prefix."""
    return name.replace(f".{NAME}.", ".")


def is_kept_with(adapters: Adapters, name: str) -> bool:
    """Whether a weight of this name of an adapted model is written with its adapters."""
    return is_adapter(name) or bool(adapters.config.modules_to_save and name.startswith(f"{SCORE}."))


def write_adapters(named: Iterable[tuple[str, Tensor]], adapters: Adapters, directory: Path) -> None:
    """Write a directory that `peft` loads on the model that the adapters stand on.

    Args:
        named: weights of the adapted model; those that are not kept with the adapters are left out.
        adapters: what they are.
        directory: made where it is not there.

    Raises:
        OSError: the disk is full, or the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    weights = {
        f"{PREFIX}{name_on_disk(name)}": weight.detach().cpu().contiguous()
        for name, weight in named
        if is_kept_with(adapters, name)
    }
    base = adapters.config.base_model_name_or_path
    shipped = {BASE: SHIPPED} if base == lasting(SHIPPED) else {}
    own = {BASE_WEIGHTS: adapters.base_fingerprint, **shipped}
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})
    (directory / OWN).write_text(json.dumps(own, indent=1), encoding="utf-8")
    # as peft itself writes it, but for the order of sets, which differs from process to process
    facts = {**adapters.config.to_dict(), "inference_mode": True}
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in facts.items()}
    (directory / CONFIG).write_text(json.dumps(plain, indent=2, sort_keys=True), encoding="utf-8")


def lasting(path: str) -> str:
    """The path of a model as adapters record it: whole, if it is a directory, so that others find it."""
    place = resolve(path)
    return str(Path(place).resolve()) if Path(place).exists() else place
