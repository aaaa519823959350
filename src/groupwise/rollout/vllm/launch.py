"""Servers that a run starts and ends itself. All engines of a process share them: a start takes a minute."""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from torch import Tensor

from groupwise.errors import EngineError
from groupwise.models.policy import Policy
from groupwise.rollout.vllm import keeper
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.server import Server
from groupwise.rollout.vllm.weights import WeightsFolder

HOST = "127.0.0.1"
"""Servers listen here alone: their control routes ask nobody for a key."""
BLOCK = 32
"""Tokens of a block of the prefix cache; prompts share whole blocks only, and a processor's default is 128."""
MAX_STARTS = 3
"""How often a server is started before it is given up."""


class Launched:
    """One server on this machine, and what keeps it."""

    def __init__(self, command: list[str], port: int, log: Path, start_s: float) -> None:
        self.address = f"http://{HOST}:{port}"
        self.log, self.starts = log, 0
        self._command, self._start_s = command, start_s
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its first process has not ended."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> None:
        """Start it, again where it ended."""
        self.close()
        self.starts += 1
        with self.log.open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, keeper.__file__, *self._command], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env=_environment(), start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Until it answers.

        Raises:
            EngineError: it ended, or does not answer in time; says what it wrote last.
        """
        server, end = Server(self.address), monotonic() + self._start_s
        while not server.is_healthy():
            if not self.is_running or monotonic() > end:
                why = "does not answer in time" if self.is_running else "has ended"
                raise EngineError(f"a server that was started {why}; {self.log} says last: {_last_line(self.log)}")
            sleep(0.5)

    def close(self) -> None:
        """End it with all of its processes."""
        if self._keeper is not None and self._keeper.stdin is not None:
            stdin: IO[bytes] = self._keeper.stdin
            stdin.close()
            self._keeper.wait()
            self._keeper = None


_LAUNCHED: dict[tuple[object, ...], list[Launched]] = {}
"""By what they were started for."""
_FOLDERS: list[WeightsFolder] = []
"""What they were started with."""


def launched(config: VllmConfig, policy: Policy, weights: dict[str, Tensor]) -> tuple[str, ...]:
    """The addresses of as many servers as the settings say, started at the first call of this process.

    Args:
        config: how many, and how.
        policy: what they serve.
        weights: what they start with, which stays as long as they may have to start again.

    Raises:
        EngineError: there is no such environment, or a server does not start.
    """
    alike = (config.launch, config.environment, config.options, config.kv_cache_gib, config.dtype, policy.vocabulary)
    needs = (*alike, bool(_for_adapters(config, policy)))
    if needs not in _LAUNCHED and (*alike, True) in _LAUNCHED:
        needs = (*alike, True)  # servers that can add adapters serve a plain model as well
    servers = [server for server in _LAUNCHED.get(needs, ()) if server.is_running]
    if len(servers) < config.launch:
        for server in servers:
            server.close()
        python = _python(Path(config.environment))
        folder = WeightsFolder(config.directory)
        _FOLDERS.append(folder)
        model = folder.write(policy, "start", weights)
        logs = Path(tempfile.mkdtemp(prefix="groupwise-vllm-"))
        ports = _free_ports(config.launch)
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


def _python(environment: Path) -> Path:
    python = environment / "bin" / "python"
    if not python.exists():
        raise EngineError(
            f"engine.environment = '{environment}' is no virtual environment (it has no bin/python): `make vllm` makes "
            ".venv-vllm with vLLM's build for processors; for a GPU install vLLM in one and name it"
        )
    return python.absolute()


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


def _environment() -> dict[str, str]:
    """This process's, with the control routes opened, and without what asks a hub or takes a core for itself alone."""
    changed = {
        "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    }  # fmt: skip
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | changed


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "nothing")
