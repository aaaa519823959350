"""Collecting completions, and the filters that choose among them."""

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ModelError
from groupwise.evaluation.behaviour import Behaviour
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import character_tokenizer
from groupwise.models.policy import Policy, load_policy, make_policy
from groupwise.pipeline.collect import Filters, balanced, collect_rows, counts, keep, reason
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import EngineConfig, OnFinished, Request, Sampled, make_engine
from groupwise.rollout.pieces import CLOSED
from groupwise.rollout.pieces import reflected as reflect
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.rollouts import write_rollouts
from groupwise.runs.row import Row
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup
from groupwise.verifiers import make_verifier, score

module = importlib.import_module("groupwise.pipeline.collect")
PHRASES = {"en": " Wait, let me check."}


@pytest.fixture(scope="module")
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return tiny_policy()


@pytest.fixture
def problems() -> list[Problem]:
    return [Problem(f"p{i}", f"1+{i}?", str(i + 1), language="en") for i in range(7)]


@pytest.fixture
def collected(policy: Policy, problems: list[Problem], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    monkeypatch.setattr(module, "PROBLEMS_PER_PART", 3)

    def run(folder: Path, **options: Any) -> list[Any]:
        with make_verifier("math") as verifier:
            actors, draws = Actors.of(policy, Template(), verifier), Draws(1, Purpose.TEST)
            return collect_rows(actors, problems, 2, SamplingConfig(max_tokens=8), draws, folder, **options)

    return run


def test_completions_come_in_order_and_parts_are_kept(
    tmp_path: Path, collected: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "say", lambda what, done, total: told.append((done, total)))
    rows = collected(tmp_path)
    assert [(row.problem, row.sample) for row in rows] == [(f"p{i}", k) for i in range(7) for k in range(2)]
    assert told == [(0, 7), (3, 7), (6, 7), (1, 1)]
    assert len(list(tmp_path.iterdir())) == 3


def test_what_a_kill_left_is_read_and_the_rest_is_the_same(
    tmp_path: Path, collected: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = collected(tmp_path / "whole")
    parts = sorted((tmp_path / "whole").iterdir())
    asked: list[str] = []

    def watched(actors: Actors, some: list[Problem], *arguments: Any) -> list[ScoredGroup]:
        asked.extend(problem.id for problem in some)
        return sample_and_score(actors, some, *arguments)

    monkeypatch.setattr(module, "sample_and_score", watched)
    (tmp_path / "killed").mkdir()
    for part in (parts[0], parts[2]):
        (tmp_path / "killed" / part.name).write_bytes(part.read_bytes())
    (tmp_path / "killed" / f".{parts[1].name}.tmp").write_bytes(b"half")
    assert collected(tmp_path / "killed") == whole
    assert asked == ["p3", "p4", "p5"]
    assert (tmp_path / "killed" / parts[1].name).read_bytes() == parts[1].read_bytes()


def group(policy: Policy, *texts: str, language: str = "en", ends: bool = True, prompt: str = "1+1?\n") -> Group:
    """A group with these completions, as the sampler would have made it."""
    end = [policy.tokenizer.eos_token_id] if ends else []
    completions = []
    for i, text in enumerate(texts):
        ids = np.array(policy.tokenizer(text, add_special_tokens=False)["input_ids"] + end, np.int64)
        noise = np.linspace(-1, -0.5, len(ids)).astype(np.float32)
        reason = FinishReason.STOP if ends else FinishReason.LENGTH
        completions.append(Completion(i, ids, noise, -noise, reason, text))
    problem = Problem("p", "1+1?", "2", language=language)
    return Group(Prompt(problem, prompt, tuple(policy.tokenizer(prompt)["input_ids"]), ""), tuple(completions), 0, 0)


def reflected(policy: Policy, groups: list[Group], sampling: SamplingConfig, seed: int) -> list[Group]:
    engine = make_engine(EngineConfig(), policy)
    return reflect(policy, engine, groups, sampling, PHRASES, Draws(seed, Purpose.TEST))


def test_reflection_opens_the_reasoning_again(policy: Policy) -> None:
    draft = group(policy, "<think>1+1=2.</think>\\boxed{2}", "<think>1+1=3")
    (found,) = reflected(policy, [draft], SamplingConfig(max_tokens=60), 0)
    first, second = found.completions
    assert second is draft.completions[1]  # it closes nothing
    begins = "<think>1+1=2. Wait, let me check."
    assert first.text.startswith(begins)
    put_in = len(policy.tokenizer(begins)["input_ids"])
    assert first.token_ids[:put_in].tolist() == policy.tokenizer(begins)["input_ids"]
    assert first.sampled.tolist() == [False] * put_in + [True] * (len(first.token_ids) - put_in)
    assert first.num_tokens == len(first.token_ids) - put_in
    for numbers in (first.sampling_logprobs, first.entropy):
        assert not numbers[:put_in].any()
        assert numbers[put_in:].all()
    assert len(first.token_ids) == len(first.sampling_logprobs) == len(first.entropy) <= 60
    assert (first.finish_reason is FinishReason.STOP) == (first.token_ids[-1] in policy.stop_ids)
    visible = first.token_ids[:-1] if first.finish_reason is FinishReason.STOP else first.token_ids
    assert policy.tokenizer.decode(visible.tolist()) == first.text


def test_what_follows_is_drawn_for_each_completion_alone(policy: Policy) -> None:
    texts = [f"<think>{i}</think>{i}" for i in range(3)]
    sampling = SamplingConfig(max_tokens=40)
    together = reflected(policy, [group(policy, *texts)], sampling, 0)[0].completions
    alone = reflected(policy, [group(policy, *texts[:1])], sampling, 0)[0].completions
    assert alone[0].text == together[0].text
    other = reflected(policy, [group(policy, *texts[:1])], sampling, 1)[0].completions
    assert other[0].text != together[0].text


def test_reflected_completions_end_where_others_end(policy: Policy) -> None:
    end = policy.tokenizer.eos_token_id
    begins = policy.tokenizer("<think>1 Wait, let me check.")["input_ids"]

    class Ok:
        version = 0

        def generate(self, requests: Sequence[Request], sampling: Any, on_finished: OnFinished) -> None:
            whole = np.array(policy.tokenizer("ok")["input_ids"] + [end], np.int64)
            for index, request in enumerate(requests):
                ids = whole[: request.room(sampling)]
                numbers = np.zeros(len(ids), np.float32)
                reason = FinishReason.STOP if len(ids) == 3 else FinishReason.LENGTH
                on_finished(index, [Sampled(ids, numbers, numbers, reason)])

        def publish(self, policy: Policy, version: int) -> None:
            raise AssertionError

    for room, text, finish in ((3, "ok", "stop"), (2, "ok", "length"), (1, "o", "length")):
        sampling = SamplingConfig(max_tokens=len(begins) + room)
        draft = group(policy, "<think>1</think>1")
        (one,) = reflect(policy, Ok(), [draft], sampling, PHRASES, Draws(0, Purpose.TEST))[0].completions
        assert (one.text, one.finish_reason) == (f"<think>1 Wait, let me check.{text}", finish)
        assert len(one.token_ids) == len(one.sampling_logprobs) == len(one.entropy) == sampling.max_tokens


@pytest.mark.parametrize(
    ("options", "max_tokens"),
    [({"language": "de"}, 60), ({}, 20), ({"prompt": "1" * 200}, 40)],  # no phrase; no room in either limit
)
def test_a_draft_without_phrase_or_room_stays(policy: Policy, options: dict[str, Any], max_tokens: int) -> None:
    draft = group(policy, "<think>1+1=2.</think>\\boxed{2}", **options)
    assert reflected(policy, [draft], SamplingConfig(max_tokens=max_tokens), 0) == [draft]


def test_reflected_completions_can_be_scored_and_written(policy: Policy, tmp_path: Path) -> None:
    draft = group(policy, "<think>1+1=2.</think>\\boxed{2}")
    found = reflected(policy, [draft], SamplingConfig(max_tokens=60), 0)
    with make_verifier("math") as verifier:
        write_rollouts(tmp_path / "some.parquet", score(found, verifier, 60))
    (row,) = pq.read_table(tmp_path / "some.parquet").to_pylist()
    assert row["text"] == found[0].completions[0].text
    assert row["sampled"] == found[0].completions[0].sampled.tolist()
    assert row["sampled"][0] is False


def test_a_phrase_that_cannot_be_written_is_an_error(make_model: Callable[..., Any]) -> None:
    policy = make_policy(make_model(), character_tokenizer("123+=?. \n"))
    with pytest.raises(ModelError, match="cannot write the phrase ' Wait, let me check"):
        reflected(policy, [group(policy, "<think>1</think>1")], SamplingConfig(), 0)


def test_the_shipped_model_checks_itself_when_it_is_opened_again(tmp_path: Path) -> None:
    policy = load_policy(ModelConfig(device="cpu"))
    problem = Problem("p", "What is 24 × 13?", "312", language="en")
    with make_verifier("math") as verifier:
        actors = replace(Actors.of(policy, Template(), verifier), reflection=PHRASES)
        rows = collect_rows(actors, [problem], 8, SamplingConfig(max_tokens=120), Draws(0, Purpose.TEST), tmp_path)
    opened = [row for row in rows if PHRASES["en"] in row.text]
    assert opened
    assert all(CLOSED not in row.text.partition(PHRASES["en"])[0] for row in opened)
    assert any(row.text.partition(PHRASES["en"])[2].count(CLOSED) == 1 for row in opened)


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
        (GOOD + " and", {"finish_reason": "length"}, {"tags": False}, "cut off"),  # it would be taught to end there
        ("<think>2+3=5. 好</think>\\boxed{5}", {}, {}, "mixed language"),
        ("<think>2+3=5. 好</think>\\boxed{5}", {"language": "zh"}, {}, None),
        ("<think>2+3=5. 好</think>\\boxed{5}", {}, {"one_language": False}, None),
        ("<think>2+3=5.</think>\\boxed{5}" + " so it is" * 12, {}, {}, "loop"),
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


Drawn = list[tuple[str, str, bool, int]]


def completions(row: MakeRow, drawn: Drawn) -> list[Row]:
    return [
        row(GOOD + " yes" * more, problem=problem, difficulty=level, sample=i, outcome="correct" if right else "wrong")
        for i, (problem, level, right, more) in enumerate(drawn)
    ]


@given(drawn=COMPLETIONS, per_problem=st.integers(0, 4))
def test_kept_and_dropped_are_all(row: MakeRow, drawn: Drawn, per_problem: int) -> None:
    rows = completions(row, drawn)
    found = keep(rows, Filters(), per_problem)
    assert len(found.rows) + sum(found.dropped.values()) == len(rows)
    assert found.dropped.get("not correct", 0) == sum(row.outcome is Outcome.WRONG for row in rows)
    assert len({(row.problem, row.text) for row in found.rows}) == len(found.rows)
    of_problem = Counter(row.problem for row in found.rows)
    assert not per_problem or max(of_problem.values(), default=0) <= per_problem
    different = {(row.problem, row.text) for row in rows if row.outcome is Outcome.CORRECT}
    expected = Counter(problem for problem, _ in different)
    assert of_problem == {p: min(n, per_problem) if per_problem else n for p, n in expected.items()}


@given(drawn=COMPLETIONS, size=st.integers(0, 50), seed=st.integers(0, 3))
def test_balanced_takes_as_evenly_as_it_can(row: MakeRow, drawn: Drawn, size: int, seed: int) -> None:
    rows = completions(row, drawn)
    chosen = balanced(rows, size, seed)
    assert len(chosen) == min(size, len(rows))
    assert len({row.sample for row in chosen}) == len(chosen)
    assert balanced(list(reversed(rows)), size, seed) == chosen  # the order it is given does not matter
    there, taken = (Counter(row.difficulty for row in some) for some in (rows, chosen))
    for label, other in ((a, b) for a in there for b in there):
        # nobody has two more than another that still had some
        assert taken[label] <= taken[other] + 1 or taken[other] == there[other]


def test_another_seed_chooses_others(row: MakeRow) -> None:
    rows = completions(row, [("a", "easy", True, 0)] * 40)
    assert {row.sample for row in balanced(rows, 10, 0)} != {row.sample for row in balanced(rows, 10, 1)}


def test_counts_know_rows_of_other_people() -> None:
    assert counts([{"source": "b"}, {"source": "a"}, {"source": "b"}, {}], "source") == {"a": 1, "b": 2, "unknown": 1}
    assert len(Filters(shows=tuple(Behaviour)).shows) == len(Behaviour)  # every behaviour can be asked for
