"""How far a run has come: the counters that its checkpoints keep."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from groupwise.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Best:
    """The best dev evaluation so far."""

    step: int
    """Steps finished before it."""
    pass_at_1: float


@dataclass(slots=True)
class Progress:
    """Progress of a run. The fields' names are the keys of `trainer_state.json`; a missing one is 0 or empty."""

    step: int = 0
    """Finished steps."""
    updates_done: int = 0
    """Optimizer updates."""
    ledger: int = 0
    """Bytes of the ledger at the checkpoint; what came after is done again."""
    metrics: int = 0
    """Bytes of the metrics, likewise."""
    tokens: int = 0
    """Tokens trained on."""
    sampled_tokens: int = 0
    """Completion tokens sampled for training."""
    best: Best | None = None
    pass_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the curriculum remembers (`trainers.curriculum.PassRates.state`)."""
    ending: bool = False
    """True where the run was stopped before its last step."""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """From a checkpoint's JSON.

        Raises:
            CheckpointError: it has keys that this version does not know.
        """
        names = [item.name for item in fields(cls)]
        if unknown := sorted(facts.keys() - set(names)):
            raise CheckpointError(
                f"the checkpoint's trainer state has {', '.join(unknown)}, which this version does not know; known are "
                f"{', '.join(names)}"
            )
        best = facts.get("best")
        return cls(**{**facts, "best": best and Best(**best)})

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)
