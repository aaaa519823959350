"""Facts of a machine for a bug report: `groupwise doctor --environment`. A fact that fails says so in its place."""

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.runs.directory import MISSING, environment, version_of

TIERS = ("bubblewrap", "landlock")  # tiers of the sandbox that a machine has or has not; `remote` is somebody else's
_FORK_SERVER_S = 10.0


def surroundings() -> dict[str, Any]:
    """Return versions, processor, threads, torch, cards, sandbox tiers and the fork server; takes a few seconds."""
    build = _or_why_not(torch_build)  # first: the threads below are torch's
    facts = environment()
    versions = {**facts.pop("versions"), **dependencies()}
    return {
        **facts, "torch": build, "sandbox": {tier: _or_why_not(partial(sandbox_tier, tier)) for tier in TIERS},
        "fork_server": _or_why_not(fork_server),
        "versions": {name: version for name, version in versions.items() if version != MISSING},
        "not_installed": [name for name, version in versions.items() if version == MISSING],
    }  # fmt: skip


def _or_why_not(find: Callable[[], Any]) -> Any:
    try:
        return find()
    except (GroupwiseError, ImportError, OSError, AttributeError) as error:  # a system lacks a module or a call
        return f"no: {error}" if isinstance(error, GroupwiseError) else f"no: {type(error).__name__}: {error}"


def dependencies() -> dict[str, str]:
    """Return the versions of what the package requires, extras included; `MISSING` where there is none."""
    required = [] if version_of("groupwise") == MISSING else metadata.requires("groupwise") or []
    names = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in required} - {"groupwise"}
    return {name: version_of(name) for name in sorted(names)}


def torch_build() -> dict[str, Any]:
    """Return the version of torch, its build and the cards that it sees."""
    import torch

    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
        "instructions": torch.backends.cpu.get_cpu_capability(), "interop_threads": torch.get_num_interop_threads(),
        "cards": [f"{card.name}, {card.total_memory >> 20} MiB, sm_{card.major}{card.minor}" for card in cards],
    }  # fmt: skip


def sandbox_tier(tier: str) -> str:
    """`holds` where the sandbox of a tier refuses everything that its self-test tries. Raises SandboxError."""
    from groupwise.sandbox.base import SandboxConfig
    from groupwise.sandbox.opening import open_sandbox

    with open_sandbox(SandboxConfig.model_validate({"tier": tier})):
        return "holds"


def fork_server() -> str:
    """`works` where a worker is forked and answers, as verifiers need it; else what became of it."""
    if not hasattr(os, "fork"):
        return f"no: {sys.platform} has no fork"
    from groupwise.verifiers.workers import WorkerPool

    pool = WorkerPool("builtins:len")
    try:
        reply = pool.call("abc", _FORK_SERVER_S)
    finally:
        pool.close()
    return "works" if reply.value == len("abc") else f"no: {reply.status} {reply.evidence}"
