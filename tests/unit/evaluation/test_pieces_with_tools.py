"""Tools in completions that are sampled in pieces: searches, revisions, reasoning that is opened again or cut short."""

import dataclasses
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_chains import EndsInTwo

from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.chains import Chainer, Link, cut
from groupwise.evaluation.test_time.pool import Scored, Scorer, Told
from groupwise.evaluation.test_time.search import Ends, SearchConfig, Searcher
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.pieces import beginning, reasoning_end
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tool_watch import ToolWatch
from groupwise.rollout.tools import Call, Fault, Tool, ToolConfig, ToolResult
from groupwise.rollout.tools.calculator import CalculatorConfig
from groupwise.tasks.base import Template
from groupwise.types import CallOutcome, Completion, FinishReason, Outcome, Problem, ScoredGroup

PROBLEMS = [Problem("a", "What?", ""), Problem("b", "And then what?", "")]
DRAWS = Draws(0, Purpose.TEST)
STEP = r"[\x00-\x2fn-q01]"
"""Random bytes end a step often: between calls, within them, with them, and within their results."""
PLAIN = SearchConfig(slots=6, width=1, trees=1, lookahead=0, max_rounds=60, aggregate="last")


class PairConfig(ToolConfig):
    immediate: bool = True


class Pair(Tool):
    """A call begins with a capital, and ends with a small letter or a mark."""

    Config = PairConfig
    opens, closes = string.ascii_uppercase + "<=>?@", string.ascii_lowercase + "!#$%&*+,-./"
    config: PairConfig

    @property
    def immediate(self) -> bool:  # type: ignore[override]
        return self.config.immediate

    def look(self, text: str) -> Call | Fault | None:
        begin = self.begins(text)
        return None if begin is None or text[-1] not in self.closes else Call(text[begin:], begin, closing="1]")

    def begins(self, text: str) -> int | None:
        return next((place for place, character in enumerate(text) if character in self.opens), None)

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        return ToolResult(f"[{len(earlier)}", CallOutcome.DONE)


def sampling(immediate: bool, **changes: Any) -> SamplingConfig:
    section = PairConfig(kind=f"{Path(__file__).resolve()}:Pair", max_calls=2, immediate=immediate)
    return SamplingConfig(max_tokens=48).model_copy(update={"tools": {"pair": section}, **changes})


@dataclasses.dataclass(frozen=True)
class ByText(Scorer):
    """A reward model that is a function of the text."""

    def texts(self, texts: Sequence[Told]) -> list[Scored]:
        sums = [sum(map(ord, "".join(told.steps))) % 97 / 97 for told in texts]
        return [
            Scored((total,), len(told.steps)) if told.steps else Scored((), 0)
            for total, told in zip(sums, texts, strict=True)
        ]


SCORER = ByText(None, "a rule", "prm", STEP, "", 0, False)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def actors(tiny_policy: Callable[..., Policy]) -> Actors:
    policy = dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 6)))
    return Actors.of(policy, Template(), EndsInTwo())


def searched(actors: Actors, asked: SamplingConfig, problems: Sequence[Problem] = PROBLEMS, **dials: Any) -> list[Ends]:
    return Searcher(actors, asked, DRAWS, SCORER, dataclasses.replace(PLAIN, **dials)).search(problems)


def completions(found: Sequence[ScoredGroup]) -> list[Completion]:
    return [one for scored in found for one in scored.group.completions]


def told(one: Completion) -> tuple[Any, ...]:
    calls = [(call.tool, call.content, call.outcome) for call in one.calls]
    return one.token_ids.tolist(), one.sampled.tolist(), one.finish_reason, one.text, one.own, calls


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("dials", [{}, {"lookahead": 2}, {"max_rounds": 3}])
def test_a_width_of_one_is_independent_samples(actors: Actors, immediate: bool, dials: dict[str, int]) -> None:
    asked = sampling(immediate)
    found = searched(actors, asked, **dials)
    mine = completions([one.group for one in found])
    plain = completions(sample_and_score(actors, PROBLEMS, PLAIN.slots, asked, DRAWS))
    assert list(map(told, mine)) == list(map(told, plain))
    for one, its in zip(mine, plain, strict=True):
        np.testing.assert_allclose(one.sampling_logprobs, its.sampling_logprobs, atol=1e-4)
    # the world has what there is to get wrong
    reasons = Counter(one.finish_reason for one in plain)
    assert reasons[FinishReason.TOOL_LIMIT]
    assert reasons[FinishReason.STOP]
    assert any(one.own is not None and one.num_calls > 1 for one in plain)
    if not dials.get("lookahead"):
        own = [sum(one.num_tokens for one in ends.group.group.completions) for ends in found]
        assert [ends.spent.policy_tokens for ends in found] == own


def test_what_tools_put_in_is_read_and_not_sampled(actors: Actors) -> None:
    for ends in searched(actors, sampling(True), max_rounds=0):
        whole = ends.group.group
        put_in = sum(one.num_read - one.num_tokens for one in whole.completions)
        assert put_in
        assert ends.spent.prompt_tokens == len(whole.prompt.token_ids) + put_in
        assert ends.spent.policy_tokens == sum(one.num_tokens for one in whole.completions)


@pytest.mark.parametrize("dials", [{"width": 2, "lookahead": 2}, {"width": 3, "trees": 2}])
def test_a_search_counts_all_that_the_engine_does(
    actors: Actors, dials: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()
    engine: Any = actors.engine
    real = type(engine).generate

    def counting(self: Any, requests: Sequence[Request], config: SamplingConfig, on_finished: Any) -> None:
        counted["read"] += sum(len(request.token_ids) for request in requests)

        def finished(index: int, found: list[Sampled]) -> None:
            counted["sampled"] += sum(one.num_drawn for one in found)
            counted["read"] += sum(one.num_put_in for one in found)
            on_finished(index, found)

        real(self, requests, config, finished)

    monkeypatch.setattr(type(engine), "generate", counting)
    [ends] = searched(actors, sampling(True), PROBLEMS[:1], **dials)
    assert ends.spent.policy_tokens == counted["sampled"]
    assert ends.spent.prompt_tokens == counted["read"]


def test_tools_are_open_through_all_rounds_of_a_search(actors: Actors, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    monkeypatch.setattr(ToolWatch, "close", lambda self: closed.append(self))
    found = searched(actors, sampling(False), PROBLEMS[:1])
    assert any(one.num_calls for one in completions([ends.group for ends in found]))
    assert len(closed) == 1


def test_a_completion_that_a_call_ended_has_no_score(actors: Actors) -> None:
    for ends in searched(actors, sampling(True)):
        for one, scored in zip(ends.group.group.completions, ends.scored, strict=True):
            assert bool(scored.steps) == (one.finish_reason is FinishReason.STOP)


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("dials", [{"width": 2}, {"width": 2, "trees": 2}, {"width": 2, "lookahead": 1}])
def test_neither_the_batch_nor_other_problems_change_anything(
    actors: Actors, immediate: bool, dials: dict[str, int]
) -> None:
    together = searched(actors, sampling(immediate), **dials)
    few = searched(actors, sampling(immediate, max_live_completions=3), **dials)
    alone = [searched(actors, sampling(immediate), [problem], **dials)[0] for problem in PROBLEMS]
    for other in (few, alone):
        assert [told(c) for c in completions([o.group for o in other])] == [
            told(c) for c in completions([o.group for o in together])
        ]
    assert [one.spent for one in alone] == [one.spent for one in together]
    assert any(one.calls for one in completions([o.group for o in together]))


def test_a_search_ends_where_the_context_does(actors: Actors) -> None:
    policy = dataclasses.replace(actors.policy, stop_ids=frozenset())
    prompt = len(policy.tokenizer(Template().render(PROBLEMS[0]))["input_ids"])
    asked = sampling(True, max_tokens=policy.context_length - prompt)
    for one in completions([searched(Actors.of(policy, Template(), EndsInTwo()), asked, PROBLEMS[:1])[0].group]):
        full = prompt + one.num_read == policy.context_length
        assert full or one.finish_reason is FinishReason.TOOL_LIMIT
        assert (one.finish_reason is FinishReason.LENGTH) == full


def test_an_engine_that_knows_no_tools_cannot_pause(actors: Actors) -> None:
    class Plain:
        version = 0

        def generate(self, *asked: Any) -> None:
            raise AssertionError

    request = Request((5, 6), (1,), pause=lambda ids: False)
    with pytest.raises(ConfigError, match="in_process"):
        generate_with_tools(Plain(), actors.policy, [request], sampling(True), lambda *found: None)  # type: ignore[arg-type]


SCRIPT = {
    "What?\n": "a<<2+3=b</think>7", "What?\na<<2+3=5>>": "b</think>7", "What?\na<<2+3=5>>b Wait. ": "c<<9*9=",
    "What?\na<<2+3=5>>b Wait. c<<9*9=81>>": "d</think>2", "What?\na<<2+3=5>>b Wait. c<<9*9=81>>d Wait. ": "e<<1+1=",
    "What?\na<<2+3=5>></think>": "f<<2*2=", "What?\na<<2+3=5>></think>f<<2*2=4>>": "2", "What?\na<<2+</think>": "2",
    "What?\na<<2+3=5>>b</think>7\0What?\n": "g<<7-6=", "What?\na<<2+3=5>>b</think>7\0What?\ng<<7-6=1>>": "2",
}  # fmt: skip
"""What is written behind a text, up to the end or a call."""


class Writes:
    """An engine that writes by script, and knows nothing of tools."""

    version = 0

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request], config: SamplingConfig, on_finished: Any) -> None:
        for index, request in enumerate(requests):
            self.asked.append(request)
            stop = self.policy.tokenizer.eos_token_id
            before = self.policy.tokenizer.decode([t for t in request.token_ids if t != stop])
            after = SCRIPT[before.replace("7What", "7\0What")]
            ids = [*self.policy.tokenizer(after, add_special_tokens=False)["input_ids"], stop][: request.room(config)]
            reason = FinishReason.STOP if ids[-1] == stop else FinishReason.LENGTH
            numbers = np.full(len(ids), -1, np.float32)
            on_finished(index, [Sampled(np.array(ids, np.int64), numbers, numbers, reason)] * len(request.keys))


def chainer_of(policy: Policy, **changes: Any) -> Chainer:
    tools = {"calculator": CalculatorConfig(**changes)}
    asked = SamplingConfig(max_tokens=60).model_copy(update={"tools": tools})
    return Chainer(Actors(policy, Writes(policy), Template(), EndsInTwo()), asked, DRAWS, 1)


def only(link: Link) -> Completion:
    [one] = link.groups[0].group.completions
    return one


def drawn(policy: Policy, one: Completion) -> str:
    return str(policy.tokenizer.decode(one.token_ids[one.sampled].tolist()[:-1]))


def contents(one: Completion) -> list[str]:
    return [call.content for call in one.calls]


def test_reasoning_with_calls_is_opened_again(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    chainer = chainer_of(policy, max_calls=2)
    links = [chainer.start(PROBLEMS[:1])]
    for _ in range(2):
        links.append(chainer.forced(links, {"en": " Wait. "}))
    first, second, third = map(only, links)
    assert (first.text, contents(first)) == ("a<<2+3=5>>b</think>7", ["2+3"])
    assert second.text == "a<<2+3=5>>b Wait. c<<9*9=81>>d</think>2"
    assert second.own == "a<<2+3= b Wait. c<<9*9= d</think>2"  # the phrase is no result
    assert drawn(policy, second) == "a<<2+3=bc<<9*9=d</think>2"
    assert contents(second) == ["2+3", "9*9"]
    # a third call is one too many, for those before the phrase count
    assert (third.text, third.finish_reason) == ("a<<2+3=5>>b Wait. c<<9*9=81>>d Wait. e<<1+1=", "tool_limit")
    assert third.own == "a<<2+3= b Wait. c<<9*9= d Wait. e<<1+1="
    # "a<<2+3=" and "b", the tag, "7" and the end; "c<<9*9=" and "d", the tag, "2" and the end; "e<<1+1="
    assert [link.sampled for link in links] == [[7 + 4], [7 + 4], [7]]
    prompt = len("What?\n")
    texts = ["a<<2+3=5>>b Wait. ", "a<<2+3=5>>b Wait. c<<9*9=81>>d Wait. "]
    assert [link.read for link in links] == [[prompt + 3], [prompt + len(texts[0]) + 4], [prompt + len(texts[1])]]


def test_reasoning_is_opened_where_the_policy_closed_it_and_not_within_a_result(
    tiny_policy: Callable[..., Policy],
) -> None:
    policy = tiny_policy()
    parts = [("ab=", True), ("x</think>", False), ("c", True), ("</think>7", True)]
    ids = [policy.tokenizer(text, add_special_tokens=False)["input_ids"] for text, _ in parts]
    drawn = [is_drawn for one, (_, is_drawn) in zip(ids, parts, strict=True) for _ in one]
    token_ids = [token for one in ids for token in one]
    numbers = np.zeros(len(drawn), np.float32)
    piece = Sampled(np.array(token_ids), numbers, numbers, FinishReason.STOP, np.array(drawn))
    assert reasoning_end(policy, [piece]) == (sum(map(len, ids[:3])), "")
    assert reasoning_end(policy, beginning([piece], sum(map(len, ids[:2])))) is None


def test_a_phrase_counts_as_length_and_a_result_does_not(tiny_policy: Callable[..., Policy]) -> None:
    chainer = chainer_of(tiny_policy())
    first = chainer.start(PROBLEMS[:1])
    length = len("a<<2+3=" + "b") + len(" Wait. ")
    for room, opened in ((0, 0), (3, 1)):
        tight = chainer.sampling.model_copy(update={"max_tokens": length + room})
        after = dataclasses.replace(chainer, sampling=tight).forced([first], {"en": " Wait. "})
        assert after.shown == [opened]
        assert after.sampled == [room]
    assert only(after).text == "a<<2+3=5>>b Wait. c<<"
    assert only(after).finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("limit", "text", "own", "calls"),
    [
        (7, "a<<2+3=5>></think>f<<2*2=4>>2", "a<<2+3= </think>f<<2*2= 2", ["2+3", "2*2"]),  # the result stays whole
        (5, "a<<2+</think>2", None, []),  # the call is given up
        (9, "a<<2+3=5>>b</think>7", "a<<2+3= b</think>7", ["2+3"]),  # closed before
    ],
)
def test_thinking_with_calls_is_cut_short(
    tiny_policy: Callable[..., Policy], limit: int, text: str, own: str | None, calls: list[str]
) -> None:
    policy = tiny_policy()
    chainer = chainer_of(policy)
    first = chainer.start(PROBLEMS[:1])
    after = cut(chainer, first, limit)
    one = only(after)
    assert (one.text, one.own, contents(one)) == (text, own, calls)
    if one is only(first):
        return
    asked = chainer.actors.engine.asked[2]  # type: ignore[attr-defined]
    results = 3 if calls else 0
    assert asked.begun == limit + results + 1
    assert asked.room(chainer.sampling) == 60 - limit - 1
    assert one.num_tokens == len(one.token_ids) - sum(map(len, one.insertions))
    # the prompt, the result before the cut, and what follows it with its own result; a result behind the cut is gone
    assert after.read == [len("What?\n") + results + len(asked.token_ids) + results]


def test_a_revision_reads_results_and_calls_anew(tiny_policy: Callable[..., Policy]) -> None:
    chainer = chainer_of(tiny_policy(), max_calls=1)
    first = chainer.start(PROBLEMS[:1])
    second = chainer.revised([first], 1)
    one = only(second)
    assert (one.text, one.own, contents(one)) == ("g<<7-6=1>>2", "g<<7-6= 2", ["7-6"])
    assert second.sampled == [len("g<<7-6=2") + 1]
    assert second.read == [2 * len("What?\n") + only(first).num_read + 3]
    assert second.groups[0].verdicts[0].outcome is Outcome.CORRECT
