"""Tier `remote`: an HTTP executor at `url`, asked by POST with JSON; bytes travel as base64.

Request: {"runs": [[program], [tester, solver], ...]}. A run of one program is run alone; of two, each one's standard
output is the other's standard input, in a sandbox each. A program has `source` or `command` (list), `stdin`, `files`
(name to content) and its limits `wall_s`, `cpu_s`, `memory_mb`, `max_processes`, `files_mb`, `output_kb`.
Reply: {"results": [[result], [result, result], ...]} in the same order. A result has `status` (exited, signalled,
timeout, flooded, failed), `exit_code` (minus the signal's number, or null), `stdout`, `stderr`, `seconds`, `evidence`.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from groupwise.sandbox.base import OUTPUT_KB, Pair, Program, RunResult, Sandbox, SandboxConfig, Status

_SPARE_S = 30.0  # seconds a request may take beside the deadlines of its programs
_MAX_REPLY = 1 << 28


class RemoteSandbox(Sandbox):
    """Programs run elsewhere. Where the executor does not answer as agreed, their status is FAILED."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy of the environment

    def run_many(self, programs: Sequence[Program]) -> list[RunResult]:
        return [results[0] for results in self._post([(program,) for program in programs])]

    def run_pairs(self, pairs: Sequence[Pair]) -> list[tuple[RunResult, RunResult]]:
        return [(results[0], results[1]) for results in self._post(pairs)]

    def _post(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        body = {"runs": [[self._encode(program) for program in run] for run in runs]}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.config.url, json.dumps(body).encode("ascii"), headers)
        seconds = _SPARE_S + sum(max(program.limits(self.config).wall_s for program in run) for run in runs)
        try:
            with self._opener.open(request, timeout=seconds) as response:
                reply = json.loads(response.read(_MAX_REPLY))
            results = [
                [
                    RunResult(
                        Status(end["status"]),
                        None if end["exit_code"] is None else int(end["exit_code"]),
                        base64.b64decode(end["stdout"], validate=True),
                        base64.b64decode(end["stderr"], validate=True),
                        float(end["seconds"]),
                        str(end["evidence"]),
                    )
                    for end in run
                ]
                for run in reply["results"]
            ]
            if [len(run) for run in results] != [len(run) for run in runs]:
                raise ValueError("the number of results is not that of the programs")
            return results
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            failed = RunResult(Status.FAILED, None, b"", b"", 0.0, f"{self.config.url}: {error!r}"[:400])
            return [[failed] * len(run) for run in runs]

    def _encode(self, program: Program) -> dict[str, Any]:
        return {
            "source": program.source,
            "command": list(program.command),
            "stdin": _base64(program.stdin),
            "files": {name: _base64(content) for name, content in program.files.items()},
            **program.limits(self.config)._asdict(),
            "output_kb": OUTPUT_KB,
        }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
