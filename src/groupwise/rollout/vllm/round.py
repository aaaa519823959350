"""One call of `generate`: every completion is asked for until it is there, whoever dies meanwhile."""

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from groupwise.errors import EngineError, GroupwiseError, InvariantError
from groupwise.randomness import key as key_of
from groupwise.rollout.engine import OnFinished, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.crew import LOOK_S, Care, Crew, Outcome
from groupwise.rollout.vllm.fleet import Attempt, Event, State
from groupwise.rollout.vllm.server import Unreachable
from groupwise.rollout.vllm.wire import ForeignWeights, Unfinished

MAX_TRIES = 10
"""How often one completion is asked for before it is taken for the reason why servers fail."""


class Deadlines(NamedTuple):
    """In seconds."""

    request_s: float
    patience_s: float


class Round:
    """The completions of some requests. A task is one completion; a group is told when all of its tasks are done."""

    def __init__(
        self, crew: Crew, requests: Sequence[Request], sampling: SamplingConfig, deadlines: Deadlines,
        on_finished: OnFinished,
    ) -> None:  # fmt: skip
        self.crew, self.requests, self.sampling = crew, requests, sampling
        self.deadlines, self.on_finished = deadlines, on_finished
        self.tasks = [(index, sample) for index, request in enumerate(requests) for sample in range(len(request.keys))]
        self.groups: list[dict[int, Sampled]] = [{} for _ in requests]

    def run(self) -> None:
        """Until every completion is there.

        Raises:
            EngineError: no server is left, an answer cannot be trusted, or a completion fails again and again.
            InvariantError: a server that came back has other weights than it was given.
        """
        fleet = self.crew.fleet
        fleet.begin(len(self.tasks))
        fleet.max_live = self.sampling.max_live_completions
        healthy_at = monotonic()
        while not fleet.is_idle:
            self.crew.tend()
            self._ask()
            self._hear()
            if fleet.having(State.HEALTHY, State.SUSPECT):
                healthy_at = monotonic()
            elif monotonic() - healthy_at > self.deadlines.patience_s:
                raise self.crew.nobody(self.deadlines.patience_s)
        if len(fleet.done) != len(self.tasks):
            raise InvariantError(
                f"{len(fleet.done)} of {len(self.tasks)} completions are there, and none is waited for"
            )

    def _ask(self) -> None:
        while (attempt := self.crew.fleet.next()) is not None:
            if self.crew.fleet.tries[attempt.task] > MAX_TRIES:
                words = self.crew.last_words.get(attempt.server, "each was ended before its end")
                raise EngineError(
                    f"a completion was asked for {MAX_TRIES} times and never came; the last time: {words}"
                )
            self._send(attempt)

    def _send(self, attempt: Attempt) -> None:
        crew, (index, sample) = self.crew, self.tasks[attempt.task]
        request, server, weights = self.requests[index], crew.servers[attempt.server], crew.weights
        assert weights is not None
        asker, label, name, key = weights.asker(crew.asker), weights.label, weights.name, request.keys[sample]
        if request.begun:  # a server draws from its seed's beginning, and those draws are behind it
            key = key_of("continued", key, request.begun)
        sampling = self.sampling.model_copy(update={"max_tokens": request.room(self.sampling)})
        crew.errands.begin(
            (self, attempt),
            lambda: asker.sample(
                server, request.token_ids, key, sampling, label, name, self.deadlines.request_s, request.stops
            ),
        )

    def _hear(self) -> None:
        outcome = self.crew.errands.next(LOOK_S)
        if outcome is None:
            return
        if isinstance(outcome.what, Care):
            self.crew.cared(outcome)
        elif outcome.what[0] is self:  # else it is from a round that was given up
            self._settle(outcome.what[1], outcome)

    def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        fleet, result = self.crew.fleet, outcome.result
        if isinstance(result, Sampled):
            if fleet.settle(attempt, Event.ANSWERED):
                self._keep(attempt.task, result)
        elif isinstance(result, Unfinished):
            fleet.drop(attempt)
        elif isinstance(result, ForeignWeights):
            self.crew.last_words[attempt.server] = f"it answered from {result}"
            fleet.settle(attempt, Event.FOREIGN)
        elif isinstance(result, Unreachable):
            self.crew.last_words[attempt.server] = str(result)
            fleet.settle(attempt, Event.FAILED)
        else:
            raise result if isinstance(result, GroupwiseError) else EngineError(f"{attempt.server}: {result!r}")

    def _keep(self, task: int, sampled: Sampled) -> None:
        index, sample = self.tasks[task]
        group = self.groups[index]
        group[sample] = sampled
        if len(group) == len(self.requests[index].keys):
            self.on_finished(index, [group[i] for i in range(len(group))])
