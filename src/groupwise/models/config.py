"""Which model, and how it computes."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from groupwise.config import Section
from groupwise.config.schema import SHIPPED, ModelRef
from groupwise.errors import ModelError

ADAPTER_CONFIG = "adapter_config.json"
"""File of a directory that holds adapters alone, and names the model that they stand on."""


class ModelConfig(Section):
    """Which model, and how it computes."""

    path: ModelRef = SHIPPED
    """`base` for the model shipped with the package, a local
    Hugging Face directory, or a hub name."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the matrix products, in sampling and in training alike. Log-probabilities stay fp32.
    `bfloat16` is for GPUs and for processors with instructions for it; where it is slower, a warning says so."""
    weights_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights. With `bfloat16` the model holds 2 bytes of each, and so does its checkpoint; a trainer
    adds up gradients in fp32, keeps fp32 master copies that its updates change, and rounds them for the model after
    each. The masters start from the rounded weights. It needs `compute_dtype = "bfloat16"`."""
    attention: Literal["packed", "flex"] = "packed"
    """How forwards of training and scoring compute attention. `flex` is torch's FlexAttention, compiled, on CUDA alone;
    sampling always takes `packed`. Values and gradients of its eager form are tested against `packed` on a processor;
    the compiled form has not been timed, so `packed` is the default."""
    activation_checkpointing: Literal["auto", "on", "off"] = "auto"
    """Whether layers keep only their inputs in a forward of training and compute themselves again in the backward: a
    third to a half of the memory, a third to two thirds more time, the same bits. `auto` does so for micro-batches
    whose activations would take more than half of the available memory; `groupwise preflight --memory` predicts it.
    """
    num_threads: int = Field(0, ge=0)
    """CPU threads; 0 leaves the number to torch, and sampling leaves to other programs the cores that they use."""

    @model_validator(mode="after")
    def _weights_meet_their_products(self) -> Self:
        if self.weights_dtype == "bfloat16" and self.compute_dtype != "bfloat16":
            raise ValueError(
                f'weights_dtype = "bfloat16" needs compute_dtype = "bfloat16", which is {self.compute_dtype!r} here: '
                "products in fp32 of rounded weights would gain nothing"
            )
        return self

    def at(self, path: str | Path) -> Self:
        """The same for a model at another path."""
        return self.model_copy(update={"path": str(path)})


def shipped_path() -> Path:
    """Directory of the base model inside the package."""
    return Path(str(resources.files("groupwise") / "base_model"))


def resolve(path: str) -> str:
    """Return the directory or hub name that a model path means."""
    return str(shipped_path()) if path == SHIPPED else path


def located(path: str) -> str:
    """The directory or hub name that a model path means, once something is known to be there.

    Asks the hub once: transformers would try again and again, for most of a minute.

    Raises:
        ModelError: there is no such directory, and no hub answers for the name.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache  # takes half a second
    from huggingface_hub.constants import CONFIG_NAME

    location = resolve(path)
    try:
        if not Path(location).exists() and not isinstance(try_to_load_from_cache(location, CONFIG_NAME), str):
            get_hf_file_metadata(hf_hub_url(location, CONFIG_NAME))
    except Exception as error:  # of the name, the connection, or what the hub answered
        raise ModelError(
            f"the model {path!r} cannot be loaded: there is no such directory, and no hub answers for it "
            f"({type(error).__name__})"
        ) from None
    return location


ALL = "all-linear"


class LoraConfig(Section):
    """Train adapters beside the weights instead of the weights themselves (LoRA, arXiv:2106.09685)."""

    rank: int = Field(8, ge=1)
    """Rank r of the product B A beside every adapted matrix; it learns r · (in + out) numbers."""
    alpha: float = Field(32.0, gt=0, allow_inf_nan=False)
    """The product counts alpha / rank times. With 32 a good learning rate hardly depends on the rank (Schulman et al.
    2025, "LoRA Without Regret")."""
    targets: str | tuple[str, ...] = ALL
    """`all-linear`: every linear layer of the body. Or a list of layers' names, such as `["q_proj", "v_proj"]`; never
    the embedding or the head."""

    @model_validator(mode="before")
    @classmethod
    def _no_dropout(cls, values: Any) -> Any:
        names = ("dropout", "lora_dropout")
        if isinstance(values, Mapping) and (name := next((name for name in names if name in values), None)):
            raise ValueError(
                f"{name} = {values[name]!r} is refused: with dropout the policy that learns is not the one that "
                "sampled, and their ratio would not be 1; leave it out"
            )
        return values

    @field_validator("targets", mode="before")
    @classmethod
    def _names(cls, targets: Any) -> Any:
        listed = isinstance(targets, list | tuple) and targets and all(isinstance(n, str) and n for n in targets)
        if targets == ALL or (listed and len(set(targets)) == len(targets) and ALL not in targets):
            return targets
        raise ValueError(f"allowed are '{ALL}' and a list of different names of layers, such as ['q_proj', 'v_proj']")

    @property
    def adapts_all(self) -> bool:
        """Whether every linear layer of the body is adapted."""
        return self.targets == ALL
