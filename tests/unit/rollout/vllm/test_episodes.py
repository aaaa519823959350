"""Episodes on servers: every turn is a request that begins with all ids before it, whoever dies meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import EngineConfig
from groupwise.rollout.in_process import InProcessEngine
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.vllm.canary import trainer_logprobs
from groupwise.tasks import make_task
from groupwise.types import Completion
from groupwise.verifiers import make_verifier

Make = Callable[..., Any]
PATIENT = {"patience_s": 60.0, "request_s": 300.0}
PLAYED = Path(__file__).parents[3] / "end_to_end" / "played.py"


@pytest.fixture(scope="module")
def brief(trained: Policy) -> Policy:
    """The trainer's policy with turns that end soon: every seventh token is a stop token."""
    return replace(trained, stop_ids=frozenset(range(1, trained.vocabulary, 7)))


def played(engine: Any, max_tokens: int = 30, temperature: float = 1.0) -> list[tuple[tuple[int, ...], Completion]]:
    environment = {"kind": f"{PLAYED}:Digits", "max_turns": 4, "max_turn_tokens": 12, "num_workers": 1}
    task = make_task({"kind": "episodes", "environment": environment, "num_problems": 8})
    sampling = SamplingConfig(max_tokens=max_tokens, temperature=temperature)
    with make_verifier("episode") as verifier:
        actors = Actors(engine.policy, engine, task.template, verifier)
        problems, draws = task.problems("train")[:2], Draws(0, Purpose.TRAIN)
        scored = sample_and_score(actors, problems, 4, sampling, draws)
    return [(group.group.prompt.token_ids, one) for group in scored for one in group.group.completions]


def same(left: Sequence[tuple[Any, Completion]], right: Sequence[tuple[Any, Completion]]) -> None:
    for (_, a), (_, b) in zip(left, right, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.sampled.tolist() == b.sampled.tolist()
        assert [turn._replace(seconds=0) for turn in a.turns] == [turn._replace(seconds=0) for turn in b.turns]
        assert a.finish_reason is b.finish_reason


def test_greedy_episodes_are_those_of_the_process(make_engine: Make, make_server: Make, brief: Policy) -> None:
    engine = make_engine(make_server(), policy=brief, **PATIENT)
    served = played(engine, temperature=0.0)
    assert any(len(one.turns) > 1 for _, one in served)
    same(served, played(InProcessEngine(EngineConfig(), brief), temperature=0.0))


def test_turns_are_the_trainers_and_deaths_change_nothing(make_engine: Make, make_server: Make, brief: Policy) -> None:
    server = make_server()
    engine = make_engine(server, policy=brief, **PATIENT)
    engine.publish(brief, 0)
    before = server.generated
    quiet = played(engine)
    assert server.generated - before == sum(len(one.turns) for _, one in quiet)
    assert sum(len(one.turns) > 1 for _, one in quiet) > 3
    for prompt, one in quiet:
        ours = trainer_logprobs(brief, prompt, tuple(one.token_ids.tolist()))
        assert np.abs(ours - one.sampling_logprobs)[one.sampled].max() < 1e-5
    mortal = make_server()
    engine = make_engine(mortal, make_server(), policy=brief, **PATIENT)
    engine.publish(brief, 0)
    mortal.dies_after = mortal.generated + 5  # of 8 first turns each has 4
    same(played(engine), quiet)
    assert mortal.dead
    assert engine.facts["reissued"]


def test_servers_with_less_room_than_the_model_end_episodes(
    make_engine: Make, make_server: Make, brief: Policy
) -> None:
    server = make_server()
    server.context = 45
    engine = make_engine(server, policy=brief, **PATIENT)
    lengths = [len(prompt) + one.num_read for prompt, one in played(engine)]
    assert engine.context_length == 45
    assert max(lengths) > 36
