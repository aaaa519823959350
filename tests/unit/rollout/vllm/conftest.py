"""Servers that can lie, and engines that must not believe them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from groupwise.models.checkpoint import changing_a_little, save_checkpoint
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.policy import Policy, start_policy
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm import canary, crew, loading
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.engine import VllmEngine

SAMPLING = SamplingConfig(max_tokens=4)
REQUESTS = [Request((5, 6, 7), (11, 12, 13)), Request((8, 9), (21, 22))]


@pytest.fixture(scope="session")
def trained(tiny_policy: Callable[..., Policy]) -> Policy:
    """The trainer's policy; nobody changes it."""
    return tiny_policy(num_hidden_layers=1)


@pytest.fixture(scope="session")
def moved(trained: Policy) -> Iterator[Policy]:
    """The trainer's policy after an update that everybody notices."""
    copy = trained.copy()
    with changing_a_little(copy, 0.1):
        yield copy


@pytest.fixture(scope="session")
def served(tiny_policy: Callable[..., Policy]) -> Policy:
    """What a server starts with: other weights, and a head of its own, as in vLLM's build for processors."""
    return tiny_policy(seed=1, num_hidden_layers=1, tie_word_embeddings=False)


@pytest.fixture(scope="session")
def adapted(tiny_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """The trainer's policy with adapters that have learned something; nobody changes it."""
    path = tmp_path_factory.mktemp("adapted") / "base"
    save_checkpoint(path, tiny_policy(num_hidden_layers=1))
    policy = start_policy(ModelConfig(path=str(path), device="cpu"), LoraConfig(rank=4), seed=0)
    with torch.no_grad():
        for _, weight in policy.trainable():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return policy


@pytest.fixture
def make_server(served: Policy) -> Iterator[Callable[..., Any]]:
    """make_server(*lies, **options) -> a server that tells these lies."""
    from lying_server import LyingServer

    servers = []

    def make(*lies: str, **options: Any) -> LyingServer:
        server = LyingServer(served, **options)
        server.lies |= set(lies)
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.close()


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> Iterator[None]:
    """Nothing is waited for long, and the canary is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "PROBE_EVERY_S", 0.05)
        patch.setattr(crew, "LOOK_S", 0.02)
        patch.setattr(crew, "SUSPECT_S", 0.5)
        patch.setattr(loading, "LOOKS", 4)
        patch.setattr(canary, "TEXT_TOKENS", 24)
        yield


@pytest.fixture
def make_engine(trained: Policy) -> Iterator[Callable[..., VllmEngine]]:
    """make_engine(*servers, policy=..., **settings) -> an engine on them, of the trainer's policy or another."""
    engines = []

    def make(*servers: Any, policy: Policy = trained, **settings: Any) -> VllmEngine:
        engines.append(engine_on(policy, *servers, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def started(make_server: Callable[..., Any], make_engine: Callable[..., VllmEngine], trained: Policy) -> Any:
    """started(policy, version, **settings) -> a server, and an engine on it that has published these weights."""

    def start(policy: Policy = trained, version: int = 0, **settings: Any) -> tuple[Any, VllmEngine]:
        server = make_server()
        engine = make_engine(server, **settings)
        engine.publish(policy, version)
        return server, engine

    return start


def engine_on(policy: Policy, *servers: Any, **settings: Any) -> VllmEngine:
    values = {"kind": "vllm", "rehearse": False, "start_s": 10.0, "patience_s": 5.0, "request_s": 30.0} | settings
    addresses = tuple(server.address for server in servers)
    return VllmEngine(VllmConfig.model_validate({**values, "addresses": addresses}), policy)


@pytest.fixture(scope="module")
def ready(trained: Policy, served: Policy) -> Iterator[tuple[Any, VllmEngine]]:
    """A server with the trainer's weights, and an engine on it; the tests of a module share them."""
    from lying_server import LyingServer

    server = LyingServer(served)
    engine = engine_on(trained, server)
    engine.publish(trained, 0)
    yield server, engine
    engine.close()
    server.close()


@pytest.fixture(scope="session")
def sample() -> Callable[..., dict[int, list[Sampled]]]:
    """sample(engine, requests) -> completions by request."""

    def run(engine: Any, requests: Any = REQUESTS, sampling: SamplingConfig = SAMPLING) -> dict[int, list[Sampled]]:
        found: dict[int, list[Sampled]] = {}

        def finished(index: int, completions: list[Sampled]) -> None:
            assert index not in found, "a group was told twice"
            found[index] = completions

        engine.generate(requests, sampling, finished)
        return found

    return run
