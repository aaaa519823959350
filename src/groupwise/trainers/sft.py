"""Supervised fine-tuning on prompt/completion pairs, and pretraining on generated text or on documents."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import Section
from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.models.new_model import NewModel, character_tokenizer, new_policy
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, start_policy
from groupwise.models.prompts import ended, prompt_ids
from groupwise.models.sharded import sharded
from groupwise.randomness import shuffled_epochs
from groupwise.rollout.tools import Tool, ToolSections, make_tools, put_in_spans
from groupwise.runs.jsonl import read_jsonl
from groupwise.trainers.base import FineTuningRecipe, MicroBatchConfig, Trainer, accumulate_rows
from groupwise.trainers.documents import DocumentsData, Example, TextData, document_batches
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start


class PairsData(Section):
    """Prompt/completion pairs from a file."""

    source: Literal["jsonl"] = "jsonl"
    """One JSON object a line."""
    path: DataRef | Annotated[tuple[DataRef, ...], Field(min_length=1)]
    """The file, or several, whose rows are mixed; each row has `prompt` and `completion`."""

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
    def _documents_are_whole(self) -> Self:
        if isinstance(self.data, DocumentsData) and self.sft.loss_on != "all":
            raise ValueError('sft.loss_on = "completion": documents have no prompt; allowed with them is "all"')
        if isinstance(self.data, DocumentsData) and self.new_model:
            raise ValueError(
                "new_model: documents do not say which characters there are; allowed with them is model.path"
            )
        return self

    @model_validator(mode="after")
    def _has_weights_to_stand_on(self) -> Self:
        if self.new_model and self.lora:
            raise ValueError("new_model has random weights, on which adapters learn nothing; allowed is one of the two")
        return self


class SftStep(NamedTuple):
    """The report of one step."""

    step: int
    loss: float
    """Mean negative log-probability per trained token, in nats."""
    grad_norm: float
    lr: float
    num_tokens: int
    seconds: float


def train_sft(
    recipe: SftRecipe, restart: bool = False, on_step: Callable[[SftStep], None] = lambda step: None
) -> Session:
    """Run an SFT recipe, or resume an interrupted run; returns the session with the trained policy."""
    batches = _batches(recipe)
    start = Start(recipe, recipe.run, restart)
    if recipe.new_model and not start.resumes:
        policy = new_policy(recipe.new_model, character_tokenizer(alphabet_of(recipe.data)), recipe.model)
    else:
        policy = start_policy(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True)
    policy = sharded(policy)
    batch = batches(policy)
    optimizer = Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps)
    session = start.begin(policy, optimizer)
    for step in session.steps():
        began = time.perf_counter()
        examples = batch(step)
        lr = optimizer.lr(step)
        loss, num_tokens = sft_gradient(policy, examples, recipe.sft.tokens_per_micro_batch)
        grad_norm = optimizer.update(step)
        report = SftStep(step, loss, grad_norm, lr, num_tokens, time.perf_counter() - began)
        session.progress.tokens += num_tokens
        fingerprint = policy.fingerprint()
        session.record({"step": step, "loss": loss, "grad_norm": grad_norm, "weights": fingerprint}, report._asdict())
        on_step(report)
    session.finish()
    return session


def sft_gradient(policy: Policy, examples: Sequence[Example], tokens_per_micro_batch: int) -> tuple[float, int]:
    """Accumulate the gradient of the mean negative log-probability; returns it and the number of trained tokens."""
    denominator = sum(int(example.mask.sum()) for example in examples)

    def loss_of(chunk: list[Example]) -> tuple[Tensor, float]:
        packed = pack([Sequences(e.prompt, [e.completion], [e.mask]) for e in chunk], policy.device)
        loss = -policy.token_logprobs(packed).logprobs.sum() / denominator
        return loss, loss.item()

    total = sum(accumulate_rows(loss_of, examples, lambda example: example.num_tokens, policy, tokens_per_micro_batch))
    if not math.isfinite(total):
        raise DataError(f"the SFT loss is {total}: look at the examples of this step")
    return total, denominator


def encode(
    policy: Policy,
    pairs: Sequence[tuple[str, str]],
    loss_on: Literal["completion", "all"],
    tools: Mapping[str, Tool] = MappingProxyType({}),
) -> list[Example]:
    """Write text pairs as token ids, the end token added; with `all` the prompt is the first token alone.

    Results of the tools are tokenised by themselves, as they are when a tool puts them in, and are not trained.
    """
    prompts = [prompt_ids(policy, prompt, f"the prompt {prompt[:60]!r}") for prompt, _ in pairs]
    if tools:
        examples = [_with_results(policy, own, text, tools) for own, (_, text) in zip(prompts, pairs, strict=True)]
    else:
        completions = policy.tokenizer([completion for _, completion in pairs], add_special_tokens=False)["input_ids"]
        examples = [Example(prompt, ended(policy, own)) for prompt, own in zip(prompts, completions, strict=True)]
    if loss_on == "all":
        examples = [Example((e.prompt + e.completion)[:1], (e.prompt + e.completion)[1:]) for e in examples]
    for example, (prompt, _) in zip(examples, pairs, strict=True):
        if not example.prompt or example.num_tokens > policy.context_length:
            raise DataError(
                f"the example that begins {prompt[:60]!r} has {example.num_tokens} tokens, {len(example.prompt)} of "
                f"them prompt; allowed: a prompt of at least 1 token, {policy.context_length} in all"
            )
    return examples


def _batches(recipe: SftRecipe) -> Callable[[Policy], Callable[[int], list[Example]]]:
    data, size = recipe.data, recipe.sft.sequences_per_step
    if isinstance(data, DocumentsData):
        return partial(document_batches, data=data, size=size, run=recipe.run)
    seed, tools = recipe.run.seed, make_tools(recipe.sft.tools)
    pairs = read_pairs(data) if isinstance(data, PairsData) else []

    def texts(step: int) -> list[tuple[str, str]]:
        if isinstance(data, TextData):
            return [data.text.text(seed, step * size + index) for index in range(size)]
        return [pairs[i] for i in shuffled_epochs(len(pairs), size, step, seed, "sft order")]

    return lambda policy: lambda step: encode(policy, texts(step), recipe.sft.loss_on, tools)


def _with_results(policy: Policy, prompt: list[int], text: str, tools: Mapping[str, Tool]) -> Example:
    try:
        spans = put_in_spans(text, tools)
    except ValueError as error:
        raise DataError(f"a completion breaks the rules of calls: {error}") from None
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    ids: list[int] = []
    trained: list[bool] = []
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


def read_pairs(data: PairsData) -> list[tuple[str, str]]:
    """Read files of pairs; a DataError names the file, the line and what is wrong with it."""
    return [pair for path in data.paths for pair in read_file(data, path)]


def read_file(data: PairsData, path: str) -> list[tuple[str, str]]:
    """One of them."""
    pairs = []
    for record in read_jsonl(path):
        if not {"prompt", "completion"} <= record.fields.keys():
            raise DataError(f"{record.place} has no field 'prompt' or 'completion'")
        pair = record.fields["prompt"], record.fields["completion"]
        if not all(isinstance(text, str) and text for text in pair):
            raise DataError(f"{record.place}: prompt and completion must be non-empty strings")
        pairs.append(pair)
    if not pairs:
        raise DataError(f"{path} holds no examples")
    return pairs


TRAINER = Trainer(SftRecipe, train_sft)
