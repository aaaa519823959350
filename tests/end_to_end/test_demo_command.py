"""`groupwise demo` in tiny form: it needs no checkout and leaves what the documents say."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app

SMALL = (
    "run.num_steps=1", "task.num_problems=40", "task.num_eval_problems=8", "grpo.prompts_per_step=2",
    "grpo.group_size=4", "sampling.max_tokens=48", "evaluation.every=1", "evaluation.num_problems=4",
    "evaluation.num_samples=1", "evaluation.test_problems=4", "evaluation.test_samples=1", "optimizer.warmup_steps=0",
)  # fmt: skip
WORDS = ["demo", *(word for change in SMALL for word in ("--set", change))]


def test_the_demo_trains_measures_and_answers_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, WORDS, catch_exceptions=False).stdout
    assert "pass@1, %" in said
    assert "What is 23 × 17?" in said
    assert "Next: groupwise explore runs/arithmetic" in said
    assert (tmp_path / "runs" / "arithmetic" / "report.html").is_file()
