"""An engine that keeps what it has sampled, so that a killed evaluation samples no prompt twice."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from groupwise.errors import DataError
from groupwise.models.policy import Policy
from groupwise.rollout.engine import Engine, OnFinished, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.ledger import LineFile, Lines
from groupwise.types import FinishReason


class KeptEngine:
    """Asks another engine for what its file does not hold yet; each finished prompt is a line, written at once."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine, self._file = engine, LineFile(path)
        self.seconds = 0.0
        """Time in which the lines were sampled, before and now."""
        self._kept: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Sampled]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file.truncate(path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0)  # a line that a kill has cut
        for number, line in Lines(path).read()[0]:
            try:
                samples = [
                    Sampled(
                        np.array(sample["token_ids"], np.int64),
                        np.array(sample["logprobs"], np.float32),
                        None if sample["entropy"] is None else np.array(sample["entropy"], np.float32),
                        FinishReason(sample["finish_reason"]),
                    )
                    for sample in line["samples"]
                ]
                self.seconds += line["seconds"]
                self._kept[tuple(line["prompt"]), tuple(line["keys"])] = samples
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(f"{path}:{number} is no line of samples: {error!r}; delete the file") from None

    @property
    def version(self) -> int:
        return self._engine.version

    def __len__(self) -> int:
        return len(self._kept)

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        open_requests, newest = [], time.perf_counter()
        for index, request in enumerate(requests):
            if (samples := self._kept.get((request.token_ids, request.keys))) is None:
                open_requests.append(index)
            else:
                on_finished(index, samples)

        def finished(place: int, samples: list[Sampled]) -> None:
            nonlocal newest
            request, now = requests[open_requests[place]], time.perf_counter()
            line = {"prompt": request.token_ids, "keys": request.keys, "seconds": now - newest}
            written = [
                {
                    "token_ids": sample.token_ids.tolist(),
                    "logprobs": sample.logprobs.tolist(),
                    "entropy": None if sample.entropy is None else sample.entropy.tolist(),
                    "finish_reason": str(sample.finish_reason),
                }
                for sample in samples
            ]
            self._file.append(line | {"samples": written})
            self.seconds, newest = self.seconds + now - newest, now
            on_finished(open_requests[place], samples)

        self._engine.generate([requests[index] for index in open_requests], sampling, finished)

    def publish(self, policy: Policy, version: int) -> None:
        self._engine.publish(policy, version)
