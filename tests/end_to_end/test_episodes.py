"""Runs with episodes: killed they end in the same ledger, one turn is what a task has been, and a replay is exact."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from signalled_run import exit_code
from test_resume import model, run_to_the_end

from groupwise.config import parse
from groupwise.errors import InvariantError
from groupwise.rollout import episodes
from groupwise.runs.directory import RunDirectory
from groupwise.runs.records import Records
from groupwise.trainers import train
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.replay import replay

__all__ = ["model"]
PLAYED = Path(__file__).with_name("played.py")


def recipe(model: Path, directory: Path, environment: str, **changes: Any) -> GrpoRecipe:
    settings = {"max_turns": 3, "max_turn_tokens": 16, "num_workers": 1, "repeatable": environment == "Digits"}
    values: dict[str, Any] = {
        "run": {"directory": str(directory), "num_steps": 4, "checkpoint_every": 2, "seed": 1},
        "model": {"path": str(model), "device": "cpu", "num_threads": 1},
        "task": {"kind": "episodes", "environment": {"kind": f"{PLAYED}:{environment}", **settings}},
        "grpo": {"prompts_per_step": 3, "group_size": 8},
        "sampling": {"max_tokens": 30},
        "optimizer": {"lr": 1e-2},
        "advantage": {"kind": "turn_return"},
        "evaluation": {"every": 4, "num_problems": 3, "num_samples": 2, "test_problems": 0},
    }
    return parse(GrpoRecipe, values | changes)


def rows(run: RunDirectory, step: int) -> list[dict[str, Any]]:
    return pq.read_table(run.rollouts(step)).to_pylist()


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_to_the_end(recipe(model, tmp_path_factory.mktemp("whole") / "run", "Digits"))


def test_turns_are_recorded_and_credited(whole: RunDirectory) -> None:
    found = [row for step in range(4) for row in rows(whole, step)]
    several = [row for row in found if len(json.loads(row["turns"])) > 1]
    assert len(several) > len(found) / 5
    assert {row["finish_reason"] for row in found} <= {"done", "turn_limit", "length"}
    for row in found:
        turns = json.loads(row["turns"])
        assert row["reward"] is None or row["reward"] == sum(turn[1] or 0.0 for turn in turns)
        if row["token_advantages"] is not None:
            values = [value for value in row["token_advantages"] if value is not None]
            assert len(values) == row["num_tokens"]
            assert len(set(values)) <= len(turns)
    row = Records.of(whole).completion(0, found[0]["problem"], 0)
    assert [tuple(turn) for turn in row.turns] == [tuple(turn) for turn in json.loads(found[0]["turns"])]


@pytest.mark.parametrize("place", ["step-000001.parquet", "step-000002", "step-000003.parquet"])
def test_killed_it_ends_in_the_same_ledger(model: Path, whole: RunDirectory, tmp_path: Path, place: str) -> None:
    one = recipe(model, tmp_path / "killed", "Digits")
    assert exit_code(one, place) == -signal.SIGKILL
    again = run_to_the_end(one)
    assert again.ledger.path.read_bytes() == whole.ledger.path.read_bytes()


def test_what_no_environment_can_repeat_comes_from_the_records(model: Path, tmp_path: Path) -> None:
    one = recipe(model, tmp_path / "clock", "Clock")
    run = RunDirectory(tmp_path / "clock")
    place = "dev-step-000004.parquet"  # steps 2 and 3 are recorded, and no checkpoint has them
    assert exit_code(one, place) == -signal.SIGKILL
    before = [rows(run, step) for step in range(4)]
    run_to_the_end(one)
    for step, earlier in enumerate(before):
        now = rows(run, step)
        assert [(row["token_ids"], row["reward"], row["turns"]) for row in now] == [
            (row["token_ids"], row["reward"], row["turns"]) for row in earlier
        ]
    row = next(row for row in before[3] if row["sampled"])
    assert replay(run.path, 3, row["problem"], row["sample"]).identical


def test_a_replay_asks_the_environment_again(whole: RunDirectory) -> None:
    row = next(row for row in rows(whole, 3) if row["sampled"])
    assert replay(whole.path, 3, row["problem"], row["sample"]).identical


ONE_TURN = '''
from groupwise.tasks.environments.base import Environment, Opening, Reply

END = 1

def is_right(text, reference):
    return float(text[-1:].isdigit())

def reward(completions, completion_ids, reference, **others):
    rows = zip(completions, completion_ids, reference)
    return [is_right(text, known) * (ids[-1] == END) for text, ids, known in rows]

class Once(Environment):
    """One question, one answer."""
    def start(self, problem, seed):
        self.reference = problem.reference
        return Opening.of(problem.question)
    def step(self, turn):
        return Reply(reward=is_right(turn.text, self.reference), done=True)
    def ended(self, reason):
        return Reply(reward=0.0, outcome="wrong")
'''


def test_one_turn_is_what_a_task_has_been(model: Path, tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(ONE_TURN)
    task = {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 24, "num_eval_problems": 3}
    environment = {"kind": f"{tmp_path}/once.py:Once", "max_turns": 1, "num_workers": 1}
    changes = {"advantage": {"kind": "leave_one_out"}, "sampling": {"max_tokens": 6}}
    plain, played = (
        run_to_the_end(recipe(model, tmp_path / name, "Digits", task=given, **changes, **more))
        for name, given, more in (
            ("task", task, {"verifier": {"kind": f"{tmp_path}/once.py:reward"}}),
            ("episodes", {"kind": "episodes", "environment": environment, "problems": task}, {}),
        )
    )
    assert any(line.get("grad_norm") for line in plain.ledger.lines())
    assert plain.ledger.path.read_bytes() == played.ledger.path.read_bytes()
    assert {row["finish_reason"] for row in rows(played, 0)} <= {"done", "length"}


def _trained(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = episodes.phrase
    everything = lambda ids: replace(plain(ids), sampled=np.ones(len(ids), np.bool_))  # noqa: E731
    monkeypatch.setattr(episodes, "phrase", everything)


def _shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = episodes._Episode.whole

    def rolled(self: Any) -> Any:
        sampled = whole(self)
        return replace(sampled, sampled=np.roll(sampled.drawn, 1)) if sampled.num_put_in else sampled

    monkeypatch.setattr(episodes._Episode, "whole", rolled)


def _rendered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    following = episodes.Episodes._next

    def other(self: Any, episode: Any, request: Any, engine: Any) -> Any:
        made = following(self, episode, request, engine)
        begin = len(request.token_ids)
        past = tuple(token + 1 if token == 1 else token for token in made.token_ids[begin:])
        return replace(made, token_ids=(*made.token_ids[:begin], *past))

    monkeypatch.setattr(episodes.Episodes, "_next", other)


def _of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    play = episodes._Scene.play

    def other(self: Any, sample: int, said: Any, ended: str = "", whole: bool = False) -> Any:
        heard = said if whole or not said else [*said[:-1], replace(said[-1], text=f"7{said[-1].text}0")]
        return play(self, sample, heard, ended, whole)

    monkeypatch.setattr(episodes._Scene, "play", other)


@pytest.mark.parametrize(
    ("plant", "caught"),
    [
        (_trained, "log-prob"),
        (_shifted, "log-prob|stop"),
        (_rendered_anew, "log-prob"),
        (_of_another, "is no function of problem, seed and turns"),
    ],
)
def test_planted_faults_are_caught(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Any, caught: str
) -> None:
    plant(monkeypatch)
    changes = {"run": {"directory": str(tmp_path / "run"), "num_steps": 2, "seed": 1}, "sampling": {"max_tokens": 50}}
    one = recipe(model, tmp_path / "run", "Digits", **changes)
    with pytest.raises(InvariantError, match=caught):
        train(one)
