"""Labelled steps in the formats of others, read as `StepRow`s.

`big_bench_mistake`: `input, steps, target, answer, mistake_index`. `mr_gsm8k`: `question, model_output_steps` and the
first mistake counted from 1. `processbench` (arXiv:2412.06559): `problem, steps, label`, -1 without a mistake.
`math_shepherd` (arXiv:2312.08935): `input` with a mark behind every step and `label` with + or - in its place. Where
only the first mistake is known, nothing is known of the steps behind it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from groupwise.errors import ConfigError, DataError
from groupwise.tasks.step_rows import StepRow, read_step_rows, records

Format = Literal["groupwise", "big_bench_mistake", "mr_gsm8k", "processbench", "math_shepherd"]
MARK = "ки"
"""What Math-Shepherd writes behind every step."""
_SIGN = re.compile(r" ([+-])(?=\n|$)")


def read_steps(path: str | Path, format: str = "groupwise") -> list[StepRow]:
    """Read a file of labelled steps.

    Raises:
        ConfigError: the format is unknown.
        DataError: names the file, the line and what is wrong with it.
    """
    if format not in get_args(Format):
        raise ConfigError(f"format {format!r}: allowed are {', '.join(get_args(Format))}")
    if format == "groupwise":
        return read_step_rows(path)
    rows = [_row(record, f"{path}, line {number}", _READERS[format]) for number, record in records(path)]
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


Reader = Callable[[Mapping[str, Any]], StepRow]


def _row(record: Mapping[str, Any], where: str, reader: Reader) -> StepRow:
    try:
        return reader(record)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{where} is not of this format: {type(error).__name__} {error}") from None
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _until(error: int | None, steps: Sequence[str]) -> tuple[float | None, ...]:
    """Right up to the first mistake, wrong there, unknown behind it."""
    if error is None:
        return (1.0,) * len(steps)
    if not 0 <= error < len(steps):
        raise DataError(f"the first mistake is step {error} of {len(steps)} steps (counted from 0)")
    return (*[1.0] * error, 0.0, *[None] * (len(steps) - error - 1))


def _lines(steps: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{step}\n" for step in steps)


def _big_bench_mistake(record: Mapping[str, Any]) -> StepRow:
    steps = _lines(record["steps"])
    right = str(record["answer"]).strip() == str(record["target"]).strip()
    labels = _until(record["mistake_index"], steps)
    return StepRow(f"{record['input']}\n", steps, labels, split="test", final_answer_correct=right)


def _mr_gsm8k(record: Mapping[str, Any]) -> StepRow:
    steps = _lines(record["model_output_steps"])
    is_right = record["model_output_solution_correctness"] == "correct"
    error = None if is_right else int(record["model_output_solution_first_error_step"]) - 1
    right = record["model_output_answer_correctness"] == "correct"
    return StepRow(f"{record['question']}\n", steps, _until(error, steps), record["uuid"], "test", "", right)


def _processbench(record: Mapping[str, Any]) -> StepRow:
    steps, label = _lines(record["steps"]), int(record["label"])
    labels, right = _until(None if label == -1 else label, steps), bool(record["final_answer_correct"])
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


_READERS: dict[str, Reader] = {
    "big_bench_mistake": _big_bench_mistake,
    "mr_gsm8k": _mr_gsm8k,
    "processbench": _processbench,
    "math_shepherd": _math_shepherd,
}
