"""Runs of TRL's GRPOTrainer: `trainer_state.json` of a checkpoint, and the completions of `log_completions = True`.

`completions/completions_00010.parquet` has the columns step, prompt, completion, one for each reward function, and
advantage; `log_history` of the trainer's state has the scalars, averaged since the last line. A step is the number of
optimizer steps behind it.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Answer, Foreign, as_text, finite, renamed

SCALARS = {
    "reward": "reward", "entropy": "entropy", "kl": "kl", "grad_norm": "grad_norm", "learning_rate": "lr",
    "completions/mean_length": "length", "completion_length": "length",
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
    answers: dict[int, list[Answer]] = {}
    for path in files:
        try:
            for row in pq.read_table(path).to_pylist():
                # a function that was not asked about a completion left NaN: no 0, but no part of the reward either
                numbers = {name: finite(value) for name, value in row.items() if name not in _NO_REWARDS}
                parts = {name: value for name, value in numbers.items() if value is not None}
                answers.setdefault(int(row["step"]), []).append(Answer(
                    prompt=as_text(row["prompt"]), text=as_text(row["completion"]), parts=parts,
                    reward=sum(parts.values()) if parts else None, advantage=finite(row.get("advantage")),
                ))  # fmt: skip
        except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
            raise DataError(f"{path} holds no completions of TRL: {error!r}") from None
    return Foreign(scalars={} if newest is None else _scalars(newest), answers=answers)


def _scalars(path: Path) -> dict[int, dict[str, float]]:
    try:
        history = json.loads(path.read_text(encoding="utf-8"))["log_history"]
        lines = [line for line in history if isinstance(line, Mapping)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no trainer's state: {error!r}") from None
    steps: dict[int, dict[str, float]] = {}
    for line in lines:
        if not isinstance(step := line.get("step"), int) or any(name.startswith("eval_") for name in line):
            continue
        values = renamed(line, SCALARS)
        if (flat := finite(line.get("frac_reward_zero_std"))) is not None:
            values["signal"] = 1 - flat
        for name, value in line.items():
            kind, _, rest = name.partition("/")
            if kind == "rewards" and rest.endswith(("/mean", "/std")) and (number := finite(value)) is not None:
                values[f"part/{rest}"] = number
        if values:
            steps.setdefault(step, {}).update(values)
    return steps
