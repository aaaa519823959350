"""Rows of labelled steps: TRL's stepwise columns `prompt`, `completions` (the steps) and `labels`, with provenance.

A label is true or false, or the chance from 0 to 1 that the step is right; null: nobody knows, and nothing is learnt
from it. Joined, the steps are the completion.

Files in the formats of others are read, too. `big_bench_mistake`: `input, steps, target, answer, mistake_index`.
`mr_gsm8k`: `question, model_output_steps` and the first mistake counted from 1. `processbench` (arXiv:2412.06559):
`problem, steps, label`, -1 without a mistake. `math_shepherd` (arXiv:2312.08935): `input` with a mark behind every step
and `label` with + or - in its place. `prm800k` (Lightman et al. 2023, arXiv:2305.20050): people's ratings -1, 0, 1 of
the steps that were continued, and of alternatives to each. `math_aps` (OmegaPRM's trees, arXiv:2406.06592): shares of
right rollouts from prefixes. Where only the first mistake is known, nothing is known of the steps behind it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args

from groupwise.errors import ConfigError, DataError
from groupwise.tasks.data_files import read_file


@dataclass(frozen=True, slots=True)
class StepRow:
    """A completion cut into steps, with what is known of each."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    """Of each step, the chance from 0 to 1 that it is right; None where nobody knows."""
    problem: str = ""
    split: str = "train"
    difficulty: str = ""
    final_answer_correct: bool | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    rendered: bool = False
    """True where a chat template wrote the prompt."""

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.steps):
            raise DataError(f"{len(self.labels)} labels for {len(self.steps)} steps: one for each is allowed")
        if not self.steps or not all(self.steps):
            raise DataError("no step, or a step without text: at least one step is needed, each with text")
        for label in self.labels:
            if label is not None and not (math.isfinite(label) and 0 <= label <= 1):
                raise DataError(f"the label {label}: true, false, null and numbers from 0 to 1 are allowed")

    @property
    def first_error(self) -> int | None:
        return first_wrong(self.labels)

    def record(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt, "completions": list(self.steps), "labels": list(self.labels),
            "problem": self.problem, "split": self.split, "difficulty": self.difficulty,
            "final_answer_correct": self.final_answer_correct, "first_error": self.first_error,
            "rendered": self.rendered, **self.provenance,
        }  # fmt: skip


def first_wrong(labels: Sequence[float | None]) -> int | None:
    """Index of the first label below 1/2; None without one.

    >>> first_wrong([1.0, None, 0.2])
    2
    """
    return next((i for i, label in enumerate(labels) if label is not None and label < 0.5), None)


OWN = frozenset(StepRow("p", ("s",), (1.0,)).record())
"""Columns that are not provenance."""


def _groupwise(record: Mapping[str, Any]) -> StepRow:
    prompt, steps, labels = (record.get(key) for key in ("prompt", "completions", "labels"))
    if not isinstance(prompt, str) or not isinstance(steps, list) or not isinstance(labels, list):
        raise DataError("prompt (text), completions (a list of steps) and labels (a list) are needed")
    if not all(isinstance(step, str) for step in steps):
        raise DataError("every step must be a text")
    for label in labels:
        if not (label is None or isinstance(label, bool | int | float)):
            raise DataError(f"the label {label!r}: true, false, null and numbers from 0 to 1 are allowed")
    named = {"problem": "", "split": "train", "difficulty": "", "rendered": False}
    named |= {key: value for key, value in record.items() if value is not None}
    return StepRow(
        prompt, tuple(steps), tuple(None if label is None else float(label) for label in labels),
        str(_of(named, "problem", str, int)), _of(named, "split", str), str(_of(named, "difficulty", str, int, float)),
        _of({"final_answer_correct": None, **record}, "final_answer_correct", bool, NoneType),
        {key: value for key, value in record.items() if key not in OWN}, _of(named, "rendered", bool),
    )  # fmt: skip


_KINDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", NoneType: "null",
}  # fmt: skip


def _of(record: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """Return a field of one of these types (DataError: of another); true and false are no numbers."""
    value = record[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise DataError(f"field {name!r} is {value!r:.60}; {' or '.join(_KINDS[kind] for kind in kinds)} is needed")
    return value


def _one_of(record: Mapping[str, Any], name: str, yes: str, no: str) -> bool:
    if record[name] not in (yes, no):
        raise DataError(f"field {name!r} is {record[name]!r:.60}; {yes!r} and {no!r} are allowed")
    return bool(record[name] == yes)


def check_training_rows(rows: Sequence[StepRow], path: str) -> None:
    """Check that a model may learn from the rows."""
    if held_out := [row for row in rows if row.split != "train"]:
        raise DataError(
            f"{path}: {len(held_out)} rows are of the {held_out[0].split} split (the first: problem "
            f"{held_out[0].problem or held_out[0].prompt[:60]!r}); only rows of the training split may be learnt from"
        )
    labelled(rows, path)


def check_apart(rows: Sequence[StepRow], path: str, others: Sequence[StepRow], where: str, why: str) -> None:
    """Check that no problem is in both files."""
    if common := {row.problem or row.prompt for row in rows} & {row.problem or row.prompt for row in others}:
        raise DataError(
            f"{where} and {path} share {len(common)} problems (for example {min(common)[:60]!r}): {why}; allowed are "
            "rows of other problems"
        )


def labelled(rows: Sequence[StepRow], path: str | Path, *, last: bool = False) -> list[StepRow]:
    """Return the rows of which something is known, or their last step; raises DataError where there is none."""
    if known := [row for row in rows if any(label is not None for label in row.labels[-1 if last else 0 :])]:
        return known
    raise DataError(f"{path}: no {'last ' if last else ''}step has a label")


Format = Literal["groupwise", "big_bench_mistake", "mr_gsm8k", "processbench", "math_shepherd", "prm800k", "math_aps"]
MARK = "ки"
"""The mark behind every step in Math-Shepherd."""
_SIGN = re.compile(r" ([+-])(?=\n|$)")


def read_steps(path: str | Path, format: str = "groupwise") -> list[StepRow]:
    """Read a file of labelled steps (ConfigError: unknown format; DataError: names file, line and what is wrong).

    Of a foreign format every row says its line in its provenance.
    """
    if format not in get_args(Format):
        raise ConfigError(f"format {format!r}: allowed are {', '.join(get_args(Format))}")
    rows = list[StepRow]()
    for record in read_file(path):
        try:
            read = _READERS[format](record.fields)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"{record.place} is not of this format: {type(error).__name__} {error}") from None
        except DataError as error:
            raise DataError(f"{record.place}: {error}") from None
        origin = {"format": format, "line": record.number} if format != "groupwise" else {}
        for row in read if isinstance(read, list) else [read]:
            rows.append(replace(row, provenance={**row.provenance, **origin}))
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def _until(error: int | None, steps: Sequence[str]) -> tuple[float | None, ...]:
    if error is None:
        return (1.0,) * len(steps)
    if not 0 <= error < len(steps):
        raise DataError(f"the first mistake is step {error} of {len(steps)} steps (counted from 0)")
    return (*[1.0] * error, 0.0, *[None] * (len(steps) - error - 1))


def _lines(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    steps = _of(record, name, list)
    return tuple(f"{_of({f'{name}.{index}': step}, f'{name}.{index}', str)}\n" for index, step in enumerate(steps))


def _big_bench_mistake(record: Mapping[str, Any]) -> StepRow:
    steps = _lines(record, "steps")
    answer = str(_of(record, "answer", str, int, NoneType)).strip()
    target = str(_of(record, "target", str, int)).strip()
    right, labels = answer == target, _until(_of(record, "mistake_index", int, NoneType), steps)
    return StepRow(f"{record['input']}\n", steps, labels, split="test", final_answer_correct=right)


def _mr_gsm8k(record: Mapping[str, Any]) -> StepRow:
    steps = _lines(record, "model_output_steps")
    is_right = _one_of(record, "model_output_solution_correctness", "correct", "wrong")
    error = None if is_right else int(record["model_output_solution_first_error_step"]) - 1
    right = _one_of(record, "model_output_answer_correctness", "correct", "wrong")
    return StepRow(f"{record['question']}\n", steps, _until(error, steps), record["uuid"], "test", "", right)


def _processbench(record: Mapping[str, Any]) -> StepRow:
    steps, label = _lines(record, "steps"), _of(record, "label", int)
    labels, right = _until(None if label == -1 else label, steps), _of(record, "final_answer_correct", bool)
    return StepRow(f"{record['problem']}\n", steps, labels, str(record["id"]), "test", "", right)


def _math_shepherd(record: Mapping[str, Any]) -> StepRow:
    *steps, rest = record["input"].split(f" {MARK}")
    signs = _SIGN.findall(record["label"])
    if rest.strip() or len(signs) != len(steps):
        raise DataError(f"{len(signs)} labels for {len(steps)} steps: one behind each step is allowed")
    prompt, begin, first = steps[0].rpartition("Step 1:")
    if not begin:
        raise DataError("no step is called 'Step 1:'")
    return StepRow(prompt, (begin + first, *steps[1:]), tuple(float(sign == "+") for sign in signs))


_RATINGS = {-1: 0.0, 0: 1.0, 1: 1.0, None: None}
"""Labels by PRM800K's ratings; its authors count 0, neutral, as positive."""
_FOUND = {"solution": True, "found_error": False}


def _prm800k(record: Mapping[str, Any]) -> list[StepRow]:
    """The path that people went on from, and a row of each alternative to a step of it, which alone has a label.

    Where nothing was good enough the labeller wrote the step, which nobody rated; where that is missing too the path
    ends with the first of the rated ones.
    """
    label = record["label"]
    prompt, right = f"{record['question']['problem']}\n", _FOUND.get(label["finish_reason"])
    path, labels, rows = list[str](), list[float | None](), list[StepRow]()
    for number, step in enumerate(label["steps"]):
        rated = [(f"{one['text']}\n", _RATINGS[one["rating"]]) for one in step["completions"] or []]
        chosen, human = step["chosen_completion"], step["human_completion"]
        if chosen is None and human is not None:
            taken: tuple[str, float | None] = (f"{human['text']}\n", None)
        elif rated:
            taken = rated[chosen or 0]
        else:
            break
        source = {"path": "alternative", "step": number}
        rows += [
            StepRow(prompt, (*path, text), (*[None] * number, value), final_answer_correct=None, provenance=source)
            for text, value in rated
            if (text, value) != taken
        ]
        path.append(taken[0])
        labels.append(taken[1])
        if chosen is None and human is None:
            break
    whole = [StepRow(prompt, tuple(path), tuple(labels), final_answer_correct=right, provenance={"path": "taken"})]
    return [*(whole if path else []), *rows]


def _math_aps(record: Mapping[str, Any]) -> list[StepRow]:
    """A row of every prefix that no other goes on from; what its own prefixes end are its steps."""
    question = record["question"]
    worth = {one["solution_prefix"]: float(_of(one, "mc_value", int, float)) for one in record["reasoning_steps"]}
    prefixes = sorted(prefix for prefix in worth if prefix != question and prefix.startswith(question))
    rows = []
    for place, prefix in enumerate(prefixes):
        if any(other.startswith(prefix) for other in prefixes[place + 1 : place + 2]):
            continue  # in order the next text is the first that could go on from it
        chain = [one for one in prefixes[: place + 1] if prefix.startswith(one)]
        steps = [text[len(before) :] for before, text in zip([question, *chain], chain, strict=False)]
        rows.append(StepRow(question, tuple(steps), tuple(worth[one] for one in chain), str(record["question_id"])))
    return rows


_READERS: dict[str, Callable[[Mapping[str, Any]], StepRow | list[StepRow]]] = {
    "groupwise": _groupwise,
    "big_bench_mistake": _big_bench_mistake,
    "mr_gsm8k": _mr_gsm8k,
    "processbench": _processbench,
    "math_shepherd": _math_shepherd,
    "prm800k": _prm800k,
    "math_aps": _math_aps,
}
