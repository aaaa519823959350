"""What is done to one server, in order: the checks before it is used, and new weights.

All of this only talks to the server; nothing here computes with a model, so several threads may do it at one time.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep

from groupwise.errors import EngineError
from groupwise.rollout.engine import Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import SAMPLED_TOKENS, Canary, Reading
from groupwise.rollout.vllm.server import Server, Unreachable
from groupwise.rollout.vllm.wire import ForeignWeights, Unfinished, read_sampled, read_scores, wanted, wanted_scores
from groupwise.types import FinishReason

CANARY_S = 120.0
"""How long a server may take for a request of the canary, in seconds."""
SALT = "canary"
"""Of the canary's requests, the same for all weights: keys and values that were left would be read again and seen."""
LOOKS = 8
"""Short completions by which more than one engine behind an address is looked for."""
HOT = 2.0
"""The highest temperature that servers allow; few models draw the same tokens twice by chance then."""


@dataclass(frozen=True, slots=True)
class Asker:
    """What is the same in all requests of a run."""

    served: str
    """Name of the served model."""
    vocabulary: int
    stop_ids: frozenset[int]

    def sample(
        self, server: Server, prompt: tuple[int, ...], key: int, sampling: SamplingConfig, label: str, salt: str,
        deadline_s: float, stops: tuple[str, ...] = (),
    ) -> Sampled:  # fmt: skip
        """One completion from weights of this label, up to one of the texts `stops` at most."""
        body = wanted(prompt, key, sampling, self.stop_ids, self.served, salt, stops)
        answer = server.generate(body, deadline_s)
        found = read_sampled(answer, server.address, self.served, label, self.vocabulary, sampling)
        if stops and found.finish_reason is FinishReason.STOP and int(found.token_ids[-1]) not in self.stop_ids:
            return replace(found, finish_reason=FinishReason.TOOL_CALL)
        return found

    def read(self, server: Server, canary: Canary, label: str) -> Reading:
        """What a server says of the canary's text and after its prompt."""
        text = read_scores(
            server.generate(wanted_scores(canary.text, self.served, SALT), CANARY_S), canary.text, server.address,
            self.served,
        )  # fmt: skip
        sampled = self.sample(server, canary.prompt, 0, _short(canary.temperature), label, SALT, CANARY_S)
        return Reading(text, sampled.token_ids, sampled.logprobs)

    def warm(self, server: Server, canary: Canary) -> None:
        """Let the server keep keys and values of the canary's prompt, which new weights must make it forget."""
        if not server.is_paused():
            server.generate(
                wanted(canary.prompt, 0, _short(canary.temperature), self.stop_ids, self.served, SALT), CANARY_S
            )


def _short(temperature: float, tokens: int = SAMPLED_TOKENS) -> SamplingConfig:
    return SamplingConfig(temperature=temperature, max_tokens=tokens)


def load(server: Server, directory: Path, label: str, asker: Asker, canary: Canary) -> Reading:
    """Give a server the weights of a directory, and read the canary from it.

    It stands still meanwhile: no completion is of two kinds of weights. Where anything fails, it is left as it is, for
    nobody knows what it holds then.

    Raises:
        Unreachable: the server does not answer, or cannot read the directory.
        EngineError: it keeps keys and values, or answers with what cannot be trusted.
    """
    asker.warm(server, canary)
    server.pause()
    server.reload(str(directory))
    if not server.clear_prefix_cache():
        raise EngineError(
            f"the server {server.address} keeps keys and values of older weights: it could not clear its prefix cache, "
            "although it is paused"
        )
    server.set_label(label)
    server.resume()
    try:
        return asker.read(server, canary, label)
    except ForeignWeights as error:
        raise EngineError(
            f"the server {server.address} was told that its weights are {label}, and answers from {error}: behind "
            "this address there is more than one engine (name each by its own), or it ignores what it is told"
        ) from None
    except Unfinished as error:
        raise Unreachable(f"the canary's completion ended by {error}") from None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server says of itself."""

    version: str
    """Of vLLM."""
    max_tokens: int
    """Most tokens of a prompt and its completion; 0 where it does not tell."""
    models: tuple[str, ...] = field(default=())


def wait_until_healthy(server: Server, seconds: float) -> None:
    """Wait for a server that may still be starting.

    Raises:
        EngineError: it does not answer in time.
    """
    end = monotonic() + seconds
    while not server.is_healthy():
        if monotonic() > end:
            raise EngineError(f"the server {server.address} does not answer within {seconds:g} s (engine.start_s)")
        sleep(0.5)


def check_server(server: Server, asker: Asker) -> Facts:
    """Whether a server is what it must be, before it gets any weights.

    Raises:
        EngineError: it serves another model or vocabulary, hides several engines, or does not obey seeds.
        Unreachable: it does not answer.
    """
    models = server.models()
    if asker.served not in models:
        raise EngineError(
            f"the server {server.address} serves {', '.join(models) or 'nothing'}, not {asker.served!r}: start it with "
            f"--served-model-name {asker.served}"
        )
    _check_vocabulary(server, asker)
    _check_one_engine(server, asker)
    return Facts(server.version(), models[asker.served], tuple(models))


def _check_vocabulary(server: Server, asker: Asker) -> None:
    """The last token exists there, and the next one does not."""
    if server.is_paused():
        server.resume()
    for token, exists in ((asker.vocabulary - 1, True), (asker.vocabulary, False)):
        body = wanted((token,), 0, _short(1.0, 1), asker.stop_ids, asker.served, SALT)
        try:
            server.generate(body, CANARY_S)
            found = True
        except EngineError as error:
            if "/inference" not in str(error) or "HTTP 400" not in str(error):
                raise
            found = False
        if found is not exists:
            raise EngineError(
                f"the server {server.address} has {'fewer' if exists else 'more'} tokens than the model's vocabulary "
                f"of {asker.vocabulary}: it serves a model with another vocabulary"
            )


def _check_one_engine(server: Server, asker: Asker) -> None:
    """A label reaches one engine; completions of another one behind the same address do not bear it."""
    label = f"look-{monotonic()}"
    server.pause()
    server.set_label(label)
    server.resume()
    drawn = []
    for look in range(LOOKS):
        try:
            sampled = asker.sample(server, (0,), look // 2 << 32, _short(HOT), label, SALT, CANARY_S)
        except ForeignWeights:
            raise EngineError(
                f"behind the address {server.address} there is more than one engine (a balancer): new weights would "
                "reach only one of them; name each engine by its own address"
            ) from None
        except Unfinished as error:
            raise Unreachable(f"a short completion ended by {error}") from None
        drawn.append(tuple(sampled.token_ids.tolist()))
    if drawn[::2] != drawn[1::2]:
        raise EngineError(f"the server {server.address} draws other tokens when it gets the same seed again")
    if len(set(drawn)) == 1:
        raise EngineError(f"the server {server.address} draws the same tokens whatever its seed: it ignores it")
