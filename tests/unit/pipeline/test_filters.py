from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.evaluation.behaviour import Behaviour
from groupwise.pipeline.filters import Filters, balanced, counts, keep, reason
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome

MakeRow = Callable[..., Row]
GOOD = "<think>2+2=4. 4+1=5.</think>\\boxed{5}"


@pytest.mark.parametrize(
    ("text", "changes", "filters", "expected"),
    [
        (GOOD, {}, {}, None),
        (GOOD, {"outcome": "wrong"}, {}, "not correct"),
        (GOOD, {"outcome": "wrong"}, {"correct": False}, None),
        (GOOD, {"outcome": "timeout"}, {"correct": False, "tags": False}, "verifier failed"),
        (GOOD, {"outcome": "crashed"}, {}, "verifier failed"),
        ("<think>2+3=5", {}, {}, "tags"),
        ("2+3=5 \\boxed{5}", {}, {}, "tags"),
        ("2+3=5 \\boxed{5}", {}, {"tags": False}, None),
        (GOOD + " and", {"finish_reason": "length"}, {}, "cut off"),
        (GOOD + " and", {"finish_reason": "length"}, {"tags": False}, None),
        ("<think>2+3=5. 好</think>\\boxed{5}", {}, {}, "mixed language"),
        ("<think>2+3=5. 好</think>\\boxed{5}", {"language": "zh"}, {}, None),
        ("<think>2+3=5. 好</think>\\boxed{5}", {}, {"one_language": False}, None),
        ("<think>2+3=5.</think>\\boxed{5}" + " so it is" * 12, {}, {}, "loop"),
        ("<think>2+3=5.</think>\\boxed{5}" + " so it is" * 12, {}, {"loops": True}, None),
        (GOOD, {"num_tokens": 20}, {"min_tokens": 20}, None),
        (GOOD, {"num_tokens": 19}, {"min_tokens": 20}, "too short"),
        (GOOD, {"num_tokens": 20}, {"max_tokens": 20}, None),
        (GOOD, {"num_tokens": 21}, {"max_tokens": 20}, "too long"),
        (GOOD, {}, {"max_paragraph": len(GOOD)}, None),
        (GOOD, {}, {"max_paragraph": len(GOOD) - 1}, "long paragraph"),
        (GOOD.replace(" ", "\n\n"), {}, {"max_paragraph": len(GOOD) - 1}, None),
        (GOOD, {}, {"shows": ("checks itself",)}, "no such behaviour"),
        (GOOD.replace("4+1", "Wait, let me check. 4+1"), {}, {"shows": ("checks itself",)}, None),
        (GOOD, {}, {"shows": ("checks itself", "works it out")}, None),
        ("<think>", {"outcome": "wrong", "num_tokens": 1}, {"min_tokens": 20}, "not correct"),  # the first counts
    ],
)
def test_what_speaks_against_a_completion(
    row: MakeRow, text: str, changes: dict[str, Any], filters: dict[str, Any], expected: str | None
) -> None:
    assert reason(row(text, **changes), Filters.model_validate(filters)) == expected


def test_what_the_prompt_wrote_belongs_to_the_form(row: MakeRow) -> None:
    assert reason(row("2+3=5.</think>\\boxed{5}", prefill="<think>"), Filters()) is None
    assert reason(row("2+3=5.</think>\\boxed{5}"), Filters()) == "tags"


def test_texts_are_kept_once_and_so_many_of_a_problem(row: MakeRow) -> None:
    texts = [GOOD, GOOD, GOOD.replace("5.", "5 ."), GOOD.replace(".", "!"), "bad"]
    rows = [row(text, sample=i, outcome="wrong" if text == "bad" else "correct") for i, text in enumerate(texts)]
    rows += [row(GOOD, problem="p2")]  # the same text answers another problem
    found = keep(rows, Filters(), 2)
    assert [(one.problem, one.sample) for one in found.rows] == [("p1", 0), ("p1", 2), ("p2", 0)]
    assert found.dropped == {"duplicate": 1, "enough of its problem": 1, "not correct": 1}
    assert len(keep(rows, Filters(), 0).rows) == 4
    again = keep(rows, Filters(), 2, before=[row(GOOD)])
    assert again.dropped == {"duplicate": 2, "not correct": 1}
    assert [(one.problem, one.sample) for one in again.rows] == [("p1", 2), ("p1", 3), ("p2", 0)]


COMPLETIONS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["easy", "hard", "harder"]), st.booleans(), st.integers(0, 5)),
    max_size=40,
)


def completions(drawn: list[tuple[str, str, bool, int]]) -> list[Row]:
    return [
        Row(
            problem=problem, difficulty=difficulty, language="en", question="q", reference="5", open_ended=False,
            prefill="", sample=i, text=GOOD + " yes" * more, finish_reason=FinishReason.STOP,
            outcome=Outcome.CORRECT if right else Outcome.WRONG, answer="5", evidence="", num_tokens=20,
        )
        for i, (problem, difficulty, right, more) in enumerate(drawn)
    ]  # fmt: skip


@given(COMPLETIONS, st.integers(0, 4))
def test_kept_and_dropped_are_all(drawn: list[tuple[str, str, bool, int]], per_problem: int) -> None:
    rows = completions(drawn)
    found = keep(rows, Filters(loops=True), per_problem)
    assert len(found.rows) + sum(found.dropped.values()) == len(rows)
    assert found.dropped.get("not correct", 0) == sum(row.outcome is Outcome.WRONG for row in rows)
    assert len({(row.problem, row.text) for row in found.rows}) == len(found.rows)
    of_problem = Counter(row.problem for row in found.rows)
    assert not per_problem or max(of_problem.values(), default=0) <= per_problem
    different = {(row.problem, row.text) for row in rows if row.outcome is Outcome.CORRECT}
    expected = Counter(problem for problem, _ in different)
    assert of_problem == {p: min(n, per_problem) if per_problem else n for p, n in expected.items()}


@given(COMPLETIONS, st.integers(0, 50), st.integers(0, 3))
def test_balanced_takes_as_evenly_as_it_can(drawn: list[tuple[str, str, bool, int]], size: int, seed: int) -> None:
    rows = completions(drawn)
    chosen = balanced(rows, size, seed)
    assert len(chosen) == min(size, len(rows))
    assert len({row.sample for row in chosen}) == len(chosen)
    assert balanced(list(reversed(rows)), size, seed) == chosen  # the order it is given does not matter
    there, taken = (Counter(row.difficulty for row in some) for some in (rows, chosen))
    for label, other in ((a, b) for a in there for b in there):
        # nobody has two more than another that still had some
        assert taken[label] <= taken[other] + 1 or taken[other] == there[other]


def test_another_seed_chooses_others() -> None:
    rows = completions([("a", "easy", True, 0)] * 40)
    assert {row.sample for row in balanced(rows, 10, 0)} != {row.sample for row in balanced(rows, 10, 1)}


def test_counts_know_rows_of_other_people() -> None:
    assert counts([{"source": "b"}, {"source": "a"}, {"source": "b"}, {}], "source") == {"a": 1, "b": 2, "unknown": 1}


def test_every_behaviour_can_be_asked_for() -> None:
    assert len(Filters(shows=tuple(Behaviour)).shows) == len(Behaviour)
