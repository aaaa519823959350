"""Chains of attempts: what each link reads, what it costs, and what stays as it was."""

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.chains import Chainer, Link, check_phrases, cut
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate
from groupwise.rollout.pieces import opened_again, phrase
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.tasks.base import Template
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request as Judged
from groupwise.verifiers import Verifier

PROBLEMS = [Problem("a", "What?", ""), Problem("b", "And then?", "")]
DRAWS = Draws(0, Purpose.TEST)
SAMPLING = SamplingConfig(max_tokens=16)


class EndsInTwo(Verifier):
    """Right is what ends in 2."""

    def verify_many(self, requests: Sequence[Judged]) -> list[Verdict]:
        outcomes = [Outcome.CORRECT if one.text.endswith("2") else Outcome.WRONG for one in requests]
        return [Verdict(outcome, {}, "", one.text[-1:]) for outcome, one in zip(outcomes, requests, strict=True)]


@pytest.fixture(scope="module")
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 20)))


@pytest.fixture(scope="module")
def chainer(policy: Policy) -> Chainer:
    return Chainer(Actors.of(policy, Template(), EndsInTwo()), SAMPLING, DRAWS, 3)


def ids(link: Link) -> list[list[list[int]]]:
    return [[c.token_ids.tolist() for c in one.group.completions] for one in link.groups]


def revised(chainer: Chainer, links: int, remembered: int = 2) -> list[Link]:
    made = [chainer.start(PROBLEMS)]
    while len(made) < links:
        made.append(chainer.revised(made, remembered))
    return made


def test_a_revision_reads_the_last_attempts(chainer: Chainer, policy: Policy) -> None:
    first, second, third, fourth = revised(chainer, 4)
    sampled = sample_and_score(chainer.actors, PROBLEMS, 3, SAMPLING, DRAWS)
    assert ids(first) == [[c.token_ids.tolist() for c in one.group.completions] for one in sampled]
    for index, problem in enumerate(PROBLEMS):
        prompt = first.groups[index].group.prompt.token_ids
        for chain in range(3):
            attempts = [ids(link)[index][chain] for link in (first, second, third)]
            context = (*prompt, *attempts[1], *prompt, *attempts[2], *prompt)  # two are remembered
            key = DRAWS.key_after("revision 3", problem.id, chain)
            [[expected]] = generate(policy, [Request(context, (key,))], SAMPLING)
            assert ids(fourth)[index][chain] == expected.token_ids.tolist()
    assert second.shown == [3, 3]
    assert fourth.shown == [6, 6]
    lengths = [len(one.group.prompt.token_ids) for one in first.groups]
    attempts_read = [sum(len(c) for link in (second, third) for c in ids(link)[index]) for index in (0, 1)]
    assert fourth.read == [9 * own + read for own, read in zip(lengths, attempts_read, strict=True)]
    assert second.sampled == [sum(map(len, own)) for own in ids(second)]


def test_neither_the_batch_nor_other_problems_change_a_chain(chainer: Chainer) -> None:
    few = dataclasses.replace(chainer, sampling=SAMPLING.model_copy(update={"max_live_completions": 2}))
    assert [ids(link) for link in revised(few, 3)] == [ids(link) for link in revised(chainer, 3)]


def test_what_there_is_no_room_for_is_not_shown(chainer: Chainer) -> None:
    links = revised(chainer, 2)
    wide = dataclasses.replace(chainer, sampling=SamplingConfig(max_tokens=245))
    prompt = links[0].groups[0].group.prompt.token_ids
    ids_read, shown = wide._context(links, 0, 0, 4)
    assert (ids_read, shown) == (prompt, 0)
    ids_read, shown = chainer._context(links, 0, 0, 4)
    assert shown == 2
    assert ids_read[-len(prompt) :] == prompt


SCRIPT = {"What?\n": ["a</think>2", "b"], "What?\na Wait. ": ["c</think>1"], "What?\na Wait. c Wait. ": ["d</think>2"]}


def test_reasoning_isopened_again(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    actors = Actors(policy, ScriptedEngine.of(SCRIPT, policy), Template(), EndsInTwo())
    chainer = Chainer(actors, SamplingConfig(max_tokens=64), DRAWS, 2)
    links = [chainer.start(PROBLEMS[:1])]
    for _ in range(2):
        links.append(chainer.forced(links, {"en": " Wait. "}))
    texts = [[c.text for c in link.groups[0].group.completions] for link in links]
    assert texts == [["a</think>2", "b"], ["a Wait. c</think>1", "b"], ["a Wait. c Wait. d</think>2", "b"]]
    outcomes = [[verdict.outcome for verdict in link.groups[0].verdicts] for link in links]
    right, wrong = Outcome.CORRECT, Outcome.WRONG
    assert outcomes == [[right, wrong], [wrong, wrong], [right, wrong]]
    assert [link.shown for link in links] == [[0], [1], [1]]
    # "c", the tag, "1" and the end; the second completion, which stayed as it was, costs nothing again
    assert [link.sampled for link in links] == [[4 + 2], [4], [4]]
    put_in = len("What?\na Wait. ")
    assert links[1].read == [put_in]


CUT_SCRIPT = {"What?\n": ["abcdef</think>1", "a</think>2", "abc"]}


def test_thinking_is_cut_short(tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    engine = ScriptedEngine.of(CUT_SCRIPT, policy)
    chainer = Chainer(Actors(policy, engine, Template(), EndsInTwo()), SamplingConfig(max_tokens=12), DRAWS, 3)
    first, asked = chainer.start(PROBLEMS[:1]), list[Request]()
    [tag] = policy.tokenizer("</think>", add_special_tokens=False)["input_ids"]

    def answers(
        self: object, requests: Sequence[Request], sampling: SamplingConfig, on_finished: Callable[..., None]
    ) -> None:
        asked.extend(requests)
        ends = generate(policy, requests, sampling.model_copy(update={"temperature": 0.0}))
        for index, sampled in enumerate(ends):
            on_finished(index, sampled)

    monkeypatch.setattr(ScriptedEngine, "generate", answers)
    after = cut(chainer, first, 3)
    prompt = first.groups[0].group.prompt.token_ids
    before = first.groups[0].group.completions
    now = after.groups[0].group.completions
    # the first is cut behind "abc"; the second was closed before, and the third too ends at a fourth token, its end
    cut_ones = [before[0], before[2]]
    assert [one.token_ids for one in asked] == [(*prompt, *c.token_ids[:3].tolist(), tag) for c in cut_ones]
    assert all(one.begun == 4 for one in asked)
    assert now[1] is before[1]
    assert now[0].text.startswith("abc</think>")
    assert now[0].token_ids[:4].tolist() == [*before[0].token_ids[:3].tolist(), tag]
    assert now[0].sampled.tolist() == [True] * 3 + [False] + [True] * (len(now[0].token_ids) - 4)
    assert now[0].num_tokens == len(now[0].token_ids) - 1
    assert after.shown == [2]
    assert after.read == [len(prompt) + 2 * (len(prompt) + 4)]
    assert cut(chainer, first, 11).groups[0].group.completions == before  # no room, and nothing that is so long


def test_every_link_has_draws_of_its_own(tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    policy, asked = tiny_policy(), list[Request]()
    chainer = Chainer(Actors(policy, ScriptedEngine.of(SCRIPT, policy), Template(), EndsInTwo()), SAMPLING, DRAWS, 2)
    chainer = dataclasses.replace(chainer, sampling=SamplingConfig(max_tokens=64))
    real = ScriptedEngine.generate

    def watching(self: ScriptedEngine, requests: Sequence[Request], *others: Any) -> None:
        asked.extend(requests)
        real(self, requests, *others)

    monkeypatch.setattr(ScriptedEngine, "generate", watching)
    links = [chainer.start(PROBLEMS[:1])]
    for _ in range(2):
        links.append(chainer.forced(links, {"en": " Wait. "}))
    keys = [key for request in asked for key in request.keys]
    assert len(keys) == len(set(keys)) == 4


def test_a_reasoning_that_ends_within_a_token_is_written_again(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    tokens = {1: "ab", 2: "c</thi", 3: "nk>7", 4: "é", 5: ""}

    class Tokenizer:
        unk_token_id = None

        def decode(self, ids: Sequence[int]) -> str:
            return "".join(tokens.get(int(token), "?") for token in ids)

        def __call__(self, text: str, **others: Any) -> dict[str, list[int]]:
            return {"input_ids": [100 + len(text)]}

    fake: Any = SimpleNamespace(tokenizer=Tokenizer(), stop_ids=policy.stop_ids)
    piece = phrase([1, 2, 3])
    begun = opened_again(fake, [dataclasses.replace(piece, sampled=None)], "Wait")
    assert begun is not None
    assert [one.token_ids.tolist() for one in begun] == [[1], [100 + len("cWait")]]
    assert opened_again(fake, [phrase([1, 4])], "Wait") is None


def test_a_language_without_a_phrase_is_named() -> None:
    check_phrases(PROBLEMS, {"en": "x"})
    with pytest.raises(ConfigError, match="no phrase for problems in 'zh': phrases are there for en"):
        check_phrases([Problem("c", "", "", language="zh")], {"en": "x"})
