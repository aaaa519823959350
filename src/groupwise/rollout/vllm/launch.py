"""Servers that a run starts and ends itself. All engines of a process share them: a start takes a minute."""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import IO, TypeVar

from safetensors import safe_open
from torch import Tensor

from groupwise.errors import ConfigError, EngineError, InvariantError
from groupwise.models.checkpoint import WEIGHTS, save_for_serving, serving_weights
from groupwise.models.policy import Policy
from groupwise.ranks.group import RANKS, hosts_started
from groupwise.rollout.vllm import keeper
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.crew import Crew
from groupwise.rollout.vllm.loading import Asker, check_server, wait_until_healthy
from groupwise.rollout.vllm.server import Server, Unreachable
from groupwise.runs.atomic import new_directory
from groupwise.runs.progress import say, tell

KEPT = 2
"""Directories that stay: that of the day, and the one before it, which a slow server may still be reading."""


class WeightsFolder:
    """Writes versions of the weights and deletes those that nobody reads any more."""

    def __init__(self, path: str) -> None:
        """A folder of its own within `path`; in a temporary one, which goes with the process, where that is empty."""
        if path:
            Path(path).mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="groupwise-weights-", dir=path or None)).resolve()
        self.path.chmod(0o755)  # a server may run as somebody else
        self._written: dict[str, list[Path]] = {}
        self._layout: dict[str, tuple[int, ...]] = {}
        self.close = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def write(self, policy: Policy, label: str, weights: dict[str, Tensor]) -> Path:
        """Write a new directory with these weights of a policy."""
        directory = self.path / label
        with new_directory(directory) as temporary:
            save_for_serving(policy, temporary, weights)
            self._check(temporary / WEIGHTS)
        return self._keep("weights", directory)

    def write_adapters(self, policy: Policy, name: str, weights: Mapping[str, Tensor] | None) -> Path:
        directory = self.path / name
        with new_directory(directory) as temporary:
            policy.save(temporary, weights)
        return self._keep("adapters", directory)

    def _keep(self, kind: str, directory: Path) -> Path:
        written = [*[path for path in self._written.get(kind, ()) if path != directory], directory]
        for old in written[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._written[kind] = written[-KEPT:]
        return directory

    def _check(self, file: Path) -> None:
        with safe_open(file, "pt") as tensors:
            layout = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        self._layout = self._layout or layout
        if layout != self._layout:
            changed = sorted(name for name, _ in self._layout.items() ^ layout.items())
            raise InvariantError(
                f"the weights for the servers have other tensors than in the version before: {', '.join(changed[:3])}"
            )


HOST = "127.0.0.1"
"""Servers listen here alone: their control routes ask nobody for a key."""
BLOCK = 32
"""Tokens of a block of the prefix cache; prompts share whole blocks only, and a processor's default is 128."""
MAX_STARTS = 3
"""Most starts of a server before it is given up."""
VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
}  # fmt: skip
"""Variables of its environment."""


class Launched:
    """One server on this machine, and what keeps it."""

    def __init__(self, command: list[str], port: int, log: Path, start_s: float) -> None:
        self.address = f"http://{HOST}:{port}"
        self.log, self.starts = log, 0
        self._command, self._start_s = command, start_s
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> None:
        self.close()
        self.starts += 1
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self.log.open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, keeper.__file__, *self._command], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env=inherited | VARIABLES, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until it answers; an EngineError says what it wrote last."""
        server, end = Server(self.address), monotonic() + self._start_s
        tell(f"starting the server {self.address}; it writes to {self.log}")
        while server.trouble():
            say(f"waiting for {self.address}", int(monotonic() - end + self._start_s), int(self._start_s))
            if not self.is_running or monotonic() > end:
                why = "does not answer in time" if self.is_running else "has ended"
                lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
                last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "nothing")
                raise EngineError(f"a server that was started {why}; {self.log} says last: {last}")
            sleep(0.5)
        say(f"waiting for {self.address}", 1, 1)

    def close(self) -> None:
        if self._keeper is not None and self._keeper.stdin is not None:
            stdin: IO[bytes] = self._keeper.stdin
            stdin.close()
            self._keeper.wait()
            self._keeper = None


_LAUNCHED: dict[tuple[object, ...], list[Launched]] = {}
"""By what they were started for."""
_FOLDERS: list[WeightsFolder] = []
"""Weights that they were started with."""


def launched(config: VllmConfig, policy: Policy, weights: dict[str, Tensor]) -> tuple[str, ...]:
    """Return the addresses of the servers that the settings describe, started at the first call of this process.

    `weights` are what they start with, and stay as long as they may have to start again.
    """
    alike = (config.launch, config.environment, config.options, config.kv_cache_gib, config.dtype, policy.vocabulary)
    needs = (*alike, bool(_for_adapters(config, policy)))
    if needs not in _LAUNCHED and (*alike, True) in _LAUNCHED:
        needs = (*alike, True)  # servers that can add adapters serve a plain model as well
    servers = [server for server in _LAUNCHED.get(needs, ()) if server.is_running]
    if len(servers) < config.launch:
        for server in servers:
            server.close()
        if not (python := (Path(config.environment) / "bin" / "python").absolute()).exists():
            raise EngineError(
                f"engine.environment = '{Path(config.environment)}' is no virtual environment (it has no bin/python): "
                "`make vllm` makes .venv-vllm with vLLM's build for processors; for a GPU install vLLM in one and name "
                "it"
            )
        folder = WeightsFolder(config.directory)
        _FOLDERS.append(folder)
        model = folder.write(policy, "start", weights)
        logs = Path(tempfile.mkdtemp(prefix="groupwise-vllm-"))
        sockets = [socket.create_server((HOST, 0)) for _ in range(config.launch)]
        ports: list[int] = [listener.getsockname()[1] for listener in sockets]
        for listener in sockets:
            listener.close()
        servers = [
            Launched(_command(config, python, model, policy, port), port, logs / f"server-{port}.log", config.start_s)
            for port in ports
        ]
        _LAUNCHED[needs] = servers
        for server in servers:
            server.start()
        for server in servers:
            server.wait()
    return tuple(server.address for server in servers)


def restart(address: str) -> bool:
    """Start a server again whose first process has ended; False where nobody here started it, or too often."""
    for server in (server for servers in _LAUNCHED.values() for server in servers):
        if server.address == address and not server.is_running and server.starts < MAX_STARTS:
            server.start()
            return True
    return False


@atexit.register
def end_all() -> None:
    """End every server that this process has started."""
    for server in (server for servers in _LAUNCHED.values() for server in servers):
        server.close()
    _LAUNCHED.clear()
    for folder in _FOLDERS:
        folder.close()
    _FOLDERS.clear()


def _command(config: VllmConfig, python: Path, model: Path, policy: Policy, port: int) -> list[str]:
    return [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name",
        config.model, "--host", HOST, "--port", str(port), "--dtype", config.dtype, "--max-model-len",
        str(policy.context_length), "--enforce-eager", "--enable-scale-out", "--logprobs-mode", "processed_logprobs",
        "--generation-config", "vllm", "--kv-cache-memory-bytes", str(int(config.kv_cache_gib * 2**30)),
        "--block-size", str(BLOCK), "--api-server-count", "1", *_for_adapters(config, policy), *config.options,
    ]  # fmt: skip


LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The limits that vLLM knows."""


def _for_adapters(config: VllmConfig, policy: Policy) -> list[str]:
    if (adapters := config.adapters_of(policy)) is None:
        return []
    rank = max(adapters.config.r, *adapters.config.rank_pattern.values(), 0)
    limit = next((limit for limit in LORA_RANKS if limit >= rank), None)
    if limit is None:
        raise EngineError(
            f"the adapters have rank {rank}, and vLLM serves at most {LORA_RANKS[-1]}: use engine.adapters = 'merged'"
        )
    return ["--enable-lora", "--max-lora-rank", str(limit), "--max-loras", "1", "--max-cpu-loras", "4"]


T = TypeVar("T")


def start(config: VllmConfig, policy: Policy) -> Crew:
    """Find or start the servers of a run, and check each of them. All ranks call it; the first one does it."""
    if config.launch and hosts_started() > 1:
        raise ConfigError(
            f"engine.launch = {config.launch} starts servers that only the first rank's machine sees, and the ranks "
            f"are on {hosts_started()}; allowed there is engine.addresses"
        )
    asker = Asker(config.model, policy.vocabulary, policy.stop_ids)
    weights = serving_weights(policy) if config.launch else {}

    def checked() -> tuple[Sequence[str], tuple[int, ...]]:
        addresses = config.addresses or launched(config, policy, weights)
        servers = [Server(address) for address in addresses]
        _for_each(servers, lambda server: wait_until_healthy(server, config.start_s))
        versions, contexts = zip(*_for_each(servers, lambda server: check_server(server, asker)), strict=True)
        if len(set(versions)) > 1:
            pairs = zip(addresses, versions, strict=True)
            said = ", ".join(f"{address} has {version}" for address, version in pairs)
            raise EngineError(f"the servers have different versions of vLLM: {said}; one version is allowed")
        return addresses, tuple(filter(None, contexts))

    addresses, contexts = RANKS.by_first(checked)
    return Crew([Server(address) for address in addresses], asker, restart, contexts)


def _for_each(servers: Sequence[Server], check: Callable[[Server], T]) -> list[T]:

    def checked(server: Server) -> T:
        try:
            return check(server)
        except Unreachable as error:
            raise EngineError(f"the server {server.address} fails at the start: {error}") from None

    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(checked, servers))
