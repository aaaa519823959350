"""What a stage's result depends on, in 16 hex digits: its settings, its inputs, and the code that computes it."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import groupwise

COMPUTES = (
    "types.py", "randomness.py", "algorithms", "tasks", "verifiers", "sandbox", "models", "rollout", "training",
    "trainers", "pipeline",
)  # fmt: skip
JUDGES = tuple(f"evaluation/{name}.py" for name in ("behaviour", "metrics", "overthinking", "run_data"))
"""Parts of the package whose source fingerprints cover: of what is computed, and of what is said about completions."""


def fingerprint(settings: Mapping[str, Any], inputs: Mapping[str, str], code: str) -> str:
    """The fingerprint of work with these settings, on inputs with these fingerprints, by this code."""
    whole = json.dumps({"settings": settings, "inputs": dict(inputs), "code": code}, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@lru_cache
def code_version(parts: tuple[str, ...] = COMPUTES) -> str:
    """16 hex digits of the source of parts of the package, so that changed code is not taken for the same."""
    root = Path(groupwise.__file__).parent
    digest = hashlib.sha256()
    for part in parts:
        path = root / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(root)}:{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
