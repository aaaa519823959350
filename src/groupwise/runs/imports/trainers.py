"""Runs of TRL's GRPOTrainer: `trainer_state.json` of a checkpoint, and the completions of `log_completions = True`.

`completions/completions_00010.parquet` has the columns step, prompt, completion, one for each reward function, and
advantage; `log_history` of the trainer's state has the scalars, averaged since the last line. A step is the number of
optimizer steps behind it.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Answer, Foreign, Scalars, as_text, number

SCALARS = {
    "loss": "loss", "reward": "reward", "entropy": "entropy", "kl": "kl", "grad_norm": "grad_norm",
    "learning_rate": "lr", "completions/mean_length": "length", "completion_length": "length",
    "completions/clipped_ratio": "truncated", "clip_ratio/region_mean": "clipped", "clip_ratio": "clipped",
    "step_time": "seconds",
}  # fmt: skip
"""Their names and ours."""
_NO_REWARDS = ("step", "prompt", "completion", "advantage", "mode")


def read_trl(source: Path) -> Foreign:
    """Read an output directory of TRL. Raises DataError."""

    def num_steps(state: Path) -> int:
        digits = state.parent.name.rpartition("-")[2]
        return int(digits) if digits.isdigit() else -1

    states = sorted(source.glob("checkpoint-*/trainer_state.json"), key=num_steps)
    state = source / "trainer_state.json"
    newest = state if state.is_file() else states[-1] if states else None
    files = sorted([*source.glob("completions/completions_*.parquet"), *source.glob("completions_*.parquet")])
    if newest is None and not files:
        raise DataError(
            f"{source} is no output directory of TRL: it has neither trainer_state.json, there or in checkpoint-N, nor "
            "completions/completions_*.parquet (log_completions = True writes them)"
        )
    scalars = Scalars(SCALARS)
    answers: dict[int, list[Answer]] = {}
    for path in files:
        try:
            rows = pq.read_table(path).to_pylist()
            read: dict[int, list[Answer]] = {}
            for row in rows:
                numbers = {name: value for name, raw in row.items()
                           if name not in _NO_REWARDS and (value := number(raw)) is not None}  # fmt: skip
                # a function that was not asked about a completion left NaN: no 0, but no part of the reward either
                parts = {name: value for name, value in numbers.items() if not math.isnan(value)} or numbers
                read.setdefault(int(row["step"]), []).append(Answer(
                    prompt=as_text(row["prompt"]), text=as_text(row["completion"]), parts=parts,
                    reward=sum(parts.values()) if parts else None, advantage=number(row.get("advantage")),
                ))  # fmt: skip
        except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
            if len(files) == 1 and newest is None:
                raise DataError(f"{path} holds no completions of TRL: {error!r}") from None
            scalars.damage.append(f"{path.name} holds no completions of TRL: {error!r}"[:300])
            continue
        for step, some in read.items():
            answers.setdefault(step, []).extend(some)
    if newest is not None:
        try:
            history = json.loads(newest.read_text(encoding="utf-8-sig"))["log_history"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{newest} is no trainer's state: {error!r}") from None
        if not isinstance(history, list):
            raise DataError(f"{newest} is no trainer's state: its log_history is no list")
        for place, line in enumerate(history):
            if not isinstance(line, Mapping):
                scalars.damage.append(f"log_history[{place}] is no table of numbers: {str(line)[:60]}")
                continue
            is_dev = any(name.startswith("eval_") for name in line)
            values = {f"eval_{name.removeprefix('eval_')}" if is_dev else name: value
                      for name, value in line.items() if name != "step"}  # fmt: skip
            scalars.add(line.get("step"), values, f"log_history[{place}]")
    return scalars.foreign(answers)
