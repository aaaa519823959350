"""A model path, resolved once; and adapters on disk, in peft's format.

A directory of adapters holds `adapter_config.json`, which names the model that they stand on, and
`adapter_model.safetensors`. The fingerprint of that model's weights is kept in a file of our own, which peft does not
read: adapters on other weights would be another model without any error.
"""

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from torch.nn import Module

from groupwise.config.schema import PACKAGE, SHIPPED, resolve
from groupwise.errors import ModelError, told_as
from groupwise.models.adapters import NAME, SCORE, Adapters, is_adapter, peft
from groupwise.models.config import ADAPTER_CONFIG as CONFIG
from groupwise.models.config import ModelConfig
from groupwise.ranks.group import RANKS
from groupwise.runs.inputs import recorded

WEIGHTS, OWN = "adapter_model.safetensors", "adapter_base.json"
PREFIX = "base_model.model."  # Begins every name of a weight in peft's files
BASE, BASE_WEIGHTS = "model", "weights"
"""Keys of our file: the base, where this package ships it, wherever it is installed; and its fingerprint."""
ALLOWED: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "modules_to_save": ([SCORE], ["classifier", SCORE]),
    "target_parameters": (),
    "trainable_token_indices": (),
    "layer_replication": (),
    "revision": ("main",),
}
"""Values of peft's settings that are supported, beside none at all: those of plain LoRA on linear layers."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A directory of adapters without their weights."""

    path: str
    config: Any  # peft's
    base: str  # Directory or hub name of the model that they stand on, or `base`
    base_fingerprint: str | None  # Fingerprint of its body; None in directories that others wrote

    @property
    def scores(self) -> bool:
        return bool(self.config.task_type == "SEQ_CLS")


@dataclass(frozen=True, slots=True)
class Located:
    """A model path and everything that it means."""

    path: str  # As the recipe gives it
    weights: str
    """Directory or hub name of the plain model: the one at the path, or the one that its adapters stand on; of a GGUF
    file the directory that was read from it."""
    tokenizer: str
    adapters: AdapterFiles | None = None


def stamp_of(located: Located, config: ModelConfig) -> Path | None:
    """Return the file that is there once the packed forward of a model on disk agreed with transformers' own.

    It is of the weights' files (path, size, time of change), this package's code, versions, threads and precision: with
    any of these another, there is none. None for a model that is in no local directory.
    """
    import torch
    import transformers
    from huggingface_hub.constants import HF_HOME

    folders = [Path(place) for place in (located.weights, located.path) if Path(place).is_dir()]
    if not folders:
        return None
    digest = hashlib.sha256(
        f"{torch.__version__} {transformers.__version__} {platform.processor()} {torch.get_num_threads()} "
        f"{torch.cuda.is_available()} {config.model_dump_json()}".encode()
    )
    code = Path(__file__).parent.glob("*.py")
    for file in sorted(file for place in (code, *(folder.glob("*") for folder in folders)) for file in place):
        facts = file.stat()
        digest.update(f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns}".encode())
    return Path(HF_HOME) / "groupwise-checked" / digest.hexdigest()[:32]


def locate(path: str) -> Located:
    """Resolve the path of a model or of a directory of adapters; the hub is asked once for a name.

    Raises:
        ModelError: there is no such directory and no hub answers for the name; or the adapters cannot be read, stand
            on a model that is not there, or are of another kind than LoRA on linear layers.
        ConfigError: there are adapters, and peft is not installed.
    """
    if not is_adapter_directory(path):
        weights = _available(path)
        return Located(path, weights, weights)
    directory = Path(path)
    facts = _read(directory / CONFIG)
    ours = _read(directory / OWN) if (directory / OWN).is_file() else {}
    base = ours.get(BASE) or facts.get("base_model_name_or_path")
    if isinstance(base, str) and os.path.isabs(base) and not os.path.exists(base):  # the run may know where it went
        taken = {item.name: item.path for item in recorded(directory.resolve().parent.parent)[0]}
        base = taken.get("model.path.base_model", taken.get("model.path", base))
    if not base or not isinstance(base, str):
        raise ModelError(f"{path}/{CONFIG} does not name the model that its adapters stand on: base_model_name_or_path")
    if is_adapter_directory(base):
        raise ModelError(
            f"the adapters {path!r} stand on other adapters, {base!r}, which is not supported: export those"
        )
    try:
        weights = _available(base)
    except ModelError as error:
        raise ModelError(
            f"the adapters {path!r} stand on a model that is not there; if it was moved, mend base_model_name_or_path "
            f"in their {CONFIG}: {error}"
        ) from None
    if (kind := facts.get("peft_type")) != "LORA":
        raise ModelError(f"{path!r} holds adapters of type {kind}; allowed is LORA")
    with told_as(ModelError, f"{path}/{CONFIG} cannot be used", TypeError, ValueError, KeyError):
        config = peft().LoraConfig.from_pretrained(path)
    for name, allowed in ALLOWED.items():
        value = getattr(config, name, None)
        if value and value not in allowed:
            raise ModelError(f"{path}/{CONFIG}: {name} = {value!r} is not supported; allowed is LoRA on linear layers")
    config.lora_dropout, config.base_model_name_or_path = 0.0, lasting(base)
    if not (directory / WEIGHTS).is_file():
        raise ModelError(f"the adapters {path!r} have no weights: there is no {WEIGHTS}")
    tokenizer = path if (directory / "tokenizer_config.json").is_file() else weights
    return Located(path, weights, tokenizer, AdapterFiles(path, config, base, ours.get(BASE_WEIGHTS)))


def say_left_out(located: Located, model: Module, names: Iterable[str]) -> None:
    """Warn of weights in the files that the model has no place for, but for the head of the other kind of model."""
    left = sorted({*names} - {"lm_head.weight", f"{SCORE}.weight"} - dict(model.named_buffers()).keys())
    left = [name for name in left if not name.endswith("rotary_emb.inv_freq")]  # which is computed
    if left and RANKS.is_first:
        warnings.warn(
            f"the files of {located.path!r} hold weights that its config.json has no place for, so the model computes "
            f"without them: {', '.join(left[:3])}{', ...' * (len(left) > 3)}",
            stacklevel=2,
        )


def is_adapter_directory(path: str) -> bool:
    """Tell whether a model path means a directory of adapters."""
    return (Path(resolve(path)) / CONFIG).is_file()


def _available(path: str) -> str:
    """The directory or hub name of a plain model; transformers would ask the hub for it for most of a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache  # takes half a second
    from huggingface_hub.constants import CONFIG_NAME

    location = resolve(path)
    if location.lower().endswith(".gguf"):
        from groupwise.models.gguf import read_gguf  # and with it numpy's and the tokenizers' modules

        return str(read_gguf(location))
    try:
        if not Path(location).exists() and not isinstance(try_to_load_from_cache(location, CONFIG_NAME), str):
            get_hf_file_metadata(hf_hub_url(location, CONFIG_NAME))
    except Exception as error:  # of the name, the connection, or what the hub answered
        raise ModelError(
            f"the model {path!r} cannot be loaded: there is no such directory, and no hub answers for it "
            f"({type(error).__name__})"
        ) from None
    return location


def _read(file: Path) -> dict[str, Any]:
    with told_as(ModelError, f"{file} cannot be read", OSError, ValueError, TypeError):
        return dict(json.loads(file.read_text(encoding="utf-8")))


def name_on_disk(name: str) -> str:
    """Return the name of an adapter's weight in peft's files, without their prefix."""
    return name.replace(f".{NAME}.", ".")


def is_kept_with(adapters: Adapters, name: str) -> bool:
    """Tell whether a weight of this name of an adapted model is written with its adapters."""
    return is_adapter(name) or bool(adapters.config.modules_to_save and name.startswith(f"{SCORE}."))


def write_adapters(named: Iterable[tuple[str, Tensor]], adapters: Adapters, directory: Path) -> None:
    """Write a directory that `peft` loads on the model that the adapters stand on; of its weights those to be kept."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = {
        f"{PREFIX}{name_on_disk(name)}": weight.detach().cpu().contiguous()
        for name, weight in named
        if is_kept_with(adapters, name)
    }
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})
    is_shipped = adapters.config.base_model_name_or_path == lasting(SHIPPED)
    ours = {BASE_WEIGHTS: adapters.base_fingerprint} | ({BASE: SHIPPED} if is_shipped else {})
    (directory / OWN).write_text(json.dumps(ours, indent=1), encoding="utf-8")
    # as peft itself writes it, but for the order of sets, which differs from process to process
    facts = {**adapters.config.to_dict(), "inference_mode": True}
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in facts.items()}
    (directory / CONFIG).write_text(json.dumps(plain, indent=2, sort_keys=True), encoding="utf-8")


def lasting(path: str) -> str:
    """Return the path of a model as adapters record it: absolute, if it is a directory, so that others find it."""
    place = path if path.startswith(PACKAGE) else resolve(path)
    return str(Path(place).resolve()) if Path(place).exists() else place
