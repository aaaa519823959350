"""A small ledger, and results that were written by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groupwise_lab.claims import runner
from groupwise_lab.claims.arms import Marks
from groupwise_lab.claims.config import Ledger, load_ledger
from groupwise_lab.claims.results import Result

ARMS = """
directory = "{home}"
[arms.plain]
recipe = "../tiny.toml"
minutes = 0.1
[arms.other]
recipe = "../tiny.toml"
overrides = ["advantage.kind=leave_one_out"]
minutes = 0.2
"""
TINY = """
algorithm = "grpo"
[run]
directory = "runs/tiny"
num_steps = 2
[task]
kind = "arithmetic"
digits = [2, 2]
num_problems = 40
num_eval_problems = 5
[grpo]
prompts_per_step = 2
group_size = 2
[sampling]
max_tokens = 8
[evaluation]
every = 2
num_problems = 2
num_samples = 1
test_problems = 2
test_samples = 2
"""
CLAIM = """
topic = "Advantage"
sentence = "One arm does better than the other one."
source = "A paper (arXiv:0000.00000), section 1"
here = "Both arms on the same problems and draws."
seeds = 3
[statistic]
kind = "difference"
of = "other.after.pass_at_1"
minus = "plain.after.pass_at_1"
claimed = "above"
margin = 0.1
unit = "%"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two arms and one claim, `better`."""
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "arms.toml").write_text(ARMS.format(home=tmp_path / "runs"))
    (folder.parent / "tiny.toml").write_text(TINY)
    (folder / "better.toml").write_text(CLAIM)
    return folder


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the code takes a second for each arm; one test makes it."""
    monkeypatch.setattr(runner, "code_mark", lambda run: "c")


@pytest.fixture
def ledger(folder: Path) -> Ledger:
    """The folder, read."""
    return load_ledger(folder)


@pytest.fixture
def result() -> Callable[..., Result]:
    """Makes a result."""

    def make(arm: str, seed: int, marks: Marks | None = None, **metrics: Any) -> Result:
        marks = marks or Marks("r", "b")
        named = {name.replace("__", "."): value for name, value in metrics.items()}
        return Result(
            arm=arm, seed=seed, recipe=marks.recipe, base=marks.base, code="c", minutes=1.0, machine="here",
            metrics=named,
        )  # fmt: skip

    return make
