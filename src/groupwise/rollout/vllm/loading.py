"""The work on one server, in order: the checks before it is used, and new weights. Threads may do it at one time."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np

from groupwise.errors import EngineError
from groupwise.rollout.engine import Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import DRAWS, Canary, Reading
from groupwise.rollout.vllm.server import Refused, Server
from groupwise.rollout.vllm.wire import ForeignWeights, read_sampled, read_scores, wanted, wanted_scores
from groupwise.runs.progress import tell
from groupwise.types import FinishReason

CANARY_S = 120.0
"""Longest time for a request of the canary, in seconds."""
SALT = "canary"
"""Salt of the canary's requests, the same for all weights: keys and values that were left would be read and seen."""
LOOKS = 8
"""Short completions by which more than one engine behind an address is looked for."""
LOOK_TOKENS = 8
HOT = 2.0
"""The highest temperature that servers allow; few models draw the same tokens twice by chance then."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Settings that all requests of a run share."""

    served: str
    vocabulary: int
    stop_ids: frozenset[int]
    is_adapted: bool = False
    """True where the name is that of adapters, which a server that was started anew does not know."""

    def sample(
        self, server: Server, prompt: tuple[int, ...], key: int, sampling: SamplingConfig, label: str, salt: str,
        deadline_s: float, stops: tuple[str, ...] = (),
    ) -> Sampled:  # fmt: skip
        body = wanted(prompt, key, sampling, self.stop_ids, self.served, salt, stops)
        try:
            answer = server.generate(body, deadline_s)
        except Refused as error:
            if not self.is_adapted or error.status != 404:
                raise
            raise ForeignWeights(f"a server that has no adapters named {self.served}") from None
        found = read_sampled(answer, server.address, self.served, label, self.vocabulary, sampling)
        if stops and found.finish_reason is FinishReason.STOP and int(found.token_ids[-1]) not in self.stop_ids:
            return replace(found, finish_reason=FinishReason.TOOL_CALL)
        return found

    def read(self, server: Server, canary: Canary, label: str) -> Reading:
        text = read_scores(
            server.generate(wanted_scores(canary.text, self.served, SALT), CANARY_S), canary.text, server.address,
            self.served,
        )  # fmt: skip
        one = _short(canary.temperature)
        drawn = [self.sample(server, canary.prompt, i << 1, one, label, SALT, CANARY_S) for i in range(DRAWS)]
        tokens = np.concatenate([sampled.token_ids for sampled in drawn])
        return Reading(text, tokens, np.concatenate([sampled.logprobs for sampled in drawn]))

    def warm(self, server: Server, canary: Canary) -> None:
        if not server.is_paused():
            server.generate(
                wanted(canary.prompt, 0, _short(canary.temperature), self.stop_ids, self.served, SALT), CANARY_S
            )


def _short(temperature: float, tokens: int = 1) -> SamplingConfig:
    return SamplingConfig(temperature=temperature, max_tokens=tokens)


class Weights(NamedTuple):
    """The weights that the servers must have."""

    label: str
    directory: Path
    canary: Canary
    adapters: Path | None = None

    @property
    def name(self) -> str:
        return self.adapters.name if self.adapters else self.label

    def asker(self, asker: Asker) -> Asker:
        return replace(asker, served=self.adapters.name, is_adapted=True) if self.adapters else asker


def load(server: Server, weights: Weights, asker: Asker) -> Reading:
    """Give a server its weights, and read the canary from it; where anything fails, it is left as it is."""
    label, own = weights.label, weights.asker(asker)
    if weights.adapters is None or not _has(server, label, asker):
        asker.warm(server, weights.canary)
        server.pause()
        server.reload(str(weights.directory))
        if not server.clear_prefix_cache():
            raise EngineError(
                f"the server {server.address} keeps keys and values of older weights: it could not clear its prefix "
                "cache, although it is paused"
            )
        server.set_label(label)
        server.resume()
    if weights.adapters and weights.adapters.name not in server.models():
        server.load_adapters(weights.adapters.name, str(weights.adapters))
    try:
        reading = own.read(server, weights.canary, label)
    except ForeignWeights as error:
        raise EngineError(
            f"the server {server.address} was told that its weights are {label}, and answers from {error}: behind "
            "this address there is more than one engine (name each by its own), or it ignores what it is told"
        ) from None
    if weights.adapters:
        for name in server.models().keys() - {own.served, asker.served}:  # nobody asks for them any more
            server.unload_adapters(name)
    return reading


def _has(server: Server, label: str, asker: Asker) -> bool:
    if server.is_paused():  # in the middle of what failed: nobody knows what it holds
        return False
    try:
        asker.sample(server, (0,), 0, _short(1.0), label, SALT, CANARY_S)
    except ForeignWeights:
        return False
    return True


FIRST_S, NEXT_S = 5.0, 10.0
"""Seconds after which a server that is waited for is named, and between the next times."""


def wait_until_healthy(server: Server, seconds: float) -> None:
    """Wait for a server that may still be loading its model, and say so; raises EngineError."""
    began, tell_at = monotonic(), FIRST_S
    while (why := server.trouble(FIRST_S)) is not None:
        waited = monotonic() - began
        if waited > seconds:
            raise EngineError(
                f"the server {server.address} does not answer within {seconds:g} s (engine.start_s); the last: {why}"
            )
        if waited >= tell_at:
            tell_at = waited + NEXT_S
            tell(f"waiting for the server {server.address}, {waited:.0f} of {seconds:g} s (engine.start_s): {why}")
        sleep(0.5)


def check_server(server: Server, asker: Asker) -> tuple[str, int]:
    """Check that a server is what it must be, before it gets any weights; returns its version and longest context.

    Raises EngineError.
    """
    models = server.models()
    if asker.served not in models:
        raise EngineError(
            f"the server {server.address} serves {', '.join(models) or 'nothing'}, not {asker.served!r}: start it with "
            f"--served-model-name {asker.served}"
        )
    _check_vocabulary(server, asker)
    _check_one_engine(server, asker)
    return server.version(), models[asker.served]


def _check_vocabulary(server: Server, asker: Asker) -> None:
    if server.is_paused():
        server.resume()
    for token, exists in ((asker.vocabulary - 1, True), (asker.vocabulary, False)):
        body = wanted((token,), 0, _short(1.0), asker.stop_ids, asker.served, SALT)
        try:
            server.generate(body, CANARY_S)
            found = True
        except Refused as error:
            if error.status != 400:
                raise
            found = False
        if found is not exists:
            raise EngineError(
                f"the server {server.address} has {'fewer' if exists else 'more'} tokens than the model's vocabulary "
                f"of {asker.vocabulary}: it serves a model with another vocabulary"
            )


def _check_one_engine(server: Server, asker: Asker) -> None:
    label = f"look-{monotonic()}"
    server.pause()
    server.set_label(label)
    server.resume()
    drawn = []
    for look in range(LOOKS):
        try:
            sampled = asker.sample(server, (0,), look // 2 << 32, _short(HOT, LOOK_TOKENS), label, SALT, CANARY_S)
        except ForeignWeights:
            raise EngineError(
                f"behind the address {server.address} there is more than one engine (a balancer): new weights would "
                "reach only one of them; name each engine by its own address"
            ) from None
        drawn.append(tuple(sampled.token_ids.tolist()))
    if drawn[::2] != drawn[1::2]:
        raise EngineError(f"the server {server.address} draws other tokens when it gets the same seed again")
    if len(set(drawn)) == 1:
        raise EngineError(f"the server {server.address} draws the same tokens whatever its seed: it ignores it")
