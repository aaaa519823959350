"""A run whose tool never says the same twice: killed and resumed, and replayed, its steps are what they were."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from groupwise.config import parse
from groupwise.trainers import TRAINERS
from groupwise.trainers.replay import replay
from groupwise.trainers.report import StepReport
from groupwise.trainers.rl import train_rl

TOOL = """
import threading
from pathlib import Path
from groupwise.rollout.tools import Call, Tool, ToolResult
from groupwise.types import CallOutcome

ASKED = Path(__file__).with_name("asked.txt")
ALONE = threading.Lock()  # several threads ask at one time

class Oracle(Tool):
    opens = closes = "?"
    immediate = {immediate}

    def look(self, text):
        return Call(text[:-1], 0, closing="!") if text.endswith("?") else None

    def run(self, call, earlier=()):
        with ALONE:
            number = int(ASKED.read_text()) + 1
            ASKED.write_text(str(number))
        return ToolResult(str(number), CallOutcome.DONE)
"""


def kill(report: Any) -> None:
    """End the process after a step was recorded, before anything else."""
    if isinstance(report, StepReport) and report.step == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("algorithm", "immediate"), [("grpo", True), ("grpo", False), ("ppo", False)])
def test_steps_that_are_done_again_need_no_tool(
    random_model: str, tmp_path: Path, algorithm: str, immediate: bool
) -> None:
    (tmp_path / "oracle.py").write_text(TOOL.format(immediate=immediate))
    asked = tmp_path / "asked.txt"
    asked.write_text("0")
    values: dict[str, Any] = {
        "run": {"directory": str(tmp_path / "run"), "num_steps": 4, "seed": 1, "checkpoint_every": 2},
        "model": {"path": random_model, "device": "cpu", "num_threads": 1},
        "task": {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 24, "num_eval_problems": 2},
        "verifier": {"extraction": "last_number"},
        algorithm: {"prompts_per_step": 2, "group_size": 8},
        "sampling": {"max_tokens": 8, "tools": {"oracle": {"kind": f"{tmp_path}/oracle.py:Oracle", "max_calls": 2}}},
        "evaluation": {"every": 4, "num_problems": 1, "num_samples": 1, "test_problems": 0},
    }  # fmt: skip
    trainer = TRAINERS.find(algorithm)
    recipe = parse(trainer.recipe, {"algorithm": algorithm, **values})
    with pytest.raises(KeyboardInterrupt):
        train_rl(recipe, trainer.learner, on_report=kill)
    ledger = tmp_path / "run" / "ledger.jsonl"
    before, rows = ledger.read_text(), pq.read_table(tmp_path / "run" / "rollouts" / "step-000002.parquet").to_pylist()
    called = [row for row in rows if row["sampled"] is not None]
    assert called
    at_kill = int(asked.read_text())
    train_rl(recipe, trainer.learner)
    assert ledger.read_text().startswith(before)  # byte for byte, although the tool would now say something else
    steps = [json.loads(line)["step"] for line in ledger.read_text().splitlines() if '"surrogate"' in line]
    assert steps == [0, 1, 2, 3]
    assert int(asked.read_text()) > at_kill  # by the steps that were never done
    asked.write_text("no number: whoever asks fails")
    one = called[0]
    again = replay(tmp_path / "run", 2, one["problem"], one["sample"])
    assert again.identical
    assert "!" in again.text
