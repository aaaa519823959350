"""The facts of every page, as plain values. What was not recorded is None or named; nothing here is a guess."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from groupwise.config.schema import value_at
from groupwise.errors import GroupwiseError
from groupwise.explorer.opened import NotThereError, OpenedRun, tell_apart
from groupwise.explorer.results import Result, found_in
from groupwise.explorer.run import columns_of, findings_of, is_number, report_of
from groupwise.explorer.wire import floats, short_hash
from groupwise.runs.ledger import as_json, stamp_of
from groupwise.runs.records import At
from groupwise.runs.row import GroupEntry, GroupRecord, Row

MOST_TEXT = 20_000
MOST_WHOLE_TEXT = 1_000_000
MOST_OF_A_TOKEN = 1_000
_FIGURES = {
    "advantage": "token_advantages", "sampling_logprobs": "sampling_logprobs", "entropy": "entropy", "ratio": "ratio",
    "mismatch": "mismatch", "kl": "kl", "change": "change", "importance": "importance",
    "trainer_logprobs": "trainer_logprobs", "ref_logprobs": "ref_logprobs", "after_logprobs": "after_logprobs",
    "values": "values", "returns": "returns",
}  # fmt: skip
_NO_COLUMNS: dict[str, list[Any]] = {
    name: [] for name in ("group", "sample", "outcome", "reward", "advantage", "length", "finish", "text")
}
MOST_PARTS = 12
MOST_LISTS, MOST_REPORTS = 8, 32  # that are remembered


class Views:
    """The pages' facts of the runs that the command was given.

    Every method raises NotThereError where nothing was recorded at an address, or it cannot be shown, and DataError
    where a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        found = found_in(self._paths)
        self._runs = [OpenedRun(index, path) for index, path in enumerate(found.runs)]
        self._results = [Result(index, *entry) for index, entry in enumerate(found.results)]
        tell_apart(self._runs)
        tell_apart(self._results)
        # each again where the stamp of its file is another one
        self._lists = lru_cache(MOST_LISTS)(lambda index, at, stamp: self._list(self._runs[index], at))
        self._findings = lru_cache(MOST_REPORTS)(lambda index, stamp: findings_of(self._runs[index]))
        self._reports = lru_cache(MOST_REPORTS)(lambda index, stamp: _report(self._runs[index]))

    @property
    def directories(self) -> set[Path]:
        return {run.path for run in self._runs} | {result.path for result in self._results}

    def start(self) -> str:
        """Address of the first page: that of the one run or result which the command was given, or the list."""
        if len(self._paths) != 1 or not (self._runs or self._results):
            return "/"
        return f"/{self._results[0].kind}/0" if self._results else "/run/0"

    def runs(self) -> list[dict[str, Any]]:
        known = {run.path.resolve() for run in self._runs}
        new = [path for path in found_in(self._paths).runs if path.resolve() not in known]
        self._runs += [OpenedRun(len(self._runs) + number, path) for number, path in enumerate(new)]
        tell_apart(self._runs)
        return [self._headline(run) for run in self._runs]

    def results(self) -> list[dict[str, Any]]:
        """Pipelines and measurements, in a few words each; those that have come since are at the end."""
        known = {(result.kind, result.path, result.stage) for result in self._results}
        new = [entry for entry in found_in(self._paths).results if entry not in known]
        self._results += [Result(len(self._results) + number, *one) for number, one in enumerate(new)]
        tell_apart(self._results)
        return [result.headline() for result in self._results]

    def result(self, number: int) -> dict[str, Any]:
        if not 0 <= number < len(self._results):
            raise NotThereError(f"there is no result {number}; there are {len(self._results)}")
        pages = {run.path.resolve(): run.index for run in self._runs}
        pages |= {result.path.resolve(): result.index for result in self._results if result.kind == "budget"}
        return self._results[number].facts(pages)

    @property
    def num_runs(self) -> int:
        return len(self._runs)

    def run(self, index: int) -> dict[str, Any]:
        run = self._run(index)
        places = run.places()
        kinds = set(run.records.kinds()) & {str(at) for at in places.values()}  # each costs a look at all lines
        passes = {kind: line.get("pass_at_1") for kind in kinds for line in run.records.metrics(kind)}
        passes |= {f"dev-step-{line['step']:06d}": line.get("pass_at_1") for line in run.records.metrics("dev")}
        return {
            **self._headline(run), "path": str(run.path), "metrics": columns_of(run.records.metrics("step")),
            "dev": columns_of(run.records.metrics("dev")), "held_out": columns_of(run.records.metrics("held_out")),
            "places": [
                {**_place(key, at), "pass_at_1": _first_number(passes.get(at) if isinstance(at, str) else None)}
                for key, at in places.items()
            ],
        }  # fmt: skip

    def findings(self, index: int) -> dict[str, Any]:
        return self._findings(index, _stamp(self._run(index)))

    def report(self, index: int) -> dict[str, Any]:
        return self._reports(index, _stamp(self._run(index)))

    def place(self, index: int, identifier: str) -> dict[str, Any]:
        run = self._run(index)
        at = run.place(identifier)
        stamp = stamp_of(run.records.directory.rollouts(at))
        facts = self._lists(index, at, stamp)
        steps = [place for place, at in run.places().items() if isinstance(at, int)]
        notices = [*run.notices(), *facts["notices"]]
        return {**facts, "run": run.name, "place": _place(identifier, at), "steps": steps, "notices": notices}

    def _list(self, run: OpenedRun, at: At) -> dict[str, Any]:
        groups = [{"id": short_hash(entry.problem), **entry.facts()} for entry in run.records.groups(at)]
        empty = {"groups": groups, "columns": _NO_COLUMNS, "parts": {}, "notices": []}
        if not groups:
            return empty
        try:
            listed = run.records.listed(at)
            if isinstance(at, str):  # of evaluations, which other ones are compared with: ids may be places in a file
                asked = run.records.table(at, ("problem", "question")).to_pydict()
                questions = dict(zip(asked["problem"], asked["question"], strict=True))
                hashes = {problem: short_hash(text) for problem, text in questions.items() if text}
                groups = [{**one, "question": hashes.get(one["problem"], "")} for one in groups]
        except GroupwiseError as error:
            return {**empty, "notices": [str(error)]}
        numbers = {group["problem"]: number for number, group in enumerate(groups)}
        names = {"length": "num_tokens", "finish": "finish_reason"}
        columns = {name: listed[names.get(name, name)] for name in _NO_COLUMNS if name != "group"}
        columns["reward"], columns["advantage"] = as_json(columns["reward"]), as_json(columns["advantage"])
        columns["group"] = [numbers.get(problem, 0) for problem in listed["problem"]]
        return {**empty, "groups": groups, "columns": columns, "parts": parts_of(listed["reward_parts"])}

    def group(self, index: int, identifier: str, problem: str) -> dict[str, Any]:
        run, at, group = self._group(index, identifier, problem)
        ends, asked = group.prompt_token_ends, group.completions[0]
        return {
            "run": run.name, "place": _place(identifier, at), "problem": group.entry.problem,
            "question": _short(asked.question), "reference": _short(asked.reference), "prompt": _short(group.prompt),
            "prompt_tokens": None if ends is None else _cut(group.prompt, ends), "prompt_ids": group.prompt_token_ids,
            "discarded": group.entry.discarded, "completions": [_summary(row) for row in group.completions],
            "notices": run.notices(), "settings": learn_settings(run.config()[0]),
        }  # fmt: skip

    def completion(self, index: int, identifier: str, problem: str, sample: int) -> dict[str, Any]:
        completions = self.completions(index, identifier, problem)
        if sample not in completions:
            raise NotThereError(f"{self._runs[index].name} has no completion {sample} of this problem there")
        return completions[sample]

    def completions(self, index: int, identifier: str, problem: str) -> dict[int, dict[str, Any]]:
        run, at, group = self._group(index, identifier, problem)
        common = {
            "run": run.name, "place": _place(identifier, at), "problem": group.entry.problem,
            "question": _short(group.completions[0].question), "reference": _short(group.completions[0].reference),
            "samples": [row.sample for row in group.completions], "notices": run.notices(),
        }  # fmt: skip
        found = {}
        for row in group.completions:
            ids, ends, sampled = row.token_ids, row.token_ends, row.sampled
            command = f"groupwise replay {shlex.quote(str(run.path))} --step {at} --problem {shlex.quote(row.problem)}"
            can_replay = isinstance(at, int) and "imported" not in run.config()[0]
            found[row.sample] = {
                **common, **_summary(row, MOST_WHOLE_TEXT), "loss_weight": row.loss_weight,
                "policy_version": row.policy_version, "num_read": 0 if ids is None else len(ids),
                "ids": None if ids is None else ids.tolist(),
                "tokens": None if ends is None else _cut(row.text, ends.tolist()),
                "sampled": None if sampled is None or sampled.all() else sampled.tolist(),
                "bound": None if row.bound is None else row.bound.tolist(),
                "figures": {name: floats(getattr(row, field)) for name, field in _FIGURES.items()},
                "replay": f"{command} --sample {row.sample}" if can_replay else None, "turns": turns_of(row),
            }  # fmt: skip
        return found

    def _run(self, index: int) -> OpenedRun:
        if not 0 <= index < len(self._runs):
            raise NotThereError(f"there is no run {index}; there are {len(self._runs)}")
        run = self._runs[index]
        if trouble := run.trouble():
            raise NotThereError(f"{run.name}: {trouble}")
        return run

    def _group(self, index: int, identifier: str, problem: str) -> tuple[OpenedRun, At, GroupRecord]:
        run = self._run(index)
        at = run.place(identifier)
        return run, at, run.records.group(at, run.problem(at, problem))

    def entries(self, index: int, identifier: str) -> list[GroupEntry]:
        run = self._run(index)
        return run.records.groups(run.place(identifier))

    def _headline(self, run: OpenedRun) -> dict[str, Any]:
        none = dict.fromkeys(("algorithm", "num_steps", "task", "model", "seed", "pass_at_1", "recipe"))
        empty = {"index": run.index, "name": run.name, "done": 0, "finished": False, **none}
        if trouble := run.trouble():
            return {**empty, "notices": [trouble]}
        config, why = run.config()
        lines, dev = run.records.metrics("step"), run.records.metrics("dev")
        of_run = config.get("run")
        without = of_run  # equal for runs that differ in their seed and their place alone
        if isinstance(of_run, Mapping):
            without = {name: value for name, value in of_run.items() if name not in ("seed", "directory")}
        recipe = short_hash(json.dumps({**config, "run": without}, sort_keys=True, default=str))
        return {
            **empty, "algorithm": _text(config.get("algorithm")), "num_steps": _at(config, "run", "num_steps"),
            "task": _text(_at(config, "task", "kind") or _at(config, "task", "name")),
            "model": _text(_at(config, "model", "path")), "seed": _at(config, "run", "seed"),
            "recipe": recipe if config else None, "done": len(lines), "finished": run.records.finished,
            "pass_at_1": _first_number(dev[-1].get("pass_at_1")) if dev else None,
            "notices": [*([why] if why else []), *run.notices()],
        }  # fmt: skip


def _stamp(run: OpenedRun) -> tuple[int, int] | None:
    metrics = run.path / "metrics.jsonl"
    return stamp_of(metrics) if metrics.exists() else None


def _report(run: OpenedRun) -> dict[str, Any]:
    try:
        return report_of(run.path)
    except GroupwiseError as error:
        return {"error": str(error)}
    except Exception as error:  # whatever a damaged or hostile file causes, the page lives and says so
        return {"error": f"there is no report of this run: {error!r}"[:500]}


def learn_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's settings that the page Learn has too, by its names."""
    loss = _at(config, "loss", "policy", "kind")
    found = {
        "estimator": _at(config, "advantage", "kind"), "loss": loss, "aggregation": _at(config, "loss", "aggregation"),
        "kl_coef": _at(config, "loss", "kl_coef"), "kl_estimator": _at(config, "loss", "kl_estimator"),
        "epochs": _at(config, "loss", "epochs"), "max_tokens": _at(config, "sampling", "max_tokens"),
        **{name: _at(config, "loss", "policy", name) for name in ("clip_low", "clip_high", "dual_clip")},
        **{name: _at(config, "loss", "policy", name) for name in ("tau_pos", "tau_neg")},
    }  # fmt: skip
    return {name: value for name, value in found.items() if isinstance(value, str | int | float)}


def _at(table: Any, *names: str) -> Any:
    value = value_at(table, names)
    return None if isinstance(value, Mapping | list) else value


def _first_number(value: Any) -> float | None:
    first = value[0] if isinstance(value, list) and value else value
    return float(first) if is_number(first) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _short(text: str | None) -> str:
    return (text or "")[:MOST_WHOLE_TEXT]


def _place(identifier: str, at: At) -> dict[str, Any]:
    is_step = isinstance(at, int)
    return {"id": identifier, "step": at if is_step else None, "name": f"step {at}" if is_step else at}


def parts_of(texts: Sequence[str | None]) -> dict[str, list[float | None]]:
    """Each part of the reward, as paid, a value per completion; null where a completion has none or it is no number.

    >>> parts_of(['{"accuracy": 1.0}', None, '{"accuracy": 0.0, "format": 0.5}'])
    {'accuracy': [1.0, None, 0.0], 'format': [None, None, 0.5]}
    """
    read: dict[str | None, dict[str, float]] = {}  # ten thousand completions have few different ones
    for text in set(texts):
        try:
            table = json.loads(text or "{}")
        except (ValueError, RecursionError):
            table = {}
        parts = table.items() if isinstance(table, dict) else ()
        read[text] = {name: float(value) for name, value in parts if is_number(value) and math.isfinite(value)}
    names = sorted({name for table in read.values() for name in table})[:MOST_PARTS]
    return {name: [read[text].get(name) for text in texts] for name in names}


def _summary(row: Row, most: int = MOST_TEXT) -> dict[str, Any]:
    return {
        "sample": row.sample, "text": _short(row.text)[:most], "cut": max(0, len(row.text or "") - most),
        "outcome": row.outcome, "finish": row.finish_reason, "answer": _text(row.answer),
        "evidence": _short(row.evidence)[:most],
        "reward": as_json(row.reward), "parts": as_json(row.reward_parts), "measures": as_json(row.measures),
        "advantage": as_json(row.advantage), "length": row.num_tokens,
    }  # fmt: skip


def turns_of(row: Row) -> list[dict[str, Any]]:
    """The turns of an episode as a conversation; empty for any other completion, and where tokens were not recorded."""
    if row.token_ends is None or row.sampled is None:
        return []
    ends, turns, begin = [0, *row.token_ends.tolist()], list[dict[str, Any]](), 0
    for turn in row.turns:
        after = next((i for i in range(turn.end, len(row.sampled)) if row.sampled[i]), len(row.sampled))
        advantage = None if row.token_advantages is None else float(row.token_advantages[turn.end - 1])
        turns.append({
            "said": _short(row.text[ends[begin] : ends[turn.end]]),
            "reply": _short(row.text[ends[turn.end] : ends[after]]),
            "advantage": as_json(advantage), **{name: as_json(value) for name, value in turn._asdict().items()},
        })  # fmt: skip
        begin = after
    return turns


def _cut(text: str, ends: Sequence[int]) -> list[str]:
    return [text[start:end][:MOST_OF_A_TOKEN] for start, end in zip([0, *ends], ends, strict=False)]
