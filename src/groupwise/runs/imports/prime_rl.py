"""Runs of prime-rl: the streams that its file monitor leaves in an output directory (November 2026).

Episodes are in `traces/stream/00000.jsonl`, sealed chunks in `.jsonl.zst`. What became known later is in
`traces/annotations/PRODUCER/00000.jsonl`, {trace_id, info, branches}, and is folded in, the newest last.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from groupwise.errors import DataError
from groupwise.runs.imports.foreign import Answer, Foreign, as_text, finite, renamed
from groupwise.runs.imports.scalars import PRIME

Trace = Mapping[str, Any]


def read_prime_rl(source: Path, scalars: Path | None = None) -> tuple[Foreign, list[str]]:
    """Read an output directory of prime-rl. Raises DataError."""
    damage: list[str] = []
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
    for folder in streams:
        for episode in _lines(folder, damage):
            for trace in _list(episode.get("traces")):
                info = {**_table(trace.get("info")), **later.get(str(trace.get("id")), {})}
                stamps = (_table(info.get(name)).get("step") for name in ("ship", "arrival", "dispatch"))
                step = next((stamp for stamp in stamps if isinstance(stamp, int) and stamp >= 0), None)
                answer = _answer(trace, info, episode)
                if step is not None and answer is not None:
                    (dev if info.get("kind") == "eval" else answers).setdefault(step, []).append(answer)
    numbers: dict[int, dict[str, float]] = {}
    for path in [scalars] if scalars else sorted(source.rglob("metrics*.jsonl")):
        for line in _objects(path, damage):
            if isinstance(step := line.get("step"), int) and (values := renamed(line, PRIME)):
                numbers.setdefault(step, {}).update(values)
    if not answers and not numbers:
        raise DataError(
            f"{source} has no episodes of prime-rl with a reward (folders of 00000.jsonl) and no metrics*.jsonl: its "
            "file monitor writes both into the output directory"
        )
    return Foreign(scalars=numbers, answers=answers, dev=dev), damage


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
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            damage.append(f"{path.name}, line {number}: it is not JSON; the stream ends there")
            return
        if isinstance(value, Mapping):
            yield value
        else:
            damage.append(f"{path.name}, line {number}: it is not an object")


def _answer(trace: Trace, info: Mapping[str, Any], episode: Mapping[str, Any]) -> Answer | None:
    """Return a trace that was judged; one without rewards, such as a judge's own, is no answer."""
    parts: dict[str, float] = {}
    for name, reward in _table(trace.get("rewards")).items():
        score, weight = finite(_table(reward).get("score")), _table(reward).get("weight")
        if score is not None:
            parts[str(name)] = score * (1.0 if weight is None else finite(weight) or 0.0)
    if not parts:
        return None
    messages = [_table(node.get("message")) for node in _list(trace.get("nodes"))]
    first = next((place for place, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    measures = {
        str(name): value for name, raw in _table(trace.get("metrics")).items() if (value := finite(raw)) is not None
    }
    group = str(_table(episode.get("group")).get("id") or "")
    return Answer(
        prompt=_joined(messages[:first]) or group, text=_joined(messages[first:]), reward=sum(parts.values()),
        parts=parts, measures=measures, advantage=finite(info.get("advantage")),
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
