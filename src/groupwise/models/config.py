"""The `model` and `lora` sections of a recipe."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from groupwise.config import Section
from groupwise.config.schema import SHIPPED, ModelRef

ADAPTER_CONFIG = "adapter_config.json"
"""File of a directory that holds adapters alone; it names the model that they stand on."""
ALL = "all-linear"


class ModelConfig(Section):
    """A model, and the way it computes."""

    path: ModelRef = SHIPPED
    """`base` for the model shipped with the package, a local Hugging Face directory, or a hub name. Or a GGUF file of
    the architectures llama, qwen2, qwen3 or gemma3: a path, `owner/repository:file.gguf` on the hub, or `package:NAME`,
    the file inside an installed Python package. It is read once, into the Hugging Face cache, in fp32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the matrix products, in sampling and in training alike. Log-probabilities stay fp32. `auto` takes
    bfloat16 for models of 30 million weights and more where the card or the processor has instructions for it (AMX,
    AVX512-BF16), float32 elsewhere; a run keeps what it chose. Where bfloat16 is slower, a warning says so."""
    weights_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights. With `bfloat16` the model holds 2 bytes of each, and so does its checkpoint; a trainer
    adds up gradients in fp32, keeps fp32 master copies that its updates change, and rounds them for the model after
    each. The masters start from the rounded weights. With it `compute_dtype` is bfloat16, too."""
    activation_checkpointing: Literal["auto", "on", "off"] = "auto"
    """Keep only the inputs of layers in a forward of training and compute the layers again in the backward: a third to
    a half of the memory, a third to two thirds more time, the same bits. `auto` does so for micro-batches whose
    activations would take more than half of the available memory; `groupwise preflight --memory` gives an estimate."""
    num_threads: int = Field(0, ge=0)
    """CPU threads; 0 leaves the number to torch, and sampling leaves to other programs the cores that they use."""

    @model_validator(mode="after")
    def _weights_meet_their_products(self) -> Self:
        if self.weights_dtype == "bfloat16" and self.compute_dtype == "float32":
            raise ValueError(
                'weights_dtype = "bfloat16" needs compute_dtype = "bfloat16", which is "float32" here: products in '
                "fp32 of rounded weights would gain nothing"
            )
        return self

    def at(self, path: str | Path) -> Self:
        return self.model_copy(update={"path": str(path)})


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

    @field_validator("targets", mode="before")
    @classmethod
    def _names(cls, targets: Any) -> Any:
        listed = isinstance(targets, list | tuple) and targets and all(isinstance(n, str) and n for n in targets)
        if targets == ALL or (listed and len(set(targets)) == len(targets) and ALL not in targets):
            return targets
        raise ValueError(f"allowed are '{ALL}' and a list of different names of layers, such as ['q_proj', 'v_proj']")
