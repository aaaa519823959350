"""Scoring that overlaps generation: finished groups are verified in a thread while others are still being sampled."""

import queue
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from groupwise.errors import InvariantError
from groupwise.types import Group, ScoredGroup
from groupwise.verifiers.base import Verifier
from groupwise.verifiers.score import score

CLOSE_S = 1.0
"""Seconds that closing waits for the verdicts in progress; the thread then ends by itself, or with the process."""


class OverlappedScoring:
    """Scores the groups of one step in a background thread.

        with OverlappedScoring(verifier, max_tokens) as scoring:
            groups = collect(...)  # calls scoring.submit(group) as each group finishes
            scored = scoring.result(groups)

    The verdicts are those of `score(groups, verifier, max_tokens)`. Leaving the block early (an interrupt, an error)
    drops what is not yet verified.
    """

    def __init__(self, verifier: Verifier, max_tokens: int | None = None) -> None:
        self._verifier, self._max_tokens = verifier, max_tokens
        self._arrived: queue.SimpleQueue[Group | None] = queue.SimpleQueue()  # None: no more will come
        self._scored: dict[int, ScoredGroup] = {}  # by identity: a group holds arrays and has no hash
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)
        self._thread.start()

    def submit(self, group: Group) -> None:
        """Hand over a finished group; returns at once."""
        self._arrived.put(group)

    def result(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        """Wait for all verdicts; one scored group per group, in the same order. Call it once, after the last group.

        Raises:
            InvariantError: a group was never submitted.
            BaseException: what the verifier raised.
        """
        self._arrived.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        ids = [group.prompt.problem.id for group in groups if id(group) not in self._scored]
        if ids:
            raise InvariantError(f"no verdicts for the groups of {', '.join(ids[:3])}: they were never submitted")
        return [self._scored[id(group)] for group in groups]

    def close(self) -> None:
        """Drop what is not yet verified and end the thread."""
        self._is_closed = True
        self._arrived.put(None)
        self._thread.join(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        try:
            while (batch := self._next())[0] is not None and not self._is_closed:
                groups = [group for group in batch if group is not None]
                scored = score(groups, self._verifier, self._max_tokens)
                self._scored |= {id(result.group): result for result in scored}
                if batch[-1] is None:
                    return
        except BaseException as error:  # raised again where the result is asked for
            self._error = error

    def _next(self) -> list[Group | None]:
        """The groups that have arrived, at least one."""
        batch = [self._arrived.get()]
        while batch[-1] is not None and not self._arrived.empty():
            batch.append(self._arrived.get())
        return batch
