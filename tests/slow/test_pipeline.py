"""Killed ten times at random moments, a pipeline ends in the same files as if nothing had happened (minutes)."""

import importlib
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))  # started processes take this path over
small = importlib.import_module("small_pipeline")

KILLS = 10


@pytest.mark.slow
def test_a_pipeline_killed_ten_times_ends_in_the_same_files(tmp_path: Path) -> None:
    expected, killed = (tmp_path / name / "r1" for name in ("uninterrupted", "killed"))
    began = time.monotonic()
    process = small.start(small.overrides(expected))
    process.join()
    assert process.exitcode == 0
    duration = time.monotonic() - began
    draw, kills = random.Random(0), 0
    while kills < KILLS:  # what was done is kept, so these moments lie all over the way
        process = small.start(small.overrides(killed))
        process.join(draw.uniform(0.02, 0.12) * duration)
        if not process.is_alive():
            break
        process.kill()
        process.join()
        kills += 1
    process = small.start(small.overrides(killed))
    process.join()
    assert process.exitcode == 0
    assert kills == KILLS
    small.assert_same(killed, expected)
