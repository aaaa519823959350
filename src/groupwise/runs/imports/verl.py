"""Runs of verl: completions of `trainer.rollout_data_dir` and `validation_data_dir`, and the lines of the file logger.

`N.jsonl` holds the completions of global step N, an object each with input, output, gts, score, step, and whatever else
the reward function returned; the file logger writes `{"step": N, "data": {"actor/entropy": ...}}`.
"""

from collections.abc import Mapping
from math import nan
from pathlib import Path

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Answer, Foreign, Scalars, as_text, measures_of, number
from groupwise.runs.jsonl import read_jsonl

SCALARS = {
    "actor/pg_loss": "loss", "critic/rewards/mean": "reward", "critic/score/mean": "reward", "actor/entropy": "entropy",
    "actor/entropy_loss": "entropy", "actor/kl_loss": "kl", "actor/grad_norm": "grad_norm", "actor/lr": "lr",
    "actor/pg_clipfrac": "clipped", "response_length/mean": "length", "response_length/clip_ratio": "truncated",
    "critic/vf_explained_var": "explained_variance", "timing_s/gen": "generate_s", "timing_s/reward": "verify_s",
    "timing_s/update_actor": "train_s",
}  # fmt: skip
"""Their names and ours. Their `ppo_kl` has none: it is measured before each mini-batch, ours after the last."""
_OWN = ("input", "output", "gts", "score", "step")


def read_verl(source: Path, scalars: Path | None = None, dev: Path | None = None) -> Foreign:
    """Read directories of verl. Raises DataError."""
    answers = _folder(source)
    if not answers:
        raise DataError(f"{source} has no files N.jsonl of verl: trainer.rollout_data_dir names the folder they are in")
    logged = Scalars(SCALARS)
    for record in read_jsonl(scalars) if scalars else ():
        step, data = record.fields.get("step"), record.fields.get("data")
        if step is None or not isinstance(data, Mapping):
            raise DataError(
                f"{record.place}: a line of verl's file logger has step and data; this has {', '.join(record.fields)}"
            )
        logged.add(step, data, record.place)
    return logged.foreign(answers, None if dev is None else _folder(dev))


def _folder(folder: Path) -> dict[int, list[Answer]]:
    answers: dict[int, list[Answer]] = {}
    for path in (path for path in sorted(folder.glob("*.jsonl")) if path.stem.isdigit()):
        completions: list[Answer] = []
        answers[int(path.stem)] = completions
        for record in read_jsonl(path):
            row = record.fields
            if missing := [name for name in ("input", "output", "score") if name not in row]:
                raise DataError(
                    f"{record.place}: a completion of verl has input, output and score; {', '.join(missing)} is missing"
                )
            score = nan if (value := number(row["score"])) is None else value
            completions.append(Answer(
                prompt=as_text(row["input"]), text=as_text(row["output"]), reward=score, parts={"score": score},
                measures=measures_of(row, _OWN), reference=as_text(row.get("gts")),
            ))  # fmt: skip
    return answers
