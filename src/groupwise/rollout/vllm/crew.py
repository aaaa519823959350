"""The servers at work: errands (requests to a server) run in threads, and one thread decides what follows from them.

Among ranks the first one's crew looks after the servers; the others' crews only ask them, and read what the canary has
proven to the first.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from groupwise.errors import EngineError, GroupwiseError
from groupwise.ranks.group import RANKS
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import Proof, judge
from groupwise.rollout.vllm.fleet import Event, Fleet, State
from groupwise.rollout.vllm.loading import Asker, Weights, load
from groupwise.rollout.vllm.server import Server, Unreachable
from groupwise.rollout.vllm.wire import ForeignWeights
from groupwise.runs.progress import tell

PROBE_EVERY_S = 5.0
"""Seconds between two probes of a dead server."""
SUSPECT_S = 60.0
"""Longest time for a single token of a server of which a request failed."""
TELL_S = 8.0
"""Seconds after which servers that are waited for are named, and between the next times."""
LOOK_S = 0.5
"""Seconds without an outcome before the states are looked at again."""


Outcome = tuple[Any, Any]
"""An errand, and what its call returned or raised."""


class Errands:
    """Calls in threads, whose outcomes are waited for in one place."""

    def __init__(self) -> None:
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def begin(self, what: Any, call: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                result = call()
            except Exception as error:
                result = error
            self._outcomes.put((what, result))

        threading.Thread(target=run, daemon=True).start()

    def next(self, seconds: float) -> Outcome | None:
        try:
            return self._outcomes.get(timeout=seconds)
        except Empty:
            return None


class Care(NamedTuple):
    """An errand that looks after a server: a probe, or new weights."""

    server: str
    name: str


class Crew:
    """Servers, what is known of them, and what they must have."""

    def __init__(
        self, servers: Sequence[Server], asker: Asker, revive: Callable[[str], bool] = lambda address: False,
        contexts: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.contexts = contexts  # Most tokens of a prompt and its completion, of the servers that tell
        self.servers = {server.address: server for server in servers}
        self.fleet = Fleet(self.servers)
        self.asker, self._revive, self._told = asker, revive, 0.0
        self.errands = Errands()
        self.weights: Weights | None = None
        self.proofs: dict[str, Proof] = {}
        self.last_words: dict[str, str] = {}
        self._cared: set[str] = set()
        self._next_probe: dict[str, float] = {}

    def outdate(self, weights: Weights) -> None:
        self.weights, self.proofs = weights, {}
        for server in self.servers:
            self.fleet.learn(server, Event.OUTDATED)
            self._next_probe[server] = 0.0

    def adopt(self, states: Mapping[str, State]) -> None:
        """Take the first rank's word for what the servers are, which has just looked at all of them."""
        for server, state in states.items():
            events = (Event.ALIVE, Event.PROVEN) if state is State.HEALTHY else (Event.SILENT, Event.SILENT)
            for event in events:
                self.fleet.learn(server, event)

    def wait(self, patience_s: float) -> dict[str, State]:
        """Wait until every living server, and at least one, has proven the weights; returns their states."""
        assert self.weights is not None
        awaited, end = set(self.fleet.having(State.STALE)), 0.0
        while awaited or not self.fleet.having(State.HEALTHY):
            if awaited:
                end = monotonic() + patience_s
            elif monotonic() > end:
                raise self.nobody(patience_s)
            self.tell_waiting(0.0 if awaited else patience_s - (end - monotonic()), patience_s)
            care = self.look_after(LOOK_S)
            if care and care.name == self.weights.name:
                awaited.discard(care.server)
        return dict(self.fleet.states)

    def look_after(self, seconds: float) -> Care | None:
        self.tend()
        what, result = self.errands.next(seconds) or (None, None)
        if not isinstance(what, Care):
            return None
        self.cared(what, result)
        return what

    def nobody(self, patience_s: float) -> EngineError:
        return EngineError(
            f"no server has been healthy for {patience_s:g} s (engine.patience_s); the last that was heard: "
            f"{self._heard()}"
        )

    def _heard(self) -> str:
        return "; ".join(f"{server}: {why}" for server, why in self.last_words.items()) or "nothing"

    def tell_waiting(self, waited_s: float, patience_s: float) -> None:
        """Name the servers that are waited for, now and then."""
        if waited_s >= TELL_S and monotonic() - self._told >= TELL_S:
            self._told = monotonic()
            servers = ", ".join(self.servers)
            tell(f"waiting for {servers}, {waited_s:.0f} of {patience_s:g} s (engine.patience_s): {self._heard()}")

    def tend(self) -> None:
        for address in self.servers.keys() - self._cared:
            state = self.fleet.states[address]
            if state is State.STALE and RANKS.is_first:
                RANKS.post(address, "")
                self._care(address, partial(load, asker=self.asker))
            elif state is State.SUSPECT:
                self._care(address, self._probe)
            elif state is not State.HEALTHY and monotonic() >= self._next_probe.get(address, 0.0):
                self._next_probe[address] = monotonic() + PROBE_EVERY_S
                self._care(address, self._look if state is State.DEAD else self._read_proof)

    def _care(self, address: str, call: Callable[[Server, Weights], Any]) -> None:
        weights = self.weights
        assert weights is not None
        self._cared.add(address)
        server = self.servers[address]
        self.errands.begin(Care(address, weights.name), lambda: call(server, weights))

    def _probe(self, server: Server, weights: Weights) -> Event:
        one = SamplingConfig(max_tokens=1)
        try:
            weights.asker(self.asker).sample(server, (0,), 0, one, weights.label, weights.name, SUSPECT_S)
        except ForeignWeights:
            return Event.FOREIGN
        except Unreachable:
            return Event.SILENT
        return Event.ALIVE

    def _read_proof(self, server: Server, weights: Weights) -> Event:
        """Check that the server has the weights, and that the first rank has seen its canary since it got them."""
        event = self._probe(server, weights)
        proven = event is Event.ALIVE and RANKS.posted(server.address) == weights.name
        return Event.PROVEN if proven else event

    def _look(self, server: Server, weights: Weights) -> Event:
        self._revive(server.address)
        return Event.SILENT if server.trouble() else Event.ALIVE

    def cared(self, care: Care, result: Any) -> None:
        """Learn what became of a probe, or of new weights, which the canary judges here."""
        self._cared.discard(care.server)
        if isinstance(result, Unreachable):
            self.last_words[care.server] = str(result)
            self.fleet.learn(care.server, Event.FAILED)
        elif isinstance(result, Exception):
            raise result if isinstance(result, GroupwiseError) else EngineError(f"{care.server}: {result!r}")
        elif isinstance(result, Event):
            self.fleet.learn(care.server, result)
        elif self.weights is not None and care.name == self.weights.name:
            self.proofs[care.server] = judge(result, self.weights.canary, care.server)
            RANKS.post(care.server, care.name)
            self.fleet.learn(care.server, Event.PROVEN)
