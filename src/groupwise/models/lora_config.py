"""What of a model is adapted, as a recipe says it."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from groupwise.config import Section

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
