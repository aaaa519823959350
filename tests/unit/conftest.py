"""A small run directory, written by the real writers; and this process as one of several ranks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.runs.directory import RunDirectory, open_run
from groupwise.runs.rollouts import write_rollouts
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict

CONFIG = """algorithm = "grpo"
[run]
num_steps = 4
[model]
path = "base"
[task]
kind = "<arithmetic>"
"""

Sample = tuple[str, Outcome]


def scored(problem: str, samples: Sequence[Sample], step: int = 0) -> ScoredGroup:
    """A group of completions; each has as many tokens as characters."""
    prompt = Prompt(Problem(problem, f"What is {problem}?", "42", "easy"), f"What is {problem}?\n", (1,))
    completions = tuple(_completion(index, text) for index, (text, _) in enumerate(samples))
    verdicts = tuple(Verdict(outcome, {}, f"evidence of {outcome}") for _, outcome in samples)
    return ScoredGroup(Group(prompt, completions, step, 0), verdicts)


def _completion(index: int, text: str) -> Completion:
    zeros = np.zeros(len(text), np.float32)
    reason = FinishReason.STOP if "</think>" in text else FinishReason.LENGTH
    return Completion(index, np.zeros(len(text), np.int64), zeros, zeros, reason, text)


def step_line(step: int, **changed: Any) -> dict[str, Any]:
    """A step's line in metrics.jsonl."""
    line = {
        "kind": "step", "step": step, "reward": 0.25 * step, "signal": 0.5, "entropy": 0.4, "length": 20.0,
        "length_correct": None if step == 0 else 30.0, "length_wrong": 10.0, "verdict_errors": 1,
        "tokens_per_second": 100.0, "sampled_tokens": 1000, "generate_s": 6.0, "verify_s": 1.0, "train_s": 3.0,
    }  # fmt: skip
    return {**line, **changed}


class FakeRun:
    """Writes what a run writes."""

    def __init__(self, path: Path) -> None:
        self.directory: RunDirectory = open_run(path, CONFIG)[0]
        self.path = path

    def steps(self, *steps: int) -> "FakeRun":
        for step in steps:
            self.directory.metrics.append(step_line(step))
        return self

    def evaluation(self, kind: str, step: int, groups: Sequence[ScoredGroup], **more: Any) -> "FakeRun":
        write_rollouts(self.directory.evaluations(f"dev-step-{step:06d}" if kind == "dev" else kind), groups)
        line = {"kind": kind, "step": step, "pass_at_1": [0.5, 0.4, 0.6], "length": 1.0, "truncated": 0.0, **more}
        self.directory.metrics.append(line)
        return self

    def checkpoint(self, step: int) -> "FakeRun":
        self.directory.checkpoint(step).mkdir()
        self.directory.mark_best(step)
        return self


AT_ONCE = "<think>6×7=41</think>\\boxed{41}"
WORKED = "<think>6×7=42. Wait, let me check. 7×6=42.</think>\\boxed{42}"
OPEN = "<think>6×7="


@pytest.fixture
def fake_run(tmp_path: Path) -> FakeRun:
    """A run that has just begun: a recipe, nothing else."""
    return FakeRun(tmp_path / "run")


@pytest.fixture
def finished_run(fake_run: FakeRun) -> FakeRun:
    """Two problems, two samples each: from nothing correct to three of four."""
    wrong, right = (AT_ONCE, Outcome.WRONG), (WORKED, Outcome.CORRECT)
    before = [scored("6×7", [wrong, wrong]), scored("7×6", [wrong, (OPEN, Outcome.UNPARSABLE)])]
    after = [scored("6×7", [right, right]), scored("7×6", [wrong, right])]
    fake_run.evaluation("dev", 0, before, best=True).steps(0, 1, 2, 3).evaluation("dev", 4, after, best=True)
    fake_run.evaluation("test-before", 4, before).evaluation("test-after", 4, after).checkpoint(4)
    fake_run.directory.finished.write_text("{}")
    return fake_run


MakeGroup = Callable[[str, Sequence[Sample]], ScoredGroup]


@pytest.fixture
def group() -> MakeGroup:
    """Makes a scored group of a problem's name and its (text, outcome) pairs."""
    return scored


@pytest.fixture
def as_rank() -> Callable[[int, int], AbstractContextManager[None]]:
    """as_rank(of, rank): this process as one of so many ranks, which send nothing and get nothing."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from groupwise.ranks.group import RANKS

    @contextmanager
    def be(of: int, rank: int) -> Iterator[None]:
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=of)
        RANKS.rank, RANKS.size = rank, of
        try:
            yield
        finally:
            RANKS.rank, RANKS.size = 0, 1
            torch.distributed.destroy_process_group()

    return be
