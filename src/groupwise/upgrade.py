"""Recipes and run directories of earlier versions: their keys, columns and facts, read as today's.

Each entry of `MOVES` is a key that stands elsewhere today. It is looked for in every table, so that a trainer's key
moves in a pipeline's stage too. A run directory's `config.toml` names every value, so a value that the chosen kind does
not read today, and that is the default it had then, is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from groupwise.types import FinishReason, Outcome

ANY = "*"
"""In a move's keys: any one key; the same one in the old place and in the new."""


class Move(NamedTuple):
    """A key that moved."""

    old: str
    """Its former place, dotted."""
    new: str
    """Its place now."""
    default: Any = None
    """Its default then; an old value equal to it is left out where the new section does not read it."""
    kinds: tuple[str, ...] = ()
    """Kinds of its new section that read it; empty: all of them, but none reads the old default."""
    beside: str = ""
    """It moves only in a table that has this key too; empty: in every one."""
    unless: str = ""
    """It stays in a section that has this key too, where it is another setting of the same name; empty: it never does.
    """


_CLIPPING = ("clipped_ratio", "sequence_ratio", "clipped_weight")

MOVES: tuple[Move, ...] = (
    Move("loss.policy_loss", "loss.policy.kind"),
    Move("loss.clip_low", "loss.policy.clip_low", 0.2, _CLIPPING),
    Move("loss.clip_high", "loss.policy.clip_high", 0.2, _CLIPPING),
    Move("loss.dual_clip", "loss.policy.dual_clip", 0.0, _CLIPPING[:2]),
    Move("loss.tau_pos", "loss.policy.tau_pos", 1.0, ("soft_gate",)),
    Move("loss.tau_neg", "loss.policy.tau_neg", 1.05, ("soft_gate",)),
    Move("loss.max_logprob_difference", "loss.max_logprob_difference", 0.0),
    Move("grpo.advantage", "advantage.kind"),
    Move("task.name", "task.kind", unless="kind"),
    Move("tasks.*.name", "tasks.*.kind", unless="kind"),
    Move("evaluation", "measure", beside="stages"),
)


def upgraded(tables: Mapping[str, Any], newest: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The tables in today's keys, and for each key that moved a sentence that says where it stands.

    Where the old key and the new one are both there, the new one counts; with `newest`, the old one.
    """
    result: dict[str, Any] = _copied(tables)
    said: list[str] = []
    for prefix, table in list(_tables(result)):
        said += [f"{prefix}{sentence}" for sentence in _read_by_kind(table)]
        for move in MOVES:
            if move.beside and move.beside not in table:
                continue
            for bound in list(_bindings(table, move.old.split("."))):
                old, new = (".".join(_bound(path.split("."), bound)) for path in (move.old, move.new))
                if _moved(table, old.split("."), new.split("."), move, newest):
                    said.append(f"{prefix}{old} is {prefix}{new} now")
    return result, said


BASE_MODEL = "base_model"
"""In environment.json: the edition of the base model that the package ships."""
EDITION = "2nd"
"""The edition that it ships today."""


def with_edition(tables: Mapping[str, Any], edition: str | None) -> dict[str, Any]:
    """The tables of a recorded recipe where `base`, which has meant other weights, says which edition it meant.

    `edition` is what was shipped then; None, which environments said before there were two: the first.
    """
    result: dict[str, Any] = _copied(tables)
    if edition != EDITION:
        for _, table in list(_tables(result)):
            table |= {key: f"base-{edition or '1st'}" for key in ("path", "completer") if table.get(key) == "base"}
    return result


def upgraded_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """One record of a file of rollouts with today's columns: the values of a row of an evaluation.

    Older files lack `language` (then it is not known), `prefill` (then a `<think>` that the prompt left open counts),
    `sampled` (then all was) and `open_ended` (then the embedded general prompts are, whose ids say so).
    """
    prompt, sampled = record["prompt"], record.get("sampled")
    begun = "<think>" if "<think>" in prompt.rpartition("</think>")[2] else ""
    columns = {key: value for key, value in record.items() if key not in ("prompt", "sampled")}
    return columns | {
        "language": record.get("language"),
        "prefill": begun if record.get("prefill") is None else record["prefill"],
        "open_ended": record["problem"].startswith("general/")
        if record.get("open_ended") is None
        else record["open_ended"],
        "finish_reason": FinishReason(record["finish_reason"]),
        "outcome": Outcome(record["outcome"]),
        "num_tokens": record["num_read"] if sampled is None else sum(sampled),
        "num_insertions": 0 if sampled is None else _falls(sampled),
    }


def _falls(mask: Sequence[bool]) -> int:
    """How often a mask changes to false, its beginning included."""
    return sum(before and not now for before, now in zip([True, *mask], mask, strict=False))


def upgraded_step(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """A step's line of metrics.jsonl; an older one says the sampled tokens only by their rate and the step's time."""
    if "sampled_tokens" in line or "tokens_per_second" not in line:
        return line
    seconds = sum(line[f"{phase}_s"] for phase in ("generate", "verify", "train"))
    return {**line, "sampled_tokens": round(line["tokens_per_second"] * seconds)}


def upgraded_measurement(task: str, measured: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stage's facts about a task; older ones know open-ended prompts only by the name `general`."""
    return measured if "kind" in measured else {**measured, "kind": "open_ended" if task == "general" else "verified"}


_JUDGES = {
    "arithmetic": "number", "word_problems": "number", "countdown": "countdown", "game24": "countdown",
    "general": "answered", "code": "code", "knights_knaves": "knights_knaves", "zebra": "zebra", "sudoku": "sudoku",
    "takuzu": "takuzu", "json_extraction": "json", "instructions": "instructions", "nim": "game_move",
    "tic_tac_toe": "game_move", "propositional_proofs": "propositional_proof", "minif2f": "lean",
    "equational_proofs": "equational_proof", "coq_statements": "coq", "jsonl": "math",
}  # fmt: skip
"""The verifier of every task, when a recipe could name none."""
_NOT_READ_BY = {"extraction": ("answered", "code", "judge", "routed")}
_READ_BY = {
    "timeout_s": ("math",), "num_workers": ("math",), "partial_credit": ("code", "instructions"),
    "sandbox": ("code", "coq", "lean"), "proof": ("coq", "lean"), "judge": ("judge",),
}  # fmt: skip
"""Settings that used to be in the section of every verifier, and who reads them."""


def _read_by_kind(table: dict[str, Any]) -> list[str]:
    """Put the settings of a section that once was that of all verifiers to those that read them."""
    task, section = table.get("task"), table.get("verifier", {})
    if not isinstance(task, dict) or "name" not in task or not isinstance(section, dict) or "kind" in section:
        return []
    members = [part["task"].get("name") for part in task.get("parts", {}).values()] if task["name"] == "mixture" else []
    main = "routed" if members else _JUDGES.get(task["name"], "math")
    others = {f"verifier.each.{kind}": kind for kind in sorted({_JUDGES.get(name, "math") for name in members})}
    for path, holder in (("evaluation.second_verifier", table.get("evaluation", {})), *_second_parts(section)):
        if isinstance(kind := holder.get(path.rpartition(".")[2]), str):
            others[path] = kind
    said = []
    for dial in (*_NOT_READ_BY, *_READ_BY):
        if dial not in section or _reads(main, dial):
            continue
        value = section.pop(dial)
        for path in [path for path, kind in others.items() if _reads(kind, dial)]:
            _section(table, path.split("."))[dial] = value
            said.append(f"verifier.{dial} is {path}.{dial} now")
    if main == "coq" and isinstance(section.get("proof"), dict):
        section["proof"] = {key: value for key, value in section["proof"].items() if not key.startswith("lean_")}
    return said


def _second_parts(section: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    parts = section.get("parts", {})
    return [(f"verifier.parts.{name}.verifier", part) for name, part in parts.items() if part.get("kind") == "verifier"]


def _reads(kind: str, dial: str) -> bool:
    return kind in _READ_BY[dial] if dial in _READ_BY else kind not in _NOT_READ_BY[dial]


def _moved(table: dict[str, Any], old: list[str], new: list[str], move: Move, newest: bool) -> bool:
    section = _section(table, old[:-1])
    if move.unless in section and not newest:
        return False
    value = section.pop(old[-1])
    target, key = _section(table, new[:-1]), new[-1]
    if value == move.default and target.get("kind") not in move.kinds and not (key in target and newest):
        return False
    today = target.get(key, value)
    target[key] = _over(today, value) if newest else _over(value, today)
    return new != old


def _over(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: _over(below.get(key), value) for key, value in above.items()}


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tables.items()}


def _tables(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """This table and all below it, with what stands before their keys."""
    yield prefix, table
    for key, value in list(table.items()):
        if isinstance(value, dict):
            yield from _tables(value, f"{prefix}{key}.")


def _bindings(table: Any, path: list[str]) -> Iterator[tuple[str, ...]]:
    """For every place of this path that is there, what `ANY` stands for in it."""
    if not path:
        yield ()
    elif isinstance(table, dict):
        for key in list(table) if path[0] == ANY else [path[0]] if path[0] in table else []:
            for rest in _bindings(table[key], path[1:]):
                yield (key, *rest) if path[0] == ANY else rest


def _bound(path: list[str], bound: tuple[str, ...]) -> list[str]:
    names = iter(bound)
    return [next(names) if key == ANY else key for key in path]


def _section(tables: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for name in path:
        if isinstance(tables.get(name), str):  # the kind alone
            tables[name] = {"kind": tables[name]}
        tables = tables.setdefault(name, {})
    return tables
