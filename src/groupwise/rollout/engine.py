"""The engine: samples completions of prompts, and knows which weights it samples from.

All callers go through `sample_and_score`, which talks to an engine by this protocol alone. To add one:
a file with a class, and a line in `ENGINES`. A recipe may name your own: `engine.kind = "file.py:name"`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from groupwise.config.kinds import Kinds, KindSection
from groupwise.errors import ConfigError, DataError
from groupwise.models.policy import Policy
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tools import Seen
from groupwise.runs.ledger import LineFile
from groupwise.types import FinishReason, ToolCall, TurnRecord


@dataclass(frozen=True, slots=True)
class Recorded:
    """A completion as it was sampled before, results of tools included; arrays are (T,)."""

    token_ids: NDArray[np.int64]
    sampled: NDArray[np.bool_]
    turns: tuple[TurnRecord, ...] = ()
    finish_reason: str = ""

    def result(self, own: NDArray[np.int64]) -> list[int] | None:
        """Return the tokens of the tool's result after these tokens; None where the completion differs."""
        at = len(own)
        begins = 0 < at < len(self.token_ids) and self.sampled[at - 1] and not self.sampled[at]
        if not begins or not np.array_equal(own, self.token_ids[:at]):
            return None
        length = int(np.argmax(np.append(self.sampled[at:], True)))
        return [int(token) for token in self.token_ids[at : at + length]]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and a random key for each completion wanted."""

    token_ids: tuple[int, ...]
    keys: tuple[int, ...]
    begun: int = 0
    """Number of `token_ids`, at their end, that belong to the completion."""
    max_tokens: int | None = None
    """Most tokens to sample; None: what `sampling.max_tokens` leaves, which counts those that it has begun with."""
    pause: "Pause | None" = None
    """Asked after every token; None: completions go on to their end."""
    calls: tuple[ToolCall, ...] = ()
    since_result: int = 0
    """Number of `token_ids`, at their end, since the last result of a tool: a call may begin in them."""
    stops: tuple[str, ...] = ()
    """Texts behind which an engine that does not know tools may pause, ending by `tool_call`."""
    recorded: tuple[Recorded, ...] = ()
    """For each key the completion as it was sampled before, whose results of tools are used again; empty: none."""

    @property
    def open_tokens(self) -> tuple[int, ...]:
        return self.token_ids[len(self.token_ids) - self.since_result :]

    def room(self, sampling: SamplingConfig) -> int:
        """Return the most tokens to sample; raises ConfigError where there is none."""
        room = sampling.max_tokens - self.begun if self.max_tokens is None else self.max_tokens
        if room < 1 or not 0 <= self.begun < len(self.token_ids):
            raise ConfigError(
                f"a completion of {len(self.token_ids)} tokens, prompt included, of which {self.begun} are its own, "
                f"cannot go on: 0 to {sampling.max_tokens - 1} own ones (below sampling.max_tokens) are allowed"
            )
        return room


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as the sampler saw it; arrays are (T,)."""

    token_ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32] | None
    """None where the sampler does not measure it."""
    finish_reason: FinishReason
    sampled: NDArray[np.bool_] | None = None
    """True at tokens that were drawn; None: all of them."""
    calls: tuple[ToolCall, ...] = ()
    waits_for: Seen | None = None
    """The call whose result comes next, not yet in `calls`, where it ended by `tool_call`."""
    turns: tuple[TurnRecord, ...] = ()

    @property
    def drawn(self) -> NDArray[np.bool_]:
        return np.ones(len(self.token_ids), np.bool_) if self.sampled is None else self.sampled

    @property
    def num_drawn(self) -> int:
        return int(np.count_nonzero(self.drawn))

    @property
    def num_put_in(self) -> int:
        return len(self.token_ids) - self.num_drawn

    @property
    def since_put_in(self) -> int:
        return int(np.argmin(self.drawn[::-1])) if self.num_put_in else len(self.token_ids)


Pause = Callable[[Sequence[int]], bool]
"""Given the tokens since the request, says whether to stop (by `length`); not asked between a call and its result."""
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
        last of them has finished.

        An engine whose attribute `uses_tools` is true puts the results of immediate tools in itself, and ends a
        completion that calls another tool by `tool_call`. What others sample is cut behind the first call, and
        `rollout.tool_rounds` asks them to continue from there. One that has room for fewer tokens than the model
        says so by `context_length`; one with states and proofs of its servers for a step's metrics by `facts`.

        Raises:
            ConfigError: a prompt and its completion do not fit in the model's context.
        """
        ...

    def publish(self, policy: Policy, version: int) -> None:
        """From now on, sample from these weights."""
        ...


class EngineConfig(KindSection):
    """The engine that samples completions."""

    continues: ClassVar[bool] = True
    kind: str = "in_process"
    """`in_process`: the very weights that are trained, in this process. `scripted`: completions that a file holds, for
    dry runs. `vllm`: servers of their own (docs/do/vllm.md). `file.py:name`: your own engine."""

    @property
    def looks_ahead(self) -> bool:
        return False


ENGINES = Kinds(
    "engine",
    {
        "in_process": "groupwise.rollout.in_process:InProcessEngine",
        "scripted": "groupwise.rollout.scripted:ScriptedEngine",
        "vllm": "groupwise.rollout.vllm.engine:VllmEngine",
    },
    default="in_process",
)
AnyEngine = Annotated[EngineConfig, ENGINES]
"""The [engine] section of a recipe."""


NO_TOOLS = (
    "the engine '{kind}' gives whole completions and cannot go on behind a call, but sampling.tools has {tools}; "
    "allowed with tools is an engine that goes on, such as engine.kind = 'in_process'"
)


def make_engine(config: EngineConfig, policy: Policy) -> Engine:
    """The engine that a section describes, sampling from this policy."""
    engine: Engine = ENGINES.find(config.kind)(config, policy)
    return engine


class KeptEngine:
    """Asks another engine for what its file does not hold yet; each finished prompt is a line, written at once."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine, self._file = engine, LineFile(path)
        self.seconds = 0.0
        """Time in which the lines were sampled, before and now."""
        self._kept: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Sampled]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file.mend()
        for number, line in LineFile(path).read()[0]:
            try:
                samples = [
                    Sampled(
                        np.array(sample["token_ids"], np.int64),
                        np.array(sample["logprobs"], np.float32),
                        None if sample["entropy"] is None else np.array(sample["entropy"], np.float32),
                        FinishReason(sample["finish_reason"]),
                    )
                    for sample in line["samples"]
                ]
                self.seconds += line["seconds"]
                self._kept[tuple(line["prompt"]), tuple(line["keys"])] = samples
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(f"{path}:{number} is no line of samples: {error!r}; delete the file") from None

    @property
    def version(self) -> int:
        return self._engine.version

    def __len__(self) -> int:
        return len(self._kept)

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        open_requests, newest = [], time.perf_counter()
        for index, request in enumerate(requests):
            if (samples := self._kept.get((request.token_ids, request.keys))) is None:
                open_requests.append(index)
            else:
                on_finished(index, samples)

        def finished(place: int, samples: list[Sampled]) -> None:
            nonlocal newest
            request, now = requests[open_requests[place]], time.perf_counter()
            line = {"prompt": request.token_ids, "keys": request.keys, "seconds": now - newest}
            written = [
                {
                    "token_ids": sample.token_ids.tolist(),
                    "logprobs": sample.logprobs.tolist(),
                    "entropy": None if sample.entropy is None else sample.entropy.tolist(),
                    "finish_reason": str(sample.finish_reason),
                }
                for sample in samples
            ]
            self._file.append(line | {"samples": written})
            self.seconds, newest = self.seconds + now - newest, now
            on_finished(open_requests[place], samples)

        self._engine.generate([requests[index] for index in open_requests], sampling, finished)

    def publish(self, policy: Policy, version: int) -> None:
        self._engine.publish(policy, version)
