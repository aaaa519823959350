"""Runs of verl: completions of `trainer.rollout_data_dir` and `validation_data_dir`, and the lines of the file logger.

`N.jsonl` holds the completions of global step N, an object each with input, output, gts, score, step, and whatever else
the reward function returned; the file logger writes `{"step": N, "data": {"actor/entropy": ...}}`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Answer, Foreign, as_text, finite, renamed

SCALARS = {
    "critic/rewards/mean": "reward", "critic/score/mean": "reward", "actor/entropy": "entropy",
    "actor/entropy_loss": "entropy", "actor/kl_loss": "kl", "actor/grad_norm": "grad_norm", "actor/lr": "lr",
    "actor/pg_clipfrac": "clipped",
    "response_length/mean": "length", "response_length/clip_ratio": "truncated",
    "critic/vf_explained_var": "explained_variance", "timing_s/gen": "generate_s", "timing_s/reward": "verify_s",
    "timing_s/update_actor": "train_s",
}  # fmt: skip
"""Their names and ours. Their `ppo_kl` has none: it is measured before each mini-batch, ours after the last."""
_OWN = ("input", "output", "gts", "score", "step")


def read_verl(source: Path, scalars: Path | None = None, dev: Path | None = None) -> Foreign:
    """Read directories of verl.

    Args:
        source: `trainer.rollout_data_dir`.
        scalars: the file that `trainer.logger = ["file"]` wrote; None: there is none.
        dev: `trainer.validation_data_dir`; None: there is none.

    Raises:
        DataError: there are no completions, or a file cannot be read.
    """
    answers = _folder(source)
    if not answers:
        raise DataError(f"{source} has no files N.jsonl of verl: trainer.rollout_data_dir names the folder they are in")
    return Foreign(
        scalars={} if scalars is None else _scalars(scalars), answers=answers, dev={} if dev is None else _folder(dev)
    )


def _folder(folder: Path) -> dict[int, list[Answer]]:
    found: dict[int, list[Answer]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem.isdigit():
            found[int(path.stem)] = [_answer(row, where) for where, row in _objects(path)]
    return found


def _objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: it is not JSON: {error}") from None
        if not isinstance(value, Mapping):
            raise DataError(f"{where}: an object was expected, this is {type(value).__name__}")
        yield where, value


def _answer(row: Mapping[str, Any], where: str) -> Answer:
    if missing := [name for name in ("input", "output", "score") if name not in row]:
        raise DataError(f"{where}: a completion of verl has input, output and score; {', '.join(missing)} is missing")
    score = finite(row["score"])
    measures = {name: value for name, raw in row.items() if name not in _OWN and (value := finite(raw)) is not None}
    return Answer(
        prompt=as_text(row["input"]), text=as_text(row["output"]), reward=score, measures=measures,
        parts={} if score is None else {"score": score}, reference=as_text(row.get("gts")),
    )  # fmt: skip


def _scalars(path: Path) -> dict[int, dict[str, float]]:
    steps: dict[int, dict[str, float]] = {}
    for where, line in _objects(path):
        step, data = line.get("step"), line.get("data")
        if not isinstance(step, int) or not isinstance(data, Mapping):
            raise DataError(f"{where}: a line of verl's file logger has step and data; this has {', '.join(line)}")
        if found := renamed(data, SCALARS):
            steps.setdefault(step, {}).update(found)
    return steps
