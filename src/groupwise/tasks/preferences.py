"""Preference pairs: two completions of one prompt, of which one was preferred; from a file, or made from a task.

Pairs made from a task differ in one digit of the result, or are written and compared by a Python file of yours. With a
probability of `noise` such a label is flipped, because people disagree; the best a reward model can do on held-out
labels is then 1 - noise.

A file holds plain text, or conversations as lists of messages (`{"role": ..., "content": ...}`), as data sets of the
Hugging Face hub do: with the prompt's messages in a separate field, or at the beginning of both conversations.
"""

import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config import KindSection, Section
from groupwise.config.kinds import Kinds
from groupwise.config.schema import DataRef
from groupwise.errors import ConfigError, DataError
from groupwise.randomness import Draw, key
from groupwise.runs.jsonl import Record
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import ChatArguments, Template
from groupwise.tasks.conversations import Message, Said, refuse_more, said, tools_of, with_system
from groupwise.tasks.data_files import field_of, has_field, read_file
from groupwise.types import Problem
from groupwise.verifiers.extraction import after_thinking


class TextSource(KindSection):
    """Texts without end."""

    @abstractmethod
    def text(self, seed: int, place: int) -> tuple[str, str]:
        """Return the prompt and the completion of a text; the same arguments give the same text."""

    @abstractmethod
    def alphabet(self) -> str:
        """Return every character that the texts can contain; the tokenizer of a new model is made of them."""


class AnswerWriter(KindSection):
    """Answers as people might write them."""

    @abstractmethod
    def written(self, draw: Draw, problem: Problem) -> str:
        """Return a completion of a problem."""

    @abstractmethod
    def summary(self, draw: Draw, answer: str, language: str) -> str:
        """Return a sentence that says the answer again, to stand behind it."""


class Preference(KindSection):
    """Pairs of completions, and which one of them is better."""

    sees: ClassVar[Literal["completion", "answer"]] = "completion"
    """`answer`: a pair shows only what stands after `</think>`, behind a prompt without prefill."""

    @abstractmethod
    def written(self, draw: Draw, problem: Problem) -> str:
        """Return a completion of a problem."""

    @property
    def name(self) -> str:
        """Return what its draws are called after: pairs of another name are other pairs."""
        return type(self).__name__.lower()

    @abstractmethod
    def worth(self, problem: Problem, completion: str) -> float:
        """Return how good a completion is, from 0 to 1."""


# none is built in
TEXTS = Kinds("text source", {})
WRITERS = Kinds("answer writer", {})
PREFERENCES = Kinds("preference", {})

Texts = Annotated[TextSource, TEXTS]
Writer = Annotated[AnswerWriter, WRITERS]
AnyPreference = Annotated[Preference, PREFERENCES]


MAX_DRAWS = 1000
"""Most pairs of completions that are drawn until two differ in worth."""


class FromTask(Section):
    """Pairs of a task's problems."""

    task: TaskOptions
    """Source of the problems; its dev split is held out."""

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: pairs of a task are plain text, so false is allowed")
        return self


class GeneratedPairs(FromTask):
    """Pairs that a Python file of yours writes and compares."""

    source: Literal["generated"] = "generated"
    """Says that the pairs are generated."""
    rule: AnyPreference
    """Writes the completions and says how good they are, for example `worlds/general.py:Helpful`."""
    noise: float = Field(default=0.1, ge=0, lt=0.5)
    """Probability of a wrong label."""
    num_pairs: int = Field(default=5000, ge=1)
    """Pairs to learn from; problems are taken in turn. Held out is one pair for each problem of the dev split."""


class Labelled(NamedTuple):
    """Two whole completions of a problem, and which of them was preferred."""

    problem: Problem
    chosen: str
    rejected: str
    is_noise: bool
    """True where the label is wrong: by the rule, the rejected completion is the better one."""


def labelled_pairs(config: GeneratedPairs) -> tuple[list[Labelled], list[Labelled]]:
    """Pairs to learn from, and pairs of other problems to measure on."""
    task = make_task(config.task)
    train, dev = task.problems("train"), task.problems("dev")
    return (
        [_label_pair(config, train, index) for index in range(config.num_pairs)],
        [_label_pair(config, dev, index) for index in range(len(dev))],
    )


def _label_pair(config: GeneratedPairs, problems: Sequence[Problem], index: int) -> Labelled:
    problem = problems[index % len(problems)]
    draw = Draw("preference", config.rule.name, problem.id, index)
    for _ in range(MAX_DRAWS):
        first, second = (config.rule.written(draw, problem) for _ in range(2))
        if difference := config.rule.worth(problem, first) - config.rule.worth(problem, second):
            is_noise = draw.uniform() < config.noise
            pair = (first, second) if (difference > 0) != is_noise else (second, first)
            return Labelled(problem, *pair, is_noise)
    raise ConfigError(
        f"data.rule: in {MAX_DRAWS} draws no two completions of {problem.id} differed in worth by {config.rule.kind}; "
        "it must write completions of different worth"
    )


def shown(pair: Labelled, rule: Preference, template: Template) -> tuple[str, str, str]:
    """Prompt, chosen and rejected completion as a reward model reads them."""
    prompt, texts = template.render(pair.problem), (pair.chosen, pair.rejected)
    if rule.sees == "completion":
        chosen, rejected = (text.removeprefix(template.prefill) for text in texts)
        return prompt + template.prefill, chosen, rejected
    chosen, rejected = ((after_thinking(text) or "").strip() for text in texts)
    return prompt, chosen, rejected


class Pair(NamedTuple):
    """A prompt and two completions; all three are text, or all three are messages."""

    prompt: Said
    chosen: Said
    rejected: Said
    margin: float = 0.0
    tools: list[dict[str, Any]] | None = None


class Pairs(NamedTuple):
    """Pairs to learn from and pairs to measure on; no prompt is in both."""

    train: list[Pair]
    held_out: list[Pair]


class PairsFile(ChatArguments):
    """Pairs from a file."""

    source: Literal["file"] = "file"
    """Says that the pairs come from a file."""
    path: DataRef
    """A data file of any form that a task reads."""
    prompt_field: str = "prompt"
    """Field with the prompt, text or messages; not needed where both completions begin with it."""
    chosen_field: str = "chosen"
    """Field with the preferred completion."""
    rejected_field: str = "rejected"
    """Field with the other one."""
    margin_field: str | None = None
    """Field with how much better the preferred one is, in units of the score; None: no margin."""
    held_out: float = Field(0.1, ge=0, lt=1)
    """Share of the prompts that is measured on, not trained on; a function of the prompt alone decides which."""


class TaskPairs(FromTask):
    """Pairs made from a task: its ideal answer, and the same with one digit of the result changed."""

    source: Literal["task"] = "task"
    """Says that the pairs are made from a task."""


PairsData = Annotated[PairsFile | TaskPairs | GeneratedPairs, Field(discriminator="source")]
"""The [data] section of a recipe that learns from pairs."""


def load_pairs(config: PairsFile | TaskPairs | GeneratedPairs) -> Pairs:
    """The pairs that a configuration describes."""
    match config:
        case PairsFile():
            pairs = Pairs([], [])
            for record in read_file(config.path):
                pair = _pair(record, config)
                position = key("held out", json.dumps(pair.prompt)) / 2**64
                (pairs.held_out if position < config.held_out else pairs.train).append(pair)
            if not pairs.train or (config.held_out and not pairs.held_out):
                raise DataError(
                    f"{config.path}: {len(pairs.train)} pairs to learn from and {len(pairs.held_out)} held out "
                    f"(held_out = {config.held_out:g}); at least one of each is needed"
                )
            return pairs
        case TaskPairs(task=options):
            task, template = make_task(options), options.template
            both = task.problems("train"), task.problems("dev")
            return Pairs(*([_right_and_wrong(template, problem) for problem in problems] for problems in both))
        case GeneratedPairs():
            template, labelled = config.task.template, labelled_pairs(config)
            return Pairs(*([Pair(*shown(pair, config.rule, template)) for pair in rows] for rows in labelled))


def _pair(record: Record, config: PairsFile) -> Pair:
    if config.chosen_field not in record.fields and {"completion", "label"} <= record.fields.keys():
        raise DataError(
            f"{record.place} is feedback on one completion (completion, label), from which no trainer learns here; "
            f"pairs with '{config.chosen_field}' and '{config.rejected_field}' are needed"
        )
    chosen, rejected = (said(record, name) for name in (config.chosen_field, config.rejected_field))
    if chosen == rejected:
        raise DataError(f"{record.place}: the chosen and the rejected completion are the same")
    if isinstance(chosen, str) and isinstance(rejected, str):
        pair = _texts(record, config, chosen, rejected)
    elif isinstance(chosen, list) and isinstance(rejected, list):
        pair = _conversations(record, config, chosen, rejected)
    else:
        raise DataError(f"{record.place}: one completion is text, the other a list of messages")
    if config.margin_field is None:
        return pair
    margin = field_of(record, config.margin_field) if has_field(record, config.margin_field) else None
    if isinstance(margin, str):  # as in tables of text
        with suppress(ValueError):
            margin = float(margin)
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not math.isfinite(margin):
        raise DataError(f"{record.place}: field '{config.margin_field}' is {margin!r}; a finite number is needed")
    return pair._replace(margin=float(margin))


def _texts(record: Record, config: PairsFile, chosen: str, rejected: str) -> Pair:
    """A pair of texts; without a prompt in a field of its own it is what both begin with, up to the last space."""
    refuse_more(record, config.prompt_field)
    if config.prompt_field in record.fields or "." in config.prompt_field:
        if isinstance(prompt := said(record, config.prompt_field), list):
            raise DataError(f"{record.place}: the prompt is a list of messages, the completions are text")
        return Pair(prompt, chosen, rejected)
    prompt = "".join(a for a, _ in takewhile(lambda both: both[0] == both[1], zip(chosen, rejected, strict=False)))
    prompt = prompt.removesuffix(" ")
    if not prompt or prompt in (chosen, rejected):
        raise DataError(
            f"{record.place} has no field '{config.prompt_field}', and the completions do not begin with a prompt that "
            "both go on from"
        )
    return Pair(prompt, chosen[len(prompt) :], rejected[len(prompt) :])


def _conversations(record: Record, config: PairsFile, chosen: list[Message], rejected: list[Message]) -> Pair:
    stated_prompt = said(record, config.prompt_field) if config.prompt_field in record.fields else []
    messages = stated_prompt if isinstance(stated_prompt, list) else []
    most = len(messages)  # completions may begin with the prompt that is stated beside them
    again = next(k for k in range(most, -1, -1) if chosen[:k] == rejected[:k] == messages[most - k :])
    sides = [with_system(record, messages + tail[again:]) for tail in (chosen, rejected)]
    pairs = zip(*sides, strict=False)
    length = next((i for i, (left, right) in enumerate(pairs) if left != right), min(map(len, sides)))
    prompt, tails = sides[0][:length], [side[length:] for side in sides]
    if isinstance(stated_prompt, str) and stated_prompt not in [message["content"] for message in prompt]:
        raise DataError(f"{record.place}: field '{config.prompt_field}' is in no message that both conversations share")
    roles = [tail[0]["role"] if tail else "nobody" for tail in tails]
    if not prompt or roles != ["assistant", "assistant"]:
        raise DataError(
            f"{record.place}: after {len(prompt)} shared messages {roles[0]} and {roles[1]} speak; at least one shared "
            "message and two different answers of the assistant are needed"
        )
    return Pair(prompt, tails[0], tails[1], tools=tools_of(record))


def _right_and_wrong(template: Template, problem: Problem) -> Pair:
    reference, draw = problem.reference, Draw("near miss", problem.id)
    digits: Sequence[int] = [index for index, character in enumerate(reference) if character in "0123456789"]
    if not digits:
        raise DataError(f"the reference {reference!r} of {problem.id} has no digit that could be changed")
    index = draw.choice(digits)
    digit = draw.choice([candidate for candidate in "123456789" if candidate != reference[index]])
    wrong = reference[:index] + digit + reference[index + 1 :]
    chosen, rejected = (
        template.gold_answer(replace(problem, reference=answer)).removeprefix(template.prefill)
        for answer in (reference, wrong)
    )
    return Pair(template.render(problem) + template.prefill, chosen, rejected)
