"""One step off: the next step's completions are sampled while the trainer trains on this one's.

They come from the weights that this step begins with, so they are one step old when they are trained on. Nothing is
sampled across new weights: whoever publishes waits until the completions are there.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from groupwise.randomness import Draws
from groupwise.types import Problem

T = TypeVar("T")


class Wanted(NamedTuple):
    """What a step will sample."""

    problems: tuple[str, ...]
    """Ids, in order."""
    draws: Draws

    @classmethod
    def of(cls, problems: Sequence[Problem], draws: Draws) -> "Wanted":
        return cls(tuple(problem.id for problem in problems), draws)


class Ahead(Generic[T]):
    """What the next step will find."""

    def __init__(self) -> None:
        self._plan: tuple[Sequence[Problem], Draws] | None = None
        self._begun: tuple[Wanted, Future[T]] | None = None

    def plan(self, problems: Sequence[Problem], draws: Draws) -> None:
        """Sample these as soon as this step has its own completions."""
        self._plan = problems, draws

    def begin(self, sample: Callable[[Sequence[Problem], Draws], T]) -> None:
        """Begin what is planned, if anything is; it computes nothing with the model's weights."""
        if self._plan is not None:
            problems, draws = self._plan
            self._plan, self._begun = None, (Wanted.of(problems, draws), _begun(lambda: sample(problems, draws)))

    def take(self, problems: Sequence[Problem], draws: Draws) -> T | None:
        """What was sampled for this step; None where it was not.

        Raises:
            Exception: what the sampling raised.
        """
        if self._begun is None or self._begun[0] != Wanted.of(problems, draws):
            return None
        (_, future), self._begun = self._begun, None
        return future.result()

    def wait(self) -> None:
        """Until nothing is being sampled.

        Raises:
            Exception: what the sampling raised.
        """
        if self._begun is not None:
            self._begun[1].result()

    def drop(self) -> None:
        """Forget what was sampled: it will be sampled again, from newer weights."""
        self.wait()
        self._begun = None


def _begun(call: Callable[[], T]) -> "Future[T]":
    """A call in a thread of its own, which does not keep a program that has failed from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="ahead", daemon=True).start()
    return future
