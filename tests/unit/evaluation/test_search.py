"""Search over steps: what it must equal where nothing is chosen, and what it chooses where something is."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError, ModelError
from groupwise.evaluation.test_time.pool import Scored, Scorer, Told
from groupwise.evaluation.test_time.search import Ends, SearchConfig, Searcher, Slot
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Template
from groupwise.types import FinishReason, Outcome, Problem, Verdict
from groupwise.verifiers import Request as Judged
from groupwise.verifiers import Verifier

STEP = r"[\x00-\x3f]"
"""A fourth of all bytes ends a step."""
PROBLEMS = [Problem("a", "What?", ""), Problem("b", "And then what?", "")]
SAMPLING = SamplingConfig(max_tokens=24)
DRAWS = Draws(0, Purpose.TEST)
PLAIN = SearchConfig(slots=4, width=1, trees=1, lookahead=0, max_rounds=40, aggregate="last")


class Counted(Verifier):
    """Right is an even number of characters, which is the answer."""

    def verify_many(self, requests: Sequence[Judged]) -> list[Verdict]:
        sizes = [len(one.text) for one in requests]
        outcomes = [Outcome.WRONG if size % 2 else Outcome.CORRECT for size in sizes]
        return [Verdict(outcome, {}, "", str(size)) for outcome, size in zip(outcomes, sizes, strict=True)]


@dataclasses.dataclass(frozen=True)
class ByRule(Scorer):
    """A reward model that is a function of the steps."""

    rule: Callable[[tuple[str, ...]], float] = lambda steps: 0.5

    @classmethod
    def of(cls, rule: Callable[[tuple[str, ...]], float]) -> "ByRule":
        return cls(None, "a rule", "prm", STEP, "", 0, False, rule)  # type: ignore[arg-type]

    def texts(self, texts: Sequence[Told]) -> list[Scored]:
        return [Scored((self.rule(told.steps),) if told.steps else (), sum(map(len, told.steps))) for told in texts]


@pytest.fixture(scope="module")
def actors(tiny_policy: Callable[..., Policy]) -> Actors:
    policy = dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 20)))
    return Actors.of(policy, Template(), Counted())


@pytest.fixture
def search(actors: Actors) -> Callable[..., list[Ends]]:
    def run(rule: Any = lambda steps: 0.5, problems: Any = PROBLEMS, sampling: Any = SAMPLING, **dials: Any) -> Any:
        config = dataclasses.replace(PLAIN, **dials)
        return Searcher(actors, sampling, DRAWS, ByRule.of(rule), config).search(problems)

    return run


def ids(ends: Sequence[Ends]) -> list[list[list[int]]]:
    return [[c.token_ids.tolist() for c in one.group.group.completions] for one in ends]


@pytest.mark.parametrize("dials", [{}, {"slots": 1}, {"slots": 1, "width": 4}, {"lookahead": 2}, {"max_rounds": 2}])
def test_a_width_of_one_is_independent_samples(search: Any, actors: Actors, dials: dict[str, int]) -> None:
    found = search(rule=lambda steps: len(steps) / 99, **dials)
    sampled = sample_and_score(actors, PROBLEMS, dials.get("slots", 4), SAMPLING, DRAWS)
    assert ids(found) == [[c.token_ids.tolist() for c in one.group.completions] for one in sampled]
    for one, plain in zip(found, sampled, strict=True):
        assert [v.outcome for v in one.group.verdicts] == [v.outcome for v in plain.verdicts]
        for mine, its in zip(one.group.group.completions, plain.group.completions, strict=True):
            assert mine.finish_reason is its.finish_reason
            assert mine.text == its.text
            np.testing.assert_allclose(mine.sampling_logprobs, its.sampling_logprobs, atol=1e-4)
    if not dials.get("lookahead"):
        own = [sum(c.num_tokens for c in one.group.group.completions) for one in found]
        assert [one.spent.policy_tokens for one in found] == own
    assert dials.get("slots") or any(len(c) > 8 for one in ids(found) for c in one)  # some had several steps


def likes_a(steps: tuple[str, ...]) -> float:
    text = "".join(steps)
    return sum(ord(character) for character in text) % 97 / 97


@pytest.mark.parametrize("dials", [{"width": 2}, {"width": 2, "trees": 2}, {"width": 2, "lookahead": 1}])
def test_neither_the_batch_nor_other_problems_change_anything(search: Any, dials: dict[str, int]) -> None:
    together = search(likes_a, **dials)
    few = SAMPLING.model_copy(update={"max_live_completions": 3})
    assert ids(search(likes_a, sampling=few, **dials)) == ids(together)
    alone = [search(likes_a, problems=[problem], **dials)[0] for problem in PROBLEMS]
    assert ids(alone) == ids(together)
    assert [one.spent for one in alone] == [one.spent for one in together]


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_there_are_as_many_ends_as_slots_and_each_is_one(search: Any, slots: int) -> None:
    for one in search(likes_a, slots=slots, width=2):
        completions = one.group.group.completions
        assert [c.sample_index for c in completions] == list(range(slots))
        assert len(one.scored) == slots
        assert one.spent.policy_tokens >= max(len(c.token_ids) for c in completions)


def slots_of(scores: Sequence[float]) -> list[Slot]:
    return [Slot(str(number), 100 + number, score=score) for number, score in enumerate(scores)]


def branched(searcher: Searcher, slots: list[Slot], problem: str = "a", round_number: int = 1) -> list[Slot]:
    return searcher._branched(slots, problem, round_number)


@pytest.fixture
def searcher(actors: Actors) -> Searcher:
    config = dataclasses.replace(PLAIN, width=2, max_rounds=5)
    return Searcher(actors, SAMPLING, DRAWS, ByRule.of(lambda steps: 0.5), config)


def test_the_best_go_on(searcher: Searcher) -> None:
    after = branched(searcher, slots_of([0.1, 0.9, 0.5, 0.7]))
    assert [slot.path.partition("/")[0] for slot in after] == ["1", "1", "3", "3"]
    assert len({slot.key for slot in after}) == len({slot.path for slot in after}) == 4
    assert [slot.key for slot in after][::2] == [101, 103]  # the first continuation has its parent's draws
    assert branched(searcher, slots_of([0.1, 0.9]), round_number=6) == slots_of([0.1, 0.9])


def test_a_finished_slot_keeps_its_place(searcher: Searcher) -> None:
    slots = slots_of([0.0, 0.9, 0.5, 0.7])
    slots[0] = dataclasses.replace(slots[0], finish_reason=FinishReason.STOP)
    after = branched(searcher, slots)
    assert [slot.path.partition("/")[0] for slot in after] == ["0", "1", "1", "1"]


def test_equal_scores_are_a_uniform_choice(searcher: Searcher) -> None:
    chosen = Counter(
        branched(searcher, slots_of([0.5] * 4), f"problem {number}")[0].path.partition("/")[0] for number in range(2000)
    )
    assert sorted(chosen) == ["0", "1", "2", "3"]
    # each is first with probability 1/4: 500 of 2000, with a standard deviation of 19.4
    assert all(abs(count - 500) < 4 * 19.4 for count in chosen.values())


def test_trees_do_not_compete(searcher: Searcher) -> None:
    two = dataclasses.replace(searcher, config=dataclasses.replace(searcher.config, trees=2))
    planted = two._planted(0, PROBLEMS[0])
    assert [(slot.path, slot.tree) for slot in planted] == [("0", 0), ("1", 0), ("2", 1), ("3", 1)]
    assert [slot.key for slot in planted] == list(DRAWS.keys("a", 4))
    # the worst of all is the best of its tree, where it goes on; in one tree it would not
    scores = dict(zip("0123", (0.1, 0.2, 0.8, 0.9), strict=True))
    slots = [dataclasses.replace(slot, score=scores[slot.path]) for slot in planted]
    scored = [slots[:2], slots[2:]]
    assert [[slot.path[0] for slot in branched(two, slots)] for slots in scored] == [["1", "1"], ["3", "3"]]
    assert {slot.path[0] for slot in branched(two, [*scored[0], *scored[1]])} == {"2", "3"}


def likes_an_even_beginning(steps: tuple[str, ...]) -> float:
    return sum(ord(character) % 2 == 0 for character in steps[0]) / len(steps[0])


def test_a_higher_score_is_what_is_searched_for(search: Any) -> None:
    # the first step alone counts, so whatever goes on from the best of four has its score
    def mean(width: int) -> float:
        found = search(likes_an_even_beginning, problems, SamplingConfig(max_tokens=64), width=width, max_rounds=1)
        return float(np.mean([scored.steps[-1] for one in found for scored in one.scored if scored.steps]))

    problems = [Problem(f"p{number}", f"What is {number}?", "") for number in range(12)]
    assert mean(4) > mean(1)


def test_looking_ahead_costs_and_leaves_no_text(search: Any) -> None:
    plain, ahead = search(likes_a), search(likes_a, lookahead=1)
    assert ids(plain) == ids(ahead)
    assert all(b.spent.policy_tokens > a.spent.policy_tokens for a, b in zip(plain, ahead, strict=True))


def test_what_was_cut_off_has_no_score(search: Any) -> None:
    [one] = search(problems=PROBLEMS[:1], sampling=SamplingConfig(max_tokens=3))
    for completion, scored in zip(one.group.group.completions, one.scored, strict=True):
        assert bool(scored.steps) == (completion.finish_reason is FinishReason.STOP and len(completion.text) > 0)


def test_a_completion_goes_on_as_if_it_had_never_paused(actors: Actors) -> None:
    whole = generate(actors.policy, [Request((5, 6, 70), (11, 12))], SAMPLING)[0]
    for key, expected in zip((11, 12), whole, strict=True):
        begun: list[int] = []
        while not begun or (len(begun) < 24 and begun[-1] not in actors.policy.stop_ids):
            size = 1 + len(begun) % 3
            has_enough = partial(_is_as_long, size)
            request = Request((5, 6, 70, *begun), (key,), begun=len(begun), pause=has_enough)
            [[piece]] = generate(actors.policy, [request], SAMPLING)
            assert len(piece.token_ids) <= size
            begun += piece.token_ids.tolist()
        assert begun == expected.token_ids.tolist()


def _is_as_long(size: int, ids: Sequence[int]) -> bool:
    return len(ids) >= size


@pytest.mark.parametrize("begun", [-1, 3, 24, 25])
def test_what_cannot_go_on_is_named(actors: Actors, begun: int) -> None:
    tokens = (70,) * (3 if begun < 20 else 30)
    with pytest.raises(ConfigError, match="cannot go on"):
        generate(actors.policy, [Request(tokens, (1,), begun=begun)], SAMPLING)


def test_a_score_that_is_no_number_is_named(actors: Actors) -> None:
    class Broken:
        tokenizer, context_length, stop_ids = actors.policy.tokenizer, 256, frozenset[int]()

    scorer = Scorer(Broken(), "runs/prm", "prm", STEP, "", 0, False)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupwise.evaluation.test_time.pool.score_rows", lambda model, rows: [[0.5, float("nan")]])
        with pytest.raises(ModelError, match="'runs/prm' gives nan to a step of slot 3"):
            scorer.texts([Told("What?", ("1 ", "2 "), "slot 3 of a")])
