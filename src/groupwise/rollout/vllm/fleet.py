"""The fleet: what is known of each server, and which completion each of them owes. No I/O, no clock, no thread.

    healthy --failed, silent--> suspect --silent--> dead --alive--> stale --proven--> healthy
    healthy, suspect --foreign, outdated--> stale        stale --failed, silent--> dead

A server comes back from the dead only through `stale`. Requests that fail make a server suspect; only the probe says
that it is dead.
"""

from collections import Counter, deque
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """The state of a server."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """A request found no answer: it gets no more until a probe tells."""
    DEAD = "dead"
    STALE = "stale"
    """It answers, with weights that nobody has proven."""


class Event(StrEnum):
    """An event that changes the state of a server."""

    ANSWERED = "answered"
    FAILED = "failed"
    FOREIGN = "foreign"
    """An answer or a probe came from other weights than those of the day: somebody has started the server anew."""
    ALIVE = "alive"
    SILENT = "silent"
    OUTDATED = "outdated"
    PROVEN = "proven"


_H, _S, _D, _T = State.HEALTHY, State.SUSPECT, State.DEAD, State.STALE
TRANSITIONS: dict[Event, dict[State, State]] = {
    Event.ANSWERED: {_H: _H, _S: _S, _D: _D, _T: _T},
    Event.FAILED: {_H: _S, _S: _S, _D: _D, _T: _D},
    Event.FOREIGN: {_H: _T, _S: _T, _D: _T, _T: _T},
    Event.ALIVE: {_H: _H, _S: _H, _D: _T, _T: _T},
    Event.SILENT: {_H: _S, _S: _D, _D: _D, _T: _D},
    Event.OUTDATED: {_H: _T, _S: _T, _D: _D, _T: _T},
    Event.PROVEN: {_H: _H, _S: _S, _D: _D, _T: _H},  # of a server that has died since, it says nothing
}
"""From each state, by what is learnt."""


class Attempt(NamedTuple):
    """One completion that one server was asked for."""

    number: int
    server: str
    task: int


class Fleet:
    """Servers, the completions that are wanted, and who owes which.

    A task is in exactly one place: waiting, owed by one server, or done. An attempt whose server has died or become
    stale meanwhile does not count, so nothing is ever counted twice.
    """

    def __init__(self, servers: Iterable[str], max_live: int = 1) -> None:
        self.states = dict.fromkeys(servers, State.STALE)
        self.max_live = max_live
        self.waiting: deque[int] = deque()
        self.done: set[int] = set()
        self.tries: Counter[int] = Counter()
        self.reissued = 0
        self.owed: dict[int, Attempt] = {}
        self._next = 0

    def begin(self, num_tasks: int) -> None:
        self.waiting, self.owed = deque(range(num_tasks)), {}
        self.done, self.tries, self.reissued = set(), Counter(), 0

    def having(self, *states: State) -> list[str]:
        return [server for server, state in self.states.items() if state in states]

    def next(self) -> Attempt | None:
        healthy = self.having(State.HEALTHY)
        if not self.waiting or not healthy or len(self.owed) >= self.max_live:
            return None
        load = Counter(attempt.server for attempt in self.owed.values())
        attempt = Attempt(self._next, min(healthy, key=lambda server: load[server]), self.waiting.popleft())
        self._next += 1
        self.owed[attempt.number] = attempt
        self.tries[attempt.task] += 1
        return attempt

    def settle(self, attempt: Attempt, event: Event) -> bool:
        """Learn what became of an attempt; True where it has done its task, which else waits again."""
        counts = self.owed.pop(attempt.number, None) is not None
        if counts and event is Event.ANSWERED:
            self.done.add(attempt.task)
            return True
        if counts:
            self._put_back(attempt)
            self.learn(attempt.server, event)
        return False

    def drop(self, attempt: Attempt) -> None:
        if self.owed.pop(attempt.number, None) is not None:
            self._put_back(attempt)

    def learn(self, server: str, event: Event) -> State:
        state = self.states[server] = TRANSITIONS[event][self.states[server]]
        if state in (State.DEAD, State.STALE):
            for attempt in [owed for owed in self.owed.values() if owed.server == server]:
                del self.owed[attempt.number]
                self._put_back(attempt)
        return state

    def _put_back(self, attempt: Attempt) -> None:
        self.waiting.appendleft(attempt.task)  # its group waits for it
        self.reissued += 1
