"""Scaled positions in GGUF files: linear and YaRN by keys, Llama 3's by a tensor of factors.

What llama.cpp and transformers do not compute alike is refused in both directions.
"""

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from groupwise.errors import ModelError

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


class File(Protocol):
    """An open GGUF file."""

    @property
    def tensors(self) -> Mapping[str, Any]: ...
    @property
    def keys(self) -> Mapping[str, Any]: ...
    @property
    def architecture(self) -> str: ...
    def number(self, name: str, default: Any = None) -> Any: ...
    def refuse(self, why: str) -> NoReturn: ...


def scaling_of(file: File) -> dict[str, Any]:
    """Return transformers' settings of a file's scaled positions; empty where they are not scaled."""
    key, has_factors = "rope.scaling.", FREQUENCIES in file.tensors
    kind = file.number(f"{key}type", "none")
    if kind == "none":
        return LLAMA3 | {"factor": round(float(_factors(file).max()), 4)} if has_factors else {}
    if has_factors or kind not in ("linear", "yarn"):
        why = f"scales positions by {kind!r}{f' and {FREQUENCIES}' * has_factors}"
        file.refuse(f"{why}, which its keys do not say whole; put config.json beside it")
    scaling = {"rope_type": kind, "factor": file.number(f"{key}factor")}
    if kind == "yarn":
        for name, plain in NEUTRAL.items():
            if (value := file.number(key + name, plain[0])) not in plain:
                file.refuse(f"has {key}{name} = {value:g}, which is not supported; put config.json beside it")
        scaling[YARN[0]] = file.number(f"{key}original_context_length")
        betas = {name: file.number(f"{key}yarn_{name}", 0.0) for name in YARN[1:]}
        scaling |= {name: beta for name, beta in betas.items() if beta}
    return scaling


def check_factors(file: File, config: PreTrainedConfig) -> None:
    """Refuse a file whose factors are not those of the configuration made of it."""
    if FREQUENCIES in file.tensors and not np.allclose(_factors(file), frequency_factors(config), rtol=1e-4):
        file.refuse(f"has a {FREQUENCIES} that is not of Llama 3's scaling of positions; put config.json beside it")


def _factors(file: File) -> Any:
    return np.array(file.tensors[FREQUENCIES].data, dtype=np.float32)


def frequency_factors(config: PreTrainedConfig) -> Any:
    """Return the factors of Llama 3's scaling (head_dim / 2,) that a configuration describes."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
    steps = torch.arange(0, 2 * len(scaled), 2, dtype=torch.float32) / (2 * len(scaled))
    return (config.rope_parameters["rope_theta"] ** -steps / scaled).numpy()


def scaling_keys(rope: Mapping[str, Any], model_type: str, where: str) -> dict[str, Any]:
    """Return the keys, without their architecture, of a model's scaled positions.

    Raises:
        ModelError: a file has no place for them.
    """
    kind = rope["rope_type"]
    allowed: dict[str, tuple[str, ...]] = {"default": (), "linear": ()}
    allowed |= {} if model_type == "gemma3_text" else {"yarn": YARN}
    allowed |= {"llama3": tuple(LLAMA3)} if model_type == "llama" else {}
    if kind not in allowed:
        raise ModelError(
            f"{where} cannot be written as GGUF: it scales positions by {kind!r}; allowed are {', '.join(allowed)}"
        )
    known = {"rope_type", "rope_theta", "factor", *allowed[kind]}
    others = [name for name, value in rope.items() if name not in known and value is not None]
    if kind != "default" and (others or (kind == "llama3" and LLAMA3.items() - rope.items())):
        raise ModelError(f"{where} cannot be written as GGUF: there is no key for its scaling of positions, {rope}")
    if kind not in ("linear", "yarn"):
        return {}
    keys: dict[str, Any] = {"rope.scaling.type": kind, "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn":
        keys["rope.scaling.original_context_length"] = int(rope[YARN[0]])
        keys |= {f"rope.scaling.yarn_{name}": float(rope[name]) for name in YARN[1:] if rope.get(name)}
    return keys
