"""What checkpoints keep of a run's progress: also those that earlier versions wrote."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from groupwise.errors import CheckpointError
from groupwise.training.session import Best, Progress

OLD: list[tuple[dict[str, Any], Progress]] = [
    ({"step": 0, "updates_done": 0, "ledger": 0, "metrics": 0}, Progress()),
    (
        {"step": 40, "updates_done": 40, "ledger": 9000, "metrics": 12000, "tokens": 51234},
        Progress(step=40, updates_done=40, ledger=9000, metrics=12000, tokens=51234),
    ),
    (
        {
            "step": 20, "updates_done": 38, "ledger": 8123, "metrics": 7001,
            "best": {"step": 10, "pass_at_1": 0.375},
            "pass_rates": {"problem": {"arithmetic/12x11": 0.5}, "difficulty": {"2x2": 0.25}},
            "sampled_tokens": 777, "ending": True,
        },
        Progress(
            step=20, updates_done=38, ledger=8123, metrics=7001, sampled_tokens=777, best=Best(10, 0.375),
            pass_rates={"problem": {"arithmetic/12x11": 0.5}, "difficulty": {"2x2": 0.25}}, ending=True,
        ),
    ),
]  # fmt: skip
"""As the versions before wrote them after no step, after supervised steps and in the middle of a GRPO run."""


@pytest.mark.parametrize(("facts", "expected"), OLD, ids=["new", "sft", "grpo"])
def test_a_checkpoint_of_an_earlier_version_is_read(facts: dict[str, Any], expected: Progress) -> None:
    assert Progress.read(facts) == expected


@pytest.mark.parametrize(("facts", "progress"), OLD, ids=["new", "sft", "grpo"])
def test_what_is_written_is_read_and_has_every_key_of_before(facts: dict[str, Any], progress: Progress) -> None:
    written = json.loads(json.dumps(asdict(progress)))
    assert Progress.read(written) == progress
    assert {key: written[key] for key in facts} == facts


def test_a_key_that_nobody_would_read_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"has adapters, which this version does not know; known are step, "):
        Progress.read({"step": 1, "adapters": 3})
