"""The fleet: what is known of each server, and which completion each of them owes. No I/O, no clock, no thread.

    healthy --failed, silent--> suspect --silent--> dead --alive--> stale --proven--> healthy
    healthy, suspect --foreign, outdated--> stale        stale --failed, silent--> dead

A server comes back from the dead only through `stale`: it gets the weights of the day and passes the canary first.
Requests that fail make a server suspect, however many do: they fail together where connections break, and what else it
owes may still come. Only the probe says that it is dead.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """The state of a server."""

    HEALTHY = "healthy"
    """It has the weights of the day, which the canary has proven: it gets requests."""
    SUSPECT = "suspect"
    """A request found no answer: it gets no more until a probe tells."""
    DEAD = "dead"
    """It does not answer. What it owed is asked of others."""
    STALE = "stale"
    """It answers, with weights that nobody has proven."""


class Event(StrEnum):
    """An event that changes the state of a server."""

    ANSWERED = "answered"
    """A request was answered as it must be, from the weights of the day."""
    FAILED = "failed"
    """A request found no answer: no connection, an error of the server, or the deadline."""
    FOREIGN = "foreign"
    """An answer or a probe came from other weights than those of the day: somebody has started the server anew."""
    ALIVE = "alive"
    """A probe was answered from the weights of the day."""
    SILENT = "silent"
    """A probe was not answered."""
    OUTDATED = "outdated"
    """There are newer weights."""
    PROVEN = "proven"
    """It has loaded the weights of the day, and the canary says so."""


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
    """Its number among all attempts of a fleet."""
    server: str
    task: int
    """The completion's number among those that are wanted."""


class Fleet:
    """Servers, the completions that are wanted, and who owes which.

    A task is in exactly one place: waiting, owed by one server, or done. `settle` says of an attempt's outcome whether
    it counts; an attempt whose server has died or become stale meanwhile does not, so nothing is ever counted twice.
    """

    def __init__(self, servers: Iterable[str], max_live: int = 1) -> None:
        """A fleet whose servers are all stale.

        Args:
            servers: their addresses.
            max_live: most completions that are owed at one time.
        """
        self.states = dict.fromkeys(servers, State.STALE)
        self.max_live = max_live
        self.waiting: deque[int] = deque()
        self.done: set[int] = set()
        self.tries: Counter[int] = Counter()
        """Attempts at each task so far."""
        self.reissued = 0
        """Attempts that came to nothing."""
        self._owed: dict[int, Attempt] = {}
        self._next = 0

    def begin(self, num_tasks: int) -> None:
        """Want completions 0 .. num_tasks - 1; what was wanted before is forgotten."""
        self.waiting, self._owed = deque(range(num_tasks)), {}
        self.done, self.tries, self.reissued = set(), Counter(), 0

    @property
    def owed(self) -> Sequence[Attempt]:
        """Attempts under way that count."""
        return tuple(self._owed.values())

    @property
    def is_idle(self) -> bool:
        """True where nothing is waited for or owed."""
        return not self.waiting and not self._owed

    def having(self, *states: State) -> list[str]:
        """Servers in one of the states."""
        return [server for server, state in self.states.items() if state in states]

    def next(self) -> Attempt | None:
        """The next completion to ask for, of the healthy server that owes least; None where nothing can be asked."""
        healthy = self.having(State.HEALTHY)
        if not self.waiting or not healthy or len(self._owed) >= self.max_live:
            return None
        load = Counter(attempt.server for attempt in self._owed.values())
        attempt = Attempt(self._next, min(healthy, key=lambda server: load[server]), self.waiting.popleft())
        self._next += 1
        self._owed[attempt.number] = attempt
        self.tries[attempt.task] += 1
        return attempt

    def settle(self, attempt: Attempt, event: Event) -> bool:
        """Learn what became of an attempt; True where it has done its task.

        Anything but `answered` puts the task back; so does what is learnt of the server for all that it owes.
        """
        counts = self._owed.pop(attempt.number, None) is not None
        if counts and event is Event.ANSWERED:
            self.done.add(attempt.task)
            return True
        if counts:
            self._put_back(attempt)
            self.learn(attempt.server, event)
        return False

    def drop(self, attempt: Attempt) -> None:
        """Ask again for a completion that came back without its end (an abort), which says nothing of the server."""
        if self._owed.pop(attempt.number, None) is not None:
            self._put_back(attempt)

    def learn(self, server: str, event: Event) -> State:
        """Change a server's state by an event. What a dead or stale one owes is asked of others."""
        state = self.states[server] = TRANSITIONS[event][self.states[server]]
        if state in (State.DEAD, State.STALE):
            for attempt in [owed for owed in self._owed.values() if owed.server == server]:
                del self._owed[attempt.number]
                self._put_back(attempt)
        return state

    def _put_back(self, attempt: Attempt) -> None:
        self.waiting.appendleft(attempt.task)  # its group waits for it
        self.reissued += 1
