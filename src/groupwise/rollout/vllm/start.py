"""The servers of a run before their first weights: found or started, and checked one by one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from groupwise.errors import ConfigError, EngineError
from groupwise.models.checkpoint import serving_weights
from groupwise.models.policy import Policy
from groupwise.ranks.group import RANKS, hosts_started
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.crew import Crew
from groupwise.rollout.vllm.launch import launched, restart
from groupwise.rollout.vllm.loading import Asker, Facts, check_server, wait_until_healthy
from groupwise.rollout.vllm.server import Server, Unreachable

T = TypeVar("T")


class Started(NamedTuple):
    """Servers that were checked."""

    crew: Crew
    contexts: tuple[int, ...]
    """Of each server, the most tokens of a prompt and its completion."""


def start(config: VllmConfig, policy: Policy) -> Started:
    """Find or start the servers of a run, and check each of them. All ranks call it; the first one does it.

    Raises:
        EngineError: one does not answer, or is not what it must be; two have different versions of vLLM.
        ConfigError: servers are to be started, and the ranks are on several machines.
    """
    if config.launch and hosts_started() > 1:
        raise ConfigError(
            f"engine.launch = {config.launch} starts servers that only the first rank's machine sees, and the ranks "
            f"are on {hosts_started()}; allowed there is engine.addresses"
        )
    asker = Asker(config.model, policy.vocabulary, policy.stop_ids)
    weights = serving_weights(policy) if config.launch else {}
    addresses, contexts = RANKS.by_first(
        lambda: _checked(config, config.addresses or launched(config, policy, weights), asker)
    )
    return Started(Crew([Server(address) for address in addresses], asker, restart), contexts)


def _checked(config: VllmConfig, addresses: Sequence[str], asker: Asker) -> tuple[Sequence[str], tuple[int, ...]]:
    """The addresses of servers that were checked, and the most tokens of each."""
    servers = [Server(address) for address in addresses]
    _for_each(servers, lambda server: wait_until_healthy(server, config.start_s))
    facts = _for_each(servers, lambda server: check_server(server, asker))
    _check_versions(servers, facts)
    return addresses, tuple(found.max_tokens for found in facts if found.max_tokens)


def _for_each(servers: Sequence[Server], check: Callable[[Server], T]) -> list[T]:
    """The check of every server, all at one time."""

    def checked(server: Server) -> T:
        try:
            return check(server)
        except Unreachable as error:
            raise EngineError(f"the server {server.address} fails at the start: {error}") from None

    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(checked, servers))


def _check_versions(servers: Sequence[Server], facts: Sequence[Facts]) -> None:
    """One version of vLLM: two may round, cache and reload differently."""
    versions = {found.version for found in facts}
    if len(versions) > 1:
        named = ", ".join(f"{server.address} has {found.version}" for server, found in zip(servers, facts, strict=True))
        raise EngineError(f"the servers have different versions of vLLM: {named}; one version is allowed")
