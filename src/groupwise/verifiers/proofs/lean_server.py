"""A Lean server, asked as the Kimina Lean server is.

`POST {url}/verify` with `{"codes": [{"custom_id": "...", "proof": "<file>"}], "timeout": 30}` is answered by
`{"results": [{"custom_id": "...", "error": null, "response": {"messages": [{"severity": "info", "data": "..."}]}}]}`.
An `error` that says "timed out" means that the proof was too slow; any other is the server's failure.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

from groupwise.types import Outcome
from groupwise.verifiers.base import Finding
from groupwise.verifiers.judge.post import OversizedError, post
from groupwise.verifiers.proofs.config import PATIENCE, LeanConfig
from groupwise.verifiers.proofs.lean_reply import Reply, read_message


class LeanServer:
    """Sends every file in a request of its own, at most `num_workers` at a time."""

    def __init__(self, config: LeanConfig, num_workers: int) -> None:
        self._config, self._num_workers = config, num_workers

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        """One reply per file, in the same order."""
        with ThreadPoolExecutor(self._num_workers) as threads:
            return list(threads.map(self._compile, sources))

    def close(self) -> None:
        """Nothing stays open between requests."""

    def _compile(self, source: str) -> Reply:
        seconds, name = self._config.timeout_s, hashlib.sha256(source.encode()).hexdigest()[:32]
        body = {"codes": [{"custom_id": name, "proof": source}], "timeout": math.ceil(seconds)}
        url, headers = f"{self._config.lean_url.rstrip('/')}/verify", {"Content-Type": "application/json"}
        try:
            response = post(url, json.dumps(body).encode(), headers, PATIENCE * seconds)
        except TimeoutError:
            return Finding(Outcome.TIMEOUT, f"the Lean server did not answer within {PATIENCE * seconds:g} s")
        except (OSError, HTTPException, ValueError, OversizedError) as error:
            return _failed(f"{type(error).__name__}: {error}")
        if response.status != 200:
            return _failed(f"HTTP status {response.status}: {response.body[:100]!r}")
        return _read(response.body, name)


def _read(body: bytes, name: str) -> Reply:
    try:
        (result,) = json.loads(body)["results"]
        if result["custom_id"] != name:
            return _failed(f"it answered {result['custom_id']!r:.60}, which is not what was asked")
        if error := result.get("error"):
            return Finding(Outcome.WRONG, f"Lean: {error:.200}") if "timed out" in error else _failed(f"{error:.200}")
        return tuple(map(read_message, result["response"].get("messages") or ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _failed(f"no answer of the protocol ({type(error).__name__}): {body[:100]!r}")


def _failed(evidence: str) -> Finding:
    return Finding(Outcome.CRASHED, f"the Lean server failed: {evidence}")
