"""Supervised fine-tuning on prompt/completion pairs, and pretraining on generated text or on documents."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.models.new_model import NewModel, character_tokenizer, new_policy
from groupwise.models.packed import pack
from groupwise.models.policy import Policy, start_policy
from groupwise.models.prompts import ended, prompt_ids
from groupwise.models.sharded import sharded
from groupwise.models.steps import refuse_unknown
from groupwise.randomness import shuffled_epochs
from groupwise.rollout.tools import Tool, ToolSections, make_tools, put_in_spans
from groupwise.runs.jsonl import Record
from groupwise.tasks.base import ChatArguments
from groupwise.tasks.conversations import arguments_of, refuse_more, said, tools_of, with_system
from groupwise.tasks.data_files import has_field, read_file
from groupwise.trainers.base import (
    FineTuningRecipe,
    Gradient,
    MicroBatchConfig,
    OnReport,
    Trainer,
    accumulate_rows,
    learn,
)
from groupwise.trainers.documents import DocumentsData, Example, TextData, document_batches
from groupwise.trainers.turns import Dialogue, turns
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start


class PairsData(ChatArguments):
    """Examples from files: texts (`prompt` and `completion`, or `text`), or conversations."""

    source: Literal["jsonl"] = "jsonl"
    """Data files of any form that a task reads."""
    path: DataRef | Annotated[tuple[DataRef, ...], Field(min_length=1)]
    """The file, or several, whose rows are mixed. A row has a prompt and a completion (texts, or messages), `messages`
    or `conversations` of which every turn of the assistant is learnt, or `text` (with `sft.loss_on = "all"`)."""
    prompt_field: str = "prompt"
    """Field of the prompt; `a.b` is the field `b` in the field `a`."""
    completion_field: str = "completion"
    """Field of the completion."""
    chat: bool = False
    """Read texts as turns, the prompt as the user's and the completion as the assistant's. Messages always are."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path


class SftConfig(MicroBatchConfig):
    """The loss and its batches."""

    sequences_per_step: int = Field(64, ge=1)
    """Examples per step."""
    loss_on: Literal["completion", "all"] = "completion"
    """`completion` trains the answer given the prompt; `all` trains every token but the first (pretraining)."""
    tools: ToolSections = Field(default_factory=dict)
    """Tools whose results in completions are read and never trained: `[sft.tools.NAME]`, as under `sampling.tools`."""

    @model_validator(mode="after")
    def _results_are_of_completions(self) -> Self:
        if self.tools and self.loss_on == "all":
            raise ValueError("loss_on = 'all' trains every token, so tools have no effect; allowed is 'completion'")
        return self


class SftRecipe(FineTuningRecipe):
    """A whole SFT run."""

    algorithm: Literal["sft"] = "sft"
    """The trainer of this recipe."""
    new_model: NewModel | None = None
    """Start from random weights and the character tokenizer of the shipped tasks instead of `model.path`."""
    data: Annotated[TextData | PairsData | DocumentsData, Field(discriminator="source")]
    """The source of examples."""
    sft: SftConfig = SftConfig()
    """The loss."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.data, DocumentsData) and self.sft.loss_on != "all":
            raise ValueError('sft.loss_on = "completion": documents have no prompt; allowed with them is "all"')
        if isinstance(self.data, DocumentsData) and self.new_model:
            raise ValueError(
                "new_model: documents do not say which characters there are; allowed with them is model.path"
            )
        if self.new_model and self.lora:
            raise ValueError("new_model has random weights, on which adapters learn nothing; allowed is one of the two")
        return self


def train_sft(recipe: SftRecipe, restart: bool = False, on_report: OnReport = lambda report: None) -> Session:
    """Run an SFT recipe, or resume an interrupted run; returns the session with the trained policy."""
    batches = _batches(recipe)
    start = Start(recipe, recipe.run, restart)
    if recipe.new_model and not start.resumes:
        policy = new_policy(recipe.new_model, character_tokenizer(alphabet_of(recipe.data)), recipe.model)
    else:
        policy = start_policy(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True)
    policy = sharded(policy)
    batch = batches(policy)
    session = start.begin(policy, Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps))
    budget = recipe.sft.tokens_per_micro_batch
    return learn(session, lambda number: sft_gradient(policy, batch(number), budget), on_report)


def sft_gradient(policy: Policy, examples: Sequence[Example], tokens_per_micro_batch: int) -> Gradient:
    """Accumulate the gradient of the mean negative log-probability per trained token, in nats."""
    denominator = sum(int(example.mask.sum()) for example in examples)

    def loss_of(chunk: list[Example]) -> tuple[Tensor, None]:
        packed = pack([example.sequences for example in chunk], policy.device)
        return -policy.token_logprobs(packed).logprobs.sum() / denominator, None

    loss, _ = accumulate_rows(loss_of, examples, lambda example: example.sequences, policy, tokens_per_micro_batch)
    if not math.isfinite(loss):
        raise DataError(f"the SFT loss is {loss}: look at the examples of this step")
    return Gradient(loss, denominator)


class Pieces(NamedTuple):
    """An episode as texts, each of which is tokenised by itself: those that are learnt end in the end token."""

    pieces: tuple[tuple[str, bool], ...]
    place: str
    is_rendered: bool = False
    """True where a chat template wrote the texts, control tokens included."""


Row = tuple[str, str] | Dialogue | Pieces
"""Prompt and completion as text (a text without a prompt has an empty one), a conversation, or an episode."""


def encode(
    policy: Policy,
    rows: Sequence[Row],
    loss_on: Literal["completion", "all"],
    tools: Mapping[str, Tool] = MappingProxyType({}),
    chat: ChatArguments | None = None,
) -> list[Example]:
    """Write rows as token ids, the end token added to texts; with `all` the prompt is the first token alone.

    Results of the tools are tokenised by themselves, as they are when a tool puts them in, and are not trained.
    """
    pairs = [row for row in rows if not isinstance(row, Dialogue | Pieces)]
    texts = iter(_encode_texts(policy, pairs, tools) if pairs else ())
    examples = list[Example]()
    for row in rows:
        if isinstance(row, Dialogue):
            written = turns(policy, row, chat or ChatArguments())
            first = max(1, written.trained.index(True))
            example = Example(written.ids[:first], written.ids[first:], written.trained[first:])
        elif isinstance(row, Pieces):
            example = _of_pieces(policy, row)
        else:
            example = next(texts)
        examples.append(example)
        prompt = row.place if isinstance(row, Dialogue | Pieces) else row[0] or row[1]
        if loss_on == "completion" and row[0] == "":
            raise DataError(
                f"the text that begins {prompt[:60]!r} has no prompt: sft.loss_on = 'all' is allowed with it"
            )
        no_prompt = not example.prompt and loss_on == "completion"
        size = len(example.prompt) + len(example.completion)
        if no_prompt or size < 2 or size > policy.context_length:
            raise DataError(
                f"the example that begins {prompt[:60]!r} has {size} tokens, {len(example.prompt)} of "
                f"them prompt; allowed: a prompt of at least 1 token, {policy.context_length} in all"
            )
        if not isinstance(row, Dialogue):
            text = "".join(piece for piece, _ in row.pieces) if isinstance(row, Pieces) else "".join(row)
            ids = example.prompt + example.completion
            refuse_unknown(policy.tokenizer, text, ids, f"the example that begins {prompt[:60]!r}")
    if loss_on == "all":
        return [Example((e.prompt + e.completion)[:1], (e.prompt + e.completion)[1:]) for e in examples]
    return examples


def _of_pieces(policy: Policy, row: Pieces) -> Example:
    (asked, _), *others = row.pieces
    prompt, ids, trained = prompt_ids(policy, asked, row.place, is_chat=row.is_rendered), list[int](), list[bool]()
    end = policy.tokenizer.eos_token
    for text, is_own in others:
        if is_own:
            piece = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
            piece = piece if piece and piece[-1] in policy.stop_ids else ended(policy, piece)
        else:  # as it is written behind an end token, when it is put into an episode
            piece = policy.tokenizer(end + text, add_special_tokens=False)["input_ids"][1:]
        ids += piece
        trained += [is_own] * len(piece)
    return Example(prompt, ids, trained)


def _encode_texts(policy: Policy, pairs: Sequence[tuple[str, str]], tools: Mapping[str, Tool]) -> list[Example]:
    bos = [token for token in policy.tokenizer("")["input_ids"] if token == policy.tokenizer.bos_token_id][:1]
    prompts = [prompt_ids(policy, text, f"the prompt {text[:60]!r}") if text else bos for text, _ in pairs]
    if tools:
        return [_with_results(policy, own, text, tools) for own, (_, text) in zip(prompts, pairs, strict=True)]
    completions = policy.tokenizer([completion for _, completion in pairs], add_special_tokens=False)["input_ids"]
    return [Example(prompt, ended(policy, own)) for prompt, own in zip(prompts, completions, strict=True)]


def _batches(recipe: SftRecipe) -> Callable[[Policy], Callable[[int], list[Example]]]:
    data, size = recipe.data, recipe.sft.sequences_per_step
    if isinstance(data, DocumentsData):
        return partial(document_batches, data=data, size=size, run=recipe.run)
    seed, tools = recipe.run.seed, make_tools(recipe.sft.tools)
    rows = read_rows(data) if isinstance(data, PairsData) else []
    chat = data if isinstance(data, PairsData) else None
    if tools and any(isinstance(row, Dialogue | Pieces) for row in rows):
        raise DataError(
            "sft.tools cuts results out of texts; conversations have them as turns of their own, so leave it out"
        )

    def drawn(step: int) -> Sequence[Row]:
        if isinstance(data, TextData):
            return [data.text.text(seed, step * size + index) for index in range(size)]
        return [rows[i] for i in shuffled_epochs(len(rows), size, step, seed, "sft order")]

    return lambda policy: lambda step: encode(policy, drawn(step), recipe.sft.loss_on, tools, chat)


def _with_results(policy: Policy, prompt: list[int], text: str, tools: Mapping[str, Tool]) -> Example:
    try:
        spans = put_in_spans(text, tools)
    except ValueError as error:
        raise DataError(f"a completion breaks the rules of calls: {error}") from None
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    ids, trained = list[int](), list[bool]()
    for number, (begin, stop) in enumerate(pairwise(edges)):
        piece = policy.tokenizer(text[begin:stop], add_special_tokens=False)["input_ids"] if begin < stop else []
        ids += piece
        trained += [number % 2 == 0] * len(piece)
    ids = ended(policy, ids)
    return Example(prompt, ids, [*trained, True][: len(ids)])


def alphabet_of(data: TextData | PairsData | DocumentsData) -> str:
    """Return the characters of a new model: all that what it learns from can contain."""
    if isinstance(data, TextData):
        return data.text.alphabet()
    assert isinstance(data, PairsData)
    return "".join(sorted({character for pair in read_pairs(data) for text in pair for character in text}))


def read_rows(data: PairsData) -> list[Row]:
    """Read files of examples; a DataError names the file, the line and what is wrong with it."""
    return [row for path in data.paths for row in read_examples(data, path)]


def read_pairs(data: PairsData, paths: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Read files of examples that must be texts with a prompt."""
    pairs = list[tuple[str, str]]()
    for path in paths or data.paths:
        for row in read_examples(data, path):
            if isinstance(row, Dialogue | Pieces) or not row[0]:
                raise DataError(
                    f"{path} holds a conversation or a text alone; prompt and completion as text are needed"
                )
            pairs.append(row)
    return pairs


def read_examples(data: PairsData, path: str) -> list[Row]:
    """Read one of the files."""
    rows = [_row(data, record) for record in read_file(path)]
    if not rows:
        raise DataError(f"{path} holds no examples")
    return rows


def _row(data: PairsData, record: Record) -> Row:
    if isinstance(pieces := record.fields.get("pieces"), list):
        found = [tuple(each) if isinstance(each, list) else () for each in pieces]
        if [tuple(map(type, each)) for each in found] != [(str, bool)] * max(len(found), 2) or found[0][1]:
            raise DataError(
                f"{record.place} has the pieces {pieces!r:.80}; allowed is a list of [text, true where it is learnt], "
                "the first with false"
            )
        return Pieces(tuple(found), record.place, record.fields.get("rendered") is True)
    names = data.prompt_field, data.completion_field
    if is_pair := all(has_field(record, name) for name in names):
        prompt, completion = (said(record, name) for name in names)
    else:
        name = "messages" if has_field(record, "messages") else "conversations"
        if not has_field(record, name):
            if isinstance(text := record.fields.get("text"), str) and text and not data.chat:
                return "", text
            raise DataError(
                f"{record.place} has no field {' or '.join(map(repr, names))}, nor 'messages' or 'text'; "
                f"its fields are {', '.join(record.fields) or 'none'}"
            )
        prompt, completion = [], said(record, name)
    if isinstance(prompt, str) and isinstance(completion, str) and not data.chat:
        refuse_more(record, data.prompt_field)
        return prompt, completion
    if isinstance(prompt, str):
        refuse_more(record, data.prompt_field, in_chat=True)
        prompt = [{"role": "user", "content": prompt}]
    if isinstance(completion, str):
        completion = [{"role": "assistant", "content": completion}]
    if is_pair and completion[0]["role"] != "assistant":
        raise DataError(f"{record.place}: {completion[0]['role']} begins the completion; the assistant is allowed")
    if prompt:
        prompt = with_system(record, prompt)
    else:
        completion = with_system(record, completion)
    tools, calls = tools_of(record, reads_arguments=True), str(record.fields.get("calls", ""))
    return Dialogue(prompt, completion, tools, record.place, calls, arguments_of(record))


TRAINER = Trainer(SftRecipe, train_sft)
