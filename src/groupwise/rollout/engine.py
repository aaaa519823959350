"""The engine: samples completions of prompts, and knows which weights it samples from.

All callers go through `sample_and_score`, which talks to an engine by this protocol alone. To add one:
a file with a class, and a line in `ENGINES`. A recipe may name your own: `engine.kind = "file.py:name"`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from groupwise.kinds import Kinds, KindSection
from groupwise.models.policy import Policy
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import FinishReason


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and a random key for each completion wanted."""

    token_ids: tuple[int, ...]
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as the sampler saw it; arrays are (T,)."""

    token_ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32] | None
    """None where the sampler does not measure it."""
    finish_reason: FinishReason


OnFinished = Callable[[int, list[Sampled]], None]
"""Called with the index of a request and its completions."""


class Engine(Protocol):
    """Samples completions."""

    @property
    def version(self) -> int:
        """Number of optimizer updates behind the weights that it samples from."""
        ...

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        """Sample every completion of every request.

        `on_finished` is called once for each request, with its completions in the order of its keys, as soon as the
        last of them has finished; meanwhile others may still be sampled.

        Raises:
            ConfigError: a prompt and its completion do not fit in the model's context.
        """
        ...

    def publish(self, policy: Policy, version: int) -> None:
        """From now on, sample from these weights."""
        ...


class EngineConfig(KindSection):
    """The engine that samples completions."""

    kind: str = "in_process"
    """`in_process`: the very weights that are trained, in this process. `scripted`: completions that a file holds, for
    dry runs. `file.py:name`: your own engine."""


ENGINES = Kinds(
    "engine",
    {
        "in_process": "groupwise.rollout.in_process:InProcessEngine",
        "scripted": "groupwise.rollout.scripted:ScriptedEngine",
    },
    default="in_process",
)
AnyEngine = Annotated[EngineConfig, ENGINES]
"""The [engine] section of a recipe."""


def make_engine(config: EngineConfig, policy: Policy) -> Engine:
    """The engine that a section describes, sampling from this policy."""
    engine: Engine = ENGINES.find(config.kind)(config, policy)
    return engine
