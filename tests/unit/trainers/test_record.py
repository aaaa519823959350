"""How much is recorded, as the recipe's [record] section says; and the statistics of every step."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from groupwise.config import parse
from groupwise.runs.records import Records
from groupwise.trainers import train
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.record import RecordConfig


def trained(model: str, directory: Path, **changes: Any) -> Records:
    values: dict[str, Any] = {
        "run": {"directory": str(directory), "num_steps": 3, "seed": 1},
        "model": {"path": model, "device": "cpu", "num_threads": 1},
        "task": {
            "kind": "arithmetic", "kinds": ["sum", "difference"], "digits": [1, 1], "num_problems": 24,
            "num_eval_problems": 3,
        },
        "verifier": {"extraction": "last_number"}, "optimizer": {"lr": 1e-2}, "sampling": {"max_tokens": 6},
        "grpo": {"prompts_per_step": 4, "group_size": 16},
        "evaluation": {"every": 3, "num_problems": 2, "num_samples": 2, "test_problems": 0},
    }  # fmt: skip
    train(parse(GrpoRecipe, values | changes))
    return Records.open(directory)


def test_by_default_every_completion_is_recorded_whole(random_model: str, tmp_path: Path) -> None:
    run = trained(random_model, tmp_path / "run", loss={"epochs": 2, "kl_coef": 0.1})
    assert run.steps() == [0, 1, 2]
    assert run.evaluations() == ["dev-step-000000", "dev-step-000003"]
    assert run.damage == []
    lines = [json.loads(line) for line in (run.path / "rollouts" / "index.jsonl").read_text().splitlines()]
    names = [f"step-{step:06d}" for step in range(3)]
    assert [line["name"] for line in lines] == ["dev-step-000000", *names, "dev-step-000003"]
    assert {line["schema"] for line in lines} == {1}
    for step, facts in zip(run.steps(), [line for line in run.ledger() if "groups" in line], strict=True):
        assert [entry.problem for entry in run.groups(step)] == [group["problem"] for group in facts["groups"]]
        for entry in run.groups(step):
            group = run.group(step, entry.problem)
            assert len(group.completions) == entry.num_completions == 16
            one: Any
            for one in group.completions:
                assert "".join(one.tokens) == one.text
                assert one.after_logprobs is None
                assert one.old == "sampler"  # of the second update
                assert np.abs(one.mismatch).max() < 1e-3
                assert one.kl is not None
    for line in run.metrics():
        spreads = line["distributions"]
        assert len(spreads["grad_norms"]) == 2
        assert spreads["kl_before_last_update"] > 0
        assert spreads["ratio"]["max"] >= spreads["ratio"]["p99"] >= spreads["ratio"]["p50"] > 0
        assert sum(spreads["groups"].values()) == 4
        assert spreads["kl_after_updates"] is None


def test_the_ledger_does_not_depend_on_what_is_recorded(random_model: str, tmp_path: Path) -> None:
    records: dict[str, dict[str, Any]] = {
        "all": {}, "none": {"every": 0}, "few": {"every": 2, "groups": 2, "tokens": "none"},
        "after": {"after_every": 1},
    }  # fmt: skip
    runs = {name: trained(random_model, tmp_path / name, record=record) for name, record in records.items()}
    ledgers = {(tmp_path / name / "ledger.jsonl").read_bytes() for name in records}
    assert len(ledgers) == 1
    assert runs["none"].steps() == []
    assert len(runs["none"].metrics()) == 3
    assert runs["few"].steps() == [0, 2]
    assert [len(runs["few"].groups(step)) for step in (0, 2)] == [2, 2]
    one = runs["few"].group(0, runs["few"].groups(0)[0].problem).completions[0]
    assert (one.token_ids, one.ratio, one.token_ends) == (None, None, None)
    assert one.num_tokens > 0


def test_the_policy_after_the_updates_is_measured_where_it_is_asked_for(random_model: str, tmp_path: Path) -> None:
    run = trained(random_model, tmp_path / "run", record={"after_every": 2})
    for step in run.steps():
        groups = [run.group(step, entry.problem) for entry in run.groups(step)]
        measured = [group.completions[0].after_logprobs is not None for group in groups]
        assert measured == ([True] * 4 if step % 2 == 0 else [False] * 4)
    lines = run.metrics()
    assert [line["distributions"]["kl_after_updates"] is None for line in lines] == [False, True, False]
    changes = [c.change for e in run.groups(0) for c in run.group(0, e.problem).completions if c.change is not None]
    change = np.concatenate(changes).astype(np.float64)
    expected = np.mean(np.exp(change) - 1 - change)
    assert lines[0]["distributions"]["kl_after_updates"] == pytest.approx(expected, rel=1e-3)
    assert lines[0]["distributions"]["kl_before_last_update"] is None  # one update: 0 would be no measurement


def test_groups_that_were_sampled_and_not_kept_stand_there_with_the_reason(random_model: str, tmp_path: Path) -> None:
    grpo = {"prompts_per_step": 4, "group_size": 4, "refill_rounds": 2}
    run = trained(random_model, tmp_path / "run", grpo=grpo)
    entries = [entry for step in run.steps() for entry in run.groups(step)]
    left_out = [entry for entry in entries if entry.discarded]
    assert left_out
    assert len(entries) - len(left_out) == 12
    for entry in left_out:
        assert entry.discarded == (entry.flat or "surplus")
    counts = [found for line in run.metrics() for found in line["distributions"]["groups"].items()]
    assert sum(count for name, count in counts if name.startswith("discarded_")) == len(left_out)
    assert len(entries) == sum(line["sampled_groups"] for line in run.metrics())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"every": 0, "groups": 2}, "groups = 2 has no effect"),
        ({"every": 0, "tokens": "none"}, "tokens = 'none' has no effect"),
        ({"tokens": "sampled", "after_every": 2}, "after_every = 2 has no effect"),
        ({"every": 4, "after_every": 6}, "allowed are its multiples"),
        ({"every": -1}, "greater than or equal to 0"),
    ],
)
def test_settings_without_effect_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RecordConfig.model_validate(values)
