"""The path of a newcomer: the blocks of docs/learn/start.md, literally and in order, where there is no checkout.

Installing is what tests/slow/test_release.py tests; here `pip install groupwise` does nothing. Commands that train get
smaller settings behind what the page says, by a command of the same name that comes first in the path.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "learn" / "start.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TINY = (
    "run.num_steps=1", "grpo.prompts_per_step=2", "grpo.group_size=4", "sampling.max_tokens=48",
    "evaluation.num_problems=4", "evaluation.num_samples=1",
)  # fmt: skip
DEMO = ("evaluation.test_problems=4", "evaluation.test_samples=1", "task.num_problems=40", "optimizer.warmup_steps=0")
WRAPPER = """#!/bin/sh
set -e
case "$1" in
  demo) set -- "$@" {tiny} {demo} ;;
  train) set -- "$@" {tiny} ;;
  preflight) set -- "$@" --problems 4 --samples 2 ;;
esac
exec {python} -m groupwise "$@"
"""


def flags(changes: tuple[str, ...]) -> str:
    return " ".join(f"--set {change}" for change in changes)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A folder with commands before all others: groupwise with smaller settings; installing is done already."""
    folder = tmp_path / "commands"
    folder.mkdir()
    wrapper = WRAPPER.format(tiny=flags(TINY), demo=flags(DEMO), python=sys.executable)
    for name, text in {"groupwise": wrapper, "pip": '#!/bin/sh\n[ "$*" = "install groupwise" ]\n'}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
def test_a_newcomer_follows_the_first_chapter_to_its_end(tmp_path: Path, path: str) -> None:
    script = "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    assert script.count("\ngroupwise ") >= 8
    install, _, rest = script.partition("pip install groupwise\n")
    assert install == "python3 -m venv .venv\n. .venv/bin/activate\n"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        ["sh", "-ex"], input=f"pip install groupwise\n{rest}", cwd=tmp_path, env=environment, capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said
    for words in ("What is 23 × 17?", "correct  reward 1.1", "0 of 101 reference answers", "wrong  reward 0.186"):
        assert words in said.stdout
    for file in ("runs/arithmetic/report.html", "page.html", "runs/mine/report.html"):
        assert (tmp_path / file).is_file(), said.stdout
