"""The fleet's states and its books: nothing is lost, nothing is doubled, nobody comes back from the dead unproven."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groupwise.rollout.vllm.fleet import TRANSITIONS, Attempt, Event, Fleet, State

EVENTS = st.sampled_from(list(Event))
BAD = st.sampled_from([Event.FAILED, Event.FOREIGN])


def proven(*servers: str, max_live: int = 100) -> Fleet:
    fleet = Fleet(servers, max_live)
    for server in servers:
        fleet.learn(server, Event.PROVEN)
    return fleet


def test_every_event_is_answered_in_every_state() -> None:
    assert {event: set(table) for event, table in TRANSITIONS.items()} == {event: set(State) for event in Event}


@settings(max_examples=50)
@given(st.lists(EVENTS, max_size=12))
def test_only_the_canary_ends_what_death_or_newer_weights_began(events: list[Event]) -> None:
    fleet = proven("a")
    unproven = False
    for event in events:
        state = fleet.learn("a", event)
        unproven = (unproven or state in (State.DEAD, State.STALE)) and not (
            event is Event.PROVEN and state is State.HEALTHY
        )
        assert not (unproven and state is State.HEALTHY)


def test_the_life_of_a_server() -> None:
    fleet = proven("a")
    told = [
        (Event.FAILED, State.SUSPECT), (Event.ALIVE, State.HEALTHY), (Event.FAILED, State.SUSPECT),
        (Event.SILENT, State.DEAD), (Event.PROVEN, State.DEAD), (Event.ALIVE, State.STALE),
        (Event.ALIVE, State.STALE), (Event.PROVEN, State.HEALTHY), (Event.OUTDATED, State.STALE),
    ]  # fmt: skip
    for event, expected in told:
        assert fleet.learn("a", event) is expected


def test_a_dead_servers_requests_go_to_the_other() -> None:
    fleet = proven("a", "b")
    fleet.begin(4)
    asked = [fleet.next() for _ in range(4)]
    assert [attempt and (attempt.server, attempt.task) for attempt in asked] == [("a", 0), ("b", 1), ("a", 2), ("b", 3)]
    first = asked[0]
    assert first is not None
    assert not fleet.settle(first, Event.FAILED)
    assert fleet.states["a"] is State.SUSPECT
    assert [attempt.task for attempt in fleet.owed.values()] == [1, 2, 3]  # the other one may still be answered
    fleet.learn("a", Event.SILENT)
    assert [attempt.task for attempt in fleet.owed.values()] == [1, 3]
    again = [fleet.next(), fleet.next(), fleet.next()]
    assert [attempt and (attempt.server, attempt.task) for attempt in again] == [("b", 2), ("b", 0), None]
    assert fleet.reissued == 2


def test_requests_that_fail_together_do_not_kill_a_server_that_still_answers() -> None:
    fleet = proven("a")
    fleet.begin(5)
    asked = [attempt for _ in range(5) if (attempt := fleet.next())]
    for attempt in asked[:3]:
        fleet.settle(attempt, Event.FAILED)
    assert (fleet.states["a"], [attempt.task for attempt in fleet.owed.values()]) == (State.SUSPECT, [3, 4])
    assert fleet.settle(asked[3], Event.ANSWERED)
    assert fleet.learn("a", Event.ALIVE) is State.HEALTHY  # no weights, no canary: it never was away
    assert fleet.settle(asked[4], Event.ANSWERED)
    assert (fleet.reissued, sorted(fleet.waiting)) == (3, [0, 1, 2])


def test_an_answer_that_comes_after_its_servers_death_does_not_count() -> None:
    fleet = proven("a", "b")
    fleet.begin(1)
    late = fleet.next()
    assert late is not None
    fleet.learn("a", Event.SILENT)
    fleet.learn("a", Event.SILENT)
    assert not fleet.settle(late, Event.ANSWERED)
    again = fleet.next()
    assert (again.server, again.task) == ("b", 0)
    assert fleet.settle(again, Event.ANSWERED)
    assert not fleet.settle(again, Event.ANSWERED)
    assert (list(fleet.waiting), fleet.owed) == ([], {})


def test_an_abort_says_nothing_of_the_server() -> None:
    fleet = proven("a")
    fleet.begin(1)
    attempt = fleet.next()
    assert attempt is not None
    fleet.drop(attempt)
    assert fleet.states["a"] is State.HEALTHY
    assert (list(fleet.waiting), fleet.reissued, fleet.tries[0]) == ([0], 1, 1)


@pytest.mark.parametrize("state", [State.SUSPECT, State.DEAD, State.STALE])
def test_only_healthy_servers_are_asked(state: State) -> None:
    fleet = Fleet(["a"], 1)
    fleet.begin(1)
    fleet.states["a"] = state
    assert fleet.next() is None


def test_no_more_is_owed_than_allowed() -> None:
    fleet = proven("a", "b", max_live=3)
    fleet.begin(9)
    assert sum(fleet.next() is not None for _ in range(9)) == 3


class Steps(RuleBasedStateMachine):
    """Servers live, hang, die and come back in any order; the books are kept beside by hand."""

    @initialize(servers=st.integers(1, 3), tasks=st.integers(0, 8), max_live=st.integers(1, 5))
    def begin(self, servers: int, tasks: int, max_live: int) -> None:
        self.fleet = proven(*"abc"[:servers], max_live=max_live)
        self.fleet.begin(tasks)
        self.tasks, self.attempts, self.counted = tasks, list[Attempt](), list[int]()

    @rule()
    def ask(self) -> None:
        healthy = self.fleet.having(State.HEALTHY)
        attempt = self.fleet.next()
        if attempt:
            assert attempt.server in healthy
            self.attempts.append(attempt)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), event=st.one_of(st.just(Event.ANSWERED), BAD))
    def settle(self, data: st.DataObject, event: Event) -> None:
        attempt = data.draw(st.sampled_from(self.attempts))  # an outcome may come late, or twice
        if self.fleet.settle(attempt, event):
            assert event is Event.ANSWERED
            self.counted.append(attempt.task)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.fleet.drop(data.draw(st.sampled_from(self.attempts)))

    @rule(data=st.data(), event=EVENTS)
    def learn(self, data: st.DataObject, event: Event) -> None:
        self.fleet.learn(data.draw(st.sampled_from(list(self.fleet.states))), event)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        places = [*self.fleet.waiting, *(attempt.task for attempt in self.fleet.owed.values()), *self.fleet.done]
        assert sorted(places) == list(range(self.tasks))
        assert sorted(self.counted) == sorted(self.fleet.done)

    @invariant()
    def nothing_is_owed_by_the_dead_or_the_stale(self) -> None:
        assert all(self.fleet.states[a.server] in (State.HEALTHY, State.SUSPECT) for a in self.fleet.owed.values())
        assert len(self.fleet.owed) <= self.fleet.max_live

    def teardown(self) -> None:
        """With one server proven at last, the rest is done."""
        if not hasattr(self, "fleet"):
            return
        fleet = self.fleet
        fleet.learn("a", Event.OUTDATED)
        fleet.learn("a", Event.ALIVE)
        fleet.learn("a", Event.PROVEN)
        for attempt in [owed for owed in fleet.owed.values() if owed.server != "a"]:
            fleet.settle(attempt, Event.ANSWERED)
        while attempt := fleet.next():
            assert fleet.settle(attempt, Event.ANSWERED)
        assert (list(fleet.waiting), fleet.owed) == ([], {})
        assert fleet.done == set(range(self.tasks))


TestSteps = Steps.TestCase
TestSteps.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
