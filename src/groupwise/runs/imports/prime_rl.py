"""Runs of prime-rl: the streams that its file monitor leaves in an output directory (November 2026).

Episodes are in `traces/stream/00000.jsonl`, sealed chunks in `.jsonl.zst`. What became known later is in
`traces/annotations/PRODUCER/00000.jsonl`, {trace_id, info, branches}, and is folded in, the newest last.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Answer, Foreign, Scalars, as_text, measures_of, number

SCALARS = {
    "train/agg/effective/reward/mean": "reward", "train/agg/all/reward/mean": "reward", "reward/all/mean": "reward",
    "train/agg/effective/is_truncated/mean": "truncated", "train/agg/all/is_truncated/mean": "truncated",
    "entropy/all/mean": "entropy", "entropy/mean": "entropy", "optim/grad_norm": "grad_norm", "optim/lr": "lr",
    "loss/mean": "loss", "time/step": "seconds",
}  # fmt: skip
"""Those of prime-rl's orchestrator and trainer. Its lengths have none: they count the prompt, too."""


def read_prime_rl(source: Path, scalars: Path | None = None) -> Foreign:
    """Read an output directory of prime-rl. Raises DataError."""
    logged = Scalars(SCALARS)
    damage = logged.damage
    streams: list[Path] = []
    notes: list[Path] = []
    for folder in sorted({path.parent for path in source.rglob("[0-9]*.jsonl*")}):
        (notes if "annotations" in folder.parts else streams).append(folder)
    later: dict[str, dict[str, Any]] = {}
    for folder in notes:
        for line in _lines(folder, damage):
            later.setdefault(str(line.get("trace_id")), {}).update(_table(line.get("info")))
    answers: dict[int, list[Answer]] = {}
    dev: dict[int, list[Answer]] = {}
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
            if line.get("step") is not None or line.keys() & SCALARS.keys():  # others are of the inference servers
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
    try:
        with pa.input_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as stream:
            content = stream.read()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
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
    parts: dict[str, float] = {}
    for name, reward in _table(trace.get("rewards")).items():
        raw, weight = _table(reward).get("score", ""), _table(reward).get("weight")
        score = math.nan if raw is None else number(raw)  # its writer makes null of NaN
        if score is not None:
            parts[str(name)] = score * (1.0 if weight is None else number(weight) or 0.0)
    if not parts:
        return None
    messages = [_table(node.get("message")) for node in _list(trace.get("nodes"))]
    first = next((place for place, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    group = str(_table(episode.get("group")).get("id") or "")
    return Answer(
        prompt=_joined(messages[:first]) or group, text=_joined(messages[first:]), reward=sum(parts.values()),
        parts=parts, measures=measures_of(_table(trace.get("metrics"))), advantage=number(info.get("advantage")),
    )  # fmt: skip


def _joined(messages: list[Mapping[str, Any]]) -> str:
    """Return messages as text; of a single one its words alone."""
    if len(messages) == 1:
        return as_text(messages[0].get("content"))
    return "\n".join(f"{message.get('role', '')}: {as_text(message.get('content'))}" for message in messages)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
