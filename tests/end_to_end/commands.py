"""The command line as a person uses it: `main` with its arguments, in this process, and what it prints."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow.parquet as pq

from groupwise.cli.main import main
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import NewModel, new_policy

ROOT = Path(__file__).parents[2]
RECIPE = """
algorithm = "grpo"

[run]
directory = "DIRECTORY"
num_steps = 3
checkpoint_every = 2

[model]
path = "base"
device = "cpu"
num_threads = 1

[task]
kind = "arithmetic"
num_problems = 40
num_eval_problems = 8

[grpo]
prompts_per_step = 4
group_size = 4

[sampling]
max_tokens = 48

[evaluation]
every = 2
num_problems = 4
num_samples = 2
test_problems = 4
test_samples = 2
"""


def save_random(path: Path, tokenizer: Any, **changes: Any) -> Path:
    """Save a model of one layer with random weights."""
    shape: dict[str, Any] = {
        "architecture": "qwen2", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 32, "context_length": 64,
    }  # fmt: skip
    save_checkpoint(path, new_policy(NewModel(**(shape | changes)), tokenizer, ModelConfig(device="cpu")))
    return path


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def groupwise(*arguments: object, columns: int = 200) -> Said:
    """Run a command in this process; an exception that is not an exit is a traceback a user would see."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = ["groupwise", *map(str, arguments)]
    with (
        patch.object(sys, "argv", words),
        patch.dict(os.environ, COLUMNS=str(columns), TERMINAL_WIDTH=str(columns)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 0
    return Said(code, out.getvalue(), err.getvalue())


def succeed(*arguments: object, columns: int = 200) -> str:
    """Run a command that must succeed; returns what it printed."""
    said = groupwise(*arguments, columns=columns)
    assert said.code == 0, said
    return said.out


def refuse(*arguments: object) -> str:
    """Run a command that must end with a sentence on stderr and exit code 2; returns the sentence."""
    said = groupwise(*arguments)
    assert said.code == 2, said
    assert said.err.startswith("groupwise: "), said.err
    assert "Traceback" not in said.err
    return said.err


def write_recipe(folder: Path, directory: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text.replace("DIRECTORY", str(directory)))
    return path


def ledger(run: Path) -> bytes:
    return (run / "ledger.jsonl").read_bytes()


def contents(path: Path) -> dict[str, bytes]:
    """By name, what a directory holds."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


class Trained(NamedTuple):
    """A finished run and what its training printed."""

    path: Path
    recipe: Path
    out: str


def recorded(run: Path, step: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / "rollouts" / f"step-{step:06d}.parquet").to_pylist()
    return rows


def settings(changes: dict[str, object]) -> list[str]:
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


def run_process(*arguments: str) -> tuple[int, bool, str]:
    """Exit code of a real process, whether it loaded torch, and what it said on stderr."""
    code = (
        f"import sys; from groupwise.cli import main; sys.argv = {['groupwise', *arguments]}\n"
        "try: main()\n"
        "finally: print(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines()[-1] == "True", done.stderr
