"""The loop around steps: ranks that are told to stop at different moments act on it together."""

import ctypes
import math
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.ranks.group import Ranks
from groupwise.runs.directory import RunDirectory
from groupwise.training.config import RunConfig
from groupwise.training.session import Progress, Session, return_memory


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many steps checkpoints were written."""
    steps: list[int] = []
    monkeypatch.setattr(Session, "checkpoint", lambda self, done: steps.append(done))
    return steps


def session(tmp_path: Path, nothing: Any = None) -> Session:
    config = RunConfig(directory=str(tmp_path), num_steps=4, checkpoint_every=3)
    return Session(config, RunDirectory(tmp_path), nothing, Progress(), nothing, nothing)


def told_after(monkeypatch: pytest.MonkeyPatch, saved: list[int], count: int) -> None:
    """Another rank is told to stop as soon as so many checkpoints were written."""
    monkeypatch.setattr(Ranks, "most", lambda self, own: max(own, len(saved) >= count))


def test_what_another_rank_was_told_ends_the_loop_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: list[int]
) -> None:
    told_after(monkeypatch, saved, 1)
    one = session(tmp_path)
    assert list(one.steps()) == [0, 1, 2]
    assert (saved, one.stopping) == ([3], True)


def test_a_rank_that_is_told_while_the_last_checkpoint_is_written_leaves_no_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: list[int]
) -> None:
    told_after(monkeypatch, saved, 2)
    one = session(tmp_path)
    assert list(one.steps()) == [0, 1, 2, 3]
    assert one.stopping  # else this rank would evaluate the test split, and wait for the other


def test_nobody_is_told(tmp_path: Path, saved: list[int]) -> None:
    one = session(tmp_path)
    assert list(one.steps()) == [0, 1, 2, 3]
    assert (saved, one.stopping) == ([3, 4], False)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another allocator than glibc's")
@pytest.mark.parametrize(("available", "returned"), [(0.0, True), (math.inf, False)])
def test_memory_of_freed_tensors_goes_back_where_memory_is_scarce(
    available: float, returned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20

    monkeypatch.setattr("groupwise.training.session.available_memory", lambda device: available)
    kept = [torch.ones(1 << 14) for _ in range(4000)]  # 64 KiB each, 250 MiB
    del kept[::2]  # those that stay keep the heap from shrinking by itself
    before = resident()
    return_memory()
    assert (before - resident() > 60) is returned
