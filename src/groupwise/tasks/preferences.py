"""Preference pairs: two completions of one prompt, of which one was preferred; from a file, or made from a task.

Pairs made from a task differ in one digit of the result, or are labelled by the hidden rule (`generated_pairs`).

A file holds plain text, or conversations as lists of messages (`{"role": ..., "content": ...}`), as data sets of the
Hugging Face hub do: with the prompt's messages in a field of their own, or at the beginning of both conversations.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypedDict

from pydantic import Field, model_validator

from groupwise.artifacts import DataRef
from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.randomness import Draw, key
from groupwise.runs.atomic import write_file
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import Template
from groupwise.tasks.generated_pairs import GeneratedPairs, labelled_pairs, shown
from groupwise.tasks.jsonl_records import Record, read_file
from groupwise.types import Problem


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


Said = str | list[Message]
"""Plain text, or messages that the tokenizer's chat template will render."""


class Pair(NamedTuple):
    """A prompt and two completions; all three are text, or all three are messages."""

    prompt: Said
    chosen: Said
    rejected: Said
    margin: float = 0.0
    """How much better the chosen one is, in units of the score."""


class Pairs(NamedTuple):
    """Pairs to learn from and pairs to measure on; no prompt stands in both."""

    train: list[Pair]
    held_out: list[Pair]


class PairsFile(Section):
    """Pairs from a file."""

    source: Literal["file"] = "file"
    """Says that the pairs come from a file."""
    path: DataRef
    """`.jsonl` (one object a line) or `.json` (a list of objects)."""
    prompt_field: str = "prompt"
    """Field with the prompt; need not be there where the conversations begin with it."""
    chosen_field: str = "chosen"
    """Field with the preferred completion."""
    rejected_field: str = "rejected"
    """Field with the other one."""
    margin_field: str | None = None
    """Field with how much better the preferred one is, in units of the score; None: no margin."""
    held_out: float = Field(0.1, ge=0, lt=1)
    """Share of the prompts that is not trained but measured on; which ones is a function of the prompt alone."""


class TaskPairs(Section):
    """Pairs made from a task: its ideal answer, and the same with one digit of the result changed."""

    source: Literal["task"] = "task"
    """Says that the pairs are made from a task."""
    task: TaskOptions
    """Whose problems; its dev split is held out."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: pairs made from a task are plain text, so false is allowed")
        return self


PairsData = Annotated[PairsFile | TaskPairs | GeneratedPairs, Field(discriminator="source")]
"""The [data] section of a recipe that learns from pairs."""


def load_pairs(config: PairsFile | TaskPairs | GeneratedPairs) -> Pairs:
    """The pairs that a configuration describes.

    Raises:
        DataError: names the file, the line and what is wrong with it.
    """
    match config:
        case PairsFile():
            return _of_file(config)
        case TaskPairs():
            return _of_task(config)
        case GeneratedPairs():
            return _of_rule(config)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs as a file that `PairsFile` reads as it stands."""
    rows = (pair._asdict() for pair in pairs)
    write_file(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode())


def _of_file(config: PairsFile) -> Pairs:
    found = Pairs([], [])
    for record in read_file(Path(config.path)):
        pair = _pair(record, config)
        place = key("held out", json.dumps(pair.prompt)) / 2**64
        (found.held_out if place < config.held_out else found.train).append(pair)
    if not found.train or (config.held_out and not found.held_out):
        raise DataError(
            f"{config.path}: {len(found.train)} pairs to learn from and {len(found.held_out)} held out (held_out = "
            f"{config.held_out:g}); at least one of each is needed"
        )
    return found


def _pair(record: Record, config: PairsFile) -> Pair:
    chosen, rejected = (_said(record, name) for name in (config.chosen_field, config.rejected_field))
    if isinstance(chosen, str) and isinstance(rejected, str):
        pair = Pair(_said(record, config.prompt_field), chosen, rejected)
    elif isinstance(chosen, list) and isinstance(rejected, list):
        pair = _conversations(record, config, chosen, rejected)
    else:
        raise DataError(f"{record.where}: one completion is text, the other a list of messages")
    if not isinstance(pair.prompt, type(pair.chosen)):
        raise DataError(f"{record.where}: the prompt is a list of messages, the completions are text")
    if pair.chosen == pair.rejected:
        raise DataError(f"{record.where}: the chosen and the rejected completion are the same")
    return pair._replace(margin=_margin(record, config.margin_field))


def _conversations(record: Record, config: PairsFile, chosen: list[Message], rejected: list[Message]) -> Pair:
    """The prompt is what both conversations begin with."""
    given = _said(record, config.prompt_field) if config.prompt_field in record.fields else []
    before = given if isinstance(given, list) else []
    sides = [before + chosen, before + rejected]
    pairs = zip(*sides, strict=False)
    shared = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), min(map(len, sides)))
    prompt, (first, second) = sides[0][:shared], (side[shared:] for side in sides)
    if isinstance(given, str) and given not in [message["content"] for message in prompt]:
        raise DataError(f"{record.where}: field '{config.prompt_field}' is in no message that both conversations share")
    roles = [tail[0]["role"] if tail else "nobody" for tail in (first, second)]
    if not prompt or roles != ["assistant", "assistant"]:
        raise DataError(
            f"{record.where}: after {len(prompt)} shared messages {roles[0]} and {roles[1]} speak; needed are at least "
            "one shared message and two answers of the assistant that differ"
        )
    return Pair(prompt, first, second)


def _said(record: Record, field: str) -> Said:
    if field not in record.fields:
        raise DataError(f"{record.where} has no field '{field}'; its fields are {', '.join(record.fields) or 'none'}")
    value: Any = record.fields[field]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(_is_message(one) for one in value):
        return [Message(role=one["role"], content=one["content"]) for one in value]
    raise DataError(
        f"{record.where}: field '{field}' is {str(value)[:60]!r}; text or a list of messages with role and content is "
        "needed"
    )


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("role", "content"))


def _margin(record: Record, field: str | None) -> float:
    value = 0.0 if field is None else record.fields.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{record.where}: field '{field}' is {value!r}; a finite number is needed")
    return float(value)


def _of_task(config: TaskPairs) -> Pairs:
    task = make_task(config.task)
    return Pairs(*([_right_and_wrong(task.template, one) for one in task.problems(part)] for part in ("train", "dev")))


def _of_rule(config: GeneratedPairs) -> Pairs:
    template = config.task.template
    return Pairs(*([Pair(*shown(pair, config.rule, template)) for pair in part] for part in labelled_pairs(config)))


def _right_and_wrong(template: Template, problem: Problem) -> Pair:
    def answer(reference: str) -> str:
        return template.gold.format(reference=reference).removeprefix(template.prefill)

    prompt = template.render(problem) + template.prefill
    return Pair(prompt, answer(problem.reference), answer(_near_miss(problem)))


def _near_miss(problem: Problem) -> str:
    """The reference with one digit changed."""
    reference, draw = problem.reference, Draw("near miss", problem.id)
    places: Sequence[int] = [place for place, character in enumerate(reference) if character in "0123456789"]
    if not places:
        raise DataError(f"the reference {reference!r} of {problem.id} has no digit that could be changed")
    place = draw.choice(places)
    digit = draw.choice([one for one in "123456789" if one != reference[place]])
    return reference[:place] + digit + reference[place + 1 :]
