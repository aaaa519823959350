"""Versions and machine below a run. Nothing here needs what only Linux and macOS have: a bug report needs no more."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """Versions and machine below the run; recorded, never read back."""
    packages: Sequence[str] = ("groupwise", "torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    torch = sys.modules.get("torch")
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads() if torch else None,
        "gpu": torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None,
        "commit": _commit(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    names = [
        line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """Commit of the package's own checkout, with `+changes` when files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10, check=True
        )
        status = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+changes" if status.stdout.strip() else "")
