"""Runs of other trainers: TRL's GRPOTrainer, verl, prime-rl.

TRL: `completions/completions_00010.parquet` (`log_completions = True`) has the columns step, prompt, completion, one
for each reward function, those of `log_extra`, and advantage, and where the step was evaluated the last completions of
that; `log_history` in `trainer_state.json` of a checkpoint has the scalars, averaged since the last line. A step is the
number of optimizer steps behind it.

verl: `N.jsonl` in `trainer.rollout_data_dir` and `validation_data_dir` holds the completions of global step N, an
object each with input, output, gts, score, step, and whatever else the reward function returned; the file logger writes
`{"step": N, "data": {"actor/entropy": ...}}`.

prime-rl (November 2026): its file monitor leaves episodes in `traces/stream/00000.jsonl`, sealed chunks in
`.jsonl.zst`. What became known later is in `traces/annotations/PRODUCER/00000.jsonl`, {trace_id, info, branches}, and
is folded in, the newest last.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.runs.jsonl import opened
from groupwise.runs.row import grouped
from groupwise_lab.imports.foreign import Answer, Foreign, Scalars, as_text, json_lines, measures_of, number, said

TRL = {
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
    scalars = Scalars(TRL)
    drawn: dict[int, list[dict[str, Any]]] = {}
    for path in files:
        try:
            rows = pq.read_table(path).to_pylist()
            if rows and not {"prompt", "completion"} <= rows[0].keys():
                raise KeyError("prompt, completion")
            drawn |= grouped(rows, lambda row: int(row["step"]))
        except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
            if len(files) == 1 and newest is None:
                raise DataError(f"{path} holds no completions of TRL: {error!r}") from None
            scalars.damage.append(f"{path.name} holds no completions of TRL: {error!r}"[:300])
    history: list[Any] = []
    if newest is not None:
        try:
            history = json.loads(newest.read_text(encoding="utf-8-sig"))["log_history"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{newest} is no trainer's state: {error!r}") from None
        if not isinstance(history, list):
            raise DataError(f"{newest} is no trainer's state: its log_history is no list")
    evaluations: dict[float | None, Mapping[str, Any]] = {}
    for place, line in enumerate(history):
        if not isinstance(line, Mapping):
            scalars.damage.append(f"log_history[{place}] is no table of numbers: {str(line)[:60]}")
            continue
        is_dev = any(name.startswith("eval_") for name in line)
        values = {f"eval_{name.removeprefix('eval_')}" if is_dev else name: value
                  for name, value in line.items() if name != "step"}  # fmt: skip
        scalars.add(line.get("step"), values, f"log_history[{place}]")
        if is_dev:
            evaluations[number(line.get("step"))] = line
    # what has a mean in the log is a reward function; other columns of floats may be of `log_extra`
    logged = {name[8:-5] for row in scalars.steps.values() for name in row if re.fullmatch("rewards/.+/mean", name)}
    floats = {name for rows in drawn.values() for row in rows for name, value in row.items() if type(value) is float}
    names = sorted(logged or floats - {*_NO_REWARDS})
    given = {step: np.array([[number(row.get(name)) for name in names] for row in rows], float)
             for step, rows in drawn.items()}  # fmt: skip
    weights = scalars.weights(names, {step: gave for step, gave in given.items() if step not in evaluations})
    answers, dev = dict[int, list[Answer]](), dict[int, list[Answer]]()
    for step, rows in drawn.items():
        every = list[Answer]()
        for row, gave in zip(rows, given[step].tolist(), strict=True):
            # a function that was not asked about a completion left NaN: no 0, but no part of the reward either
            raw = {name: value for name, value in zip(names, gave, strict=True) if not math.isnan(value)}
            parts = {name: weights[name] * value for name, value in raw.items()}
            measures = measures_of(row, (*_NO_REWARDS, *names)) | {n: v for n, v in raw.items() if weights[n] != 1}
            every.append(Answer(
                prompt=as_text(row["prompt"]), text=as_text(row["completion"]), parts=parts, measures=measures,
                reward=sum(parts.values()) if parts else None, advantage=number(row.get("advantage")),
            ))  # fmt: skip
        if step in evaluations:  # written over those of the step, behind as many of these as there is room for
            means = np.array([number(evaluations[step].get(f"eval_rewards/{name}/mean")) for name in names], float)
            tails = ((at, np.ma.masked_invalid(given[step][at:]).mean(axis=0).filled(nan)) for at in range(len(rows)))
            first = next((at for at, tail in tails if np.allclose(tail, means, atol=1e-5, equal_nan=True)), None)
            dev[step] = every[first:]
            if first is None:
                scalars.damage.append(f"step {step}: what is of its evaluation cannot be told; all is kept")
        else:
            answers[step] = every
    return scalars.foreign(answers, dev)


OPENRLHF = {
    "policy_loss": "loss", "entropy_loss": "entropy", "actor_lr": "lr", "response_length": "length",
    "ppo_clip_ratio": "clipped",
}  # fmt: skip
"""Those beside `reward` and `kl` that W&B and TensorBoard get (openrlhf/trainer/ray/ppo_actor.py)."""
VERL = {
    "actor/pg_loss": "loss", "critic/rewards/mean": "reward", "critic/score/mean": "reward", "actor/entropy": "entropy",
    "actor/entropy_loss": "entropy", "actor/kl_loss": "kl", "actor/reward_kl_penalty": "kl", "actor/lr": "lr",
    "actor/grad_norm": "grad_norm", "rollout_corr/rollout_is_eff_sample_size": "effective_samples",
    "actor/pg_clipfrac": "clipped", "response_length/mean": "length", "response_length/clip_ratio": "truncated",
    "critic/vf_explained_var": "explained_variance", "timing_s/gen": "generate_s", "timing_s/reward": "verify_s",
    "timing_s/update_actor": "train_s",
}  # fmt: skip
"""Their names and ours. Their `ppo_kl` has none: it is measured before each mini-batch, ours after the last."""
_OWN = ("input", "output", "gts", "score", "step")


def read_verl(source: Path, scalars: Path | None = None, dev: Path | None = None) -> Foreign:
    """Read directories of verl. Raises DataError."""
    logged = Scalars(VERL)
    answers = _folder(source, logged.damage)
    if not answers:
        unread = "".join(f"; {fault}" for fault in logged.damage)
        raise DataError(
            f"{source} has no files N.jsonl of verl with completions: trainer.rollout_data_dir names the folder they "
            f"are in{unread}"
        )
    for place, line in json_lines(scalars, logged.damage) if scalars else ():
        step, data = line.get("step"), line.get("data")
        if step is None or not isinstance(data, Mapping):
            raise DataError(f"{place}: a line of verl's file logger has step and data; this has {', '.join(line)}")
        logged.add(step, data, place)
    return logged.foreign(answers, None if dev is None else _folder(dev, logged.damage))


def _folder(folder: Path, damage: list[str]) -> dict[int, list[Answer]]:
    answers: dict[int, list[Answer]] = {}
    for path in (path for path in sorted(folder.glob("*.jsonl")) if path.stem.isdigit()):
        for place, row in json_lines(path, damage):
            if missing := [name for name in ("input", "output", "score") if name not in row]:
                raise DataError(
                    f"{place}: a completion of verl has input, output and score; {', '.join(missing)} is missing"
                )
            score = nan if (value := number(row["score"])) is None else value
            answers.setdefault(int(path.stem), []).append(Answer(
                prompt=as_text(row["input"]), text=as_text(row["output"]), reward=score, parts={"score": score},
                measures=measures_of(row, _OWN), reference=as_text(row.get("gts")),
            ))  # fmt: skip
    return answers


PRIME_RL = {
    "train/agg/effective/reward/mean": "reward", "train/agg/all/reward/mean": "reward", "reward/all/mean": "reward",
    "train/agg/effective/is_truncated/mean": "truncated", "train/agg/all/is_truncated/mean": "truncated",
    "entropy/all/mean": "entropy", "entropy/mean": "entropy", "optim/grad_norm": "grad_norm", "optim/lr": "lr",
    "loss/mean": "loss", "time/step": "seconds",
}  # fmt: skip
"""Those of prime-rl's orchestrator and trainer. Its lengths have none: they count the prompt, too."""


def read_prime_rl(source: Path, scalars: Path | None = None) -> Foreign:
    """Read an output directory of prime-rl. Raises DataError."""
    logged = Scalars(PRIME_RL)
    damage = logged.damage
    streams, notes = list[Path](), list[Path]()
    for folder in sorted({path.parent for path in source.rglob("[0-9]*.jsonl*")}):
        (notes if "annotations" in folder.parts else streams).append(folder)
    later: dict[str, dict[str, Any]] = {}
    for folder in notes:
        for line in _lines(folder, damage):
            later.setdefault(str(line.get("trace_id")), {}).update(_table(line.get("info")))
    answers, dev = dict[int, list[Answer]](), dict[int, list[Answer]]()
    num_stray = 0
    for folder in streams:
        for episode in _lines(folder, damage):
            for trace in _list(episode.get("traces")):
                info = {**_table(trace.get("info")), **later.get(str(trace.get("id")), {})}
                stamps = (_table(info.get(name)).get("step") for name in ("ship", "arrival", "dispatch"))
                step = next((stamp for stamp in stamps if isinstance(stamp, int) and stamp >= 0), None)
                answer = _answer(trace, info, episode)
                num_stray += answer is not None and step is None
                if step is not None and answer is not None:
                    (dev if info.get("kind") == "eval" else answers).setdefault(step, []).append(answer)
    if num_stray:
        damage.append(f"{num_stray} completions with a reward have no step and are left out")
    for path in [scalars] if scalars else sorted(source.rglob("metrics*.jsonl")):
        for line in _objects(path, damage):
            if line.get("step") is not None or line.keys() & PRIME_RL.keys():  # others are of the inference servers
                values = {name: value for name, value in line.items() if name not in ("step", "time")}
                logged.add(line.get("step"), values, path.name)
    if not answers and not logged.steps:
        raise DataError(
            f"{source} has no episodes of prime-rl with a reward (folders of 00000.jsonl) and no metrics*.jsonl: its "
            "file monitor writes both into the output directory"
        )
    return logged.foreign(answers, dev)


def _lines(folder: Path, damage: list[str]) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.glob("[0-9]*.jsonl*")):
        if path.suffix in (".jsonl", ".zst"):
            yield from _objects(path, damage)


def _objects(path: Path, damage: list[str]) -> Iterator[Mapping[str, Any]]:
    """Read the objects of a file; a line that is cut is its last, as prime-rl reads it, too."""
    with opened(path) as file:
        content = file.read()
    for place, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            damage.append(f"{path.name}, line {place}: it is not JSON; the stream ends there")
            return
        if isinstance(value, Mapping):
            yield value
        else:
            damage.append(f"{path.name}, line {place}: it is not an object")


def _answer(trace: Mapping[str, Any], info: Mapping[str, Any], episode: Mapping[str, Any]) -> Answer | None:
    """Return a trace that was judged; one without rewards, such as a judge's own, is no answer."""
    parts, measures = dict[str, float](), measures_of(_table(trace.get("metrics")))
    for name, reward in _table(trace.get("rewards")).items():
        raw, weight = _table(reward).get("score", ""), _table(reward).get("weight")
        score = math.nan if raw is None else number(raw)  # its writer makes null of NaN
        if score is not None:
            parts[str(name)] = score * (1.0 if weight is None else number(weight) or 0.0)
            if parts[str(name)] != score:
                measures[str(name)] = score  # what says that an answer is correct is not what that pays
    if not parts:
        return None
    messages = [_table(node.get("message")) for node in _list(trace.get("nodes"))]
    first = next((place for place, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    group = str(_table(episode.get("group")).get("id") or "")
    return Answer(
        prompt=_joined(messages[:first]) or group, text=_joined(messages[first:]), reward=sum(parts.values()),
        parts=parts, measures=measures, advantage=number(info.get("advantage")),
    )  # fmt: skip


def _joined(messages: list[Mapping[str, Any]]) -> str:
    """Return messages as text; of a single one its words alone."""
    if len(messages) == 1:
        return said(messages[0])
    return "\n".join(f"{message.get('role', '')}: {said(message)}" for message in messages)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
