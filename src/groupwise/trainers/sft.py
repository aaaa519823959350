"""Supervised fine-tuning on prompt/completion pairs, and pretraining of the shipped base model on generated text.

One step: draw examples, pack them, and raise the log-probability of the completions (or of all the text).
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from groupwise.artifacts import DataRef
from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import NewModel, character_tokenizer, new_policy
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches, pack
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import shuffled_epochs
from groupwise.tasks import corpus, diet
from groupwise.tasks.corpus import CorpusConfig
from groupwise.tasks.diet import DietConfig
from groupwise.trainers.base import Recipe, Trainer
from groupwise.training.gradient import accumulate
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.training.ranks import RANKS
from groupwise.training.session import Session, Start


class CorpusData(CorpusConfig):
    """Text generated on the fly: what the shipped base model is pretrained on."""

    source: Literal["corpus"] = "corpus"
    """Generated documents of problems and solutions in several strategies."""


class DietData(DietConfig):
    """Text generated on the fly: what the second edition of the shipped base model is pretrained on."""

    source: Literal["diet"] = "diet"
    """Generated documents of many families of problems, and of everyday answers."""


class PairsData(Section):
    """Prompt/completion pairs from a file."""

    source: Literal["jsonl"] = "jsonl"
    """One JSON object a line."""
    path: DataRef
    """The file."""
    prompt_field: str = "prompt"
    """Field with the prompt's text."""
    completion_field: str = "completion"
    """Field with the completion's text; the end token is added."""


class SftConfig(Section):
    """The loss and its batches."""

    sequences_per_step: int = Field(64, ge=1)
    """Examples per step."""
    tokens_per_micro_batch: int = Field(0, ge=0)
    """Most tokens in one forward and backward; 0: what suits the device."""
    loss_on: Literal["completion", "all"] = "completion"
    """`completion` trains the answer given the prompt; `all` trains every token but the first (pretraining)."""


class SftOptimizerConfig(OptimizerConfig):
    """AdamW with the rate of fine-tuning."""

    lr: float = Field(1e-5, ge=0)
    """Peak learning rate; pretraining from random weights wants some 1e-3."""


class SftRecipe(Recipe):
    """A whole SFT run."""

    algorithm: Literal["sft"] = "sft"
    """Which trainer runs this recipe."""
    model: ModelConfig = ModelConfig()
    """The model to start from."""
    new_model: NewModel | None = None
    """Start from random weights and the character tokenizer of the shipped tasks instead of `model.path`."""
    data: Annotated[CorpusData | DietData | PairsData, Field(discriminator="source")]
    """What to learn from."""
    sft: SftConfig = SftConfig()
    """The loss."""
    optimizer: SftOptimizerConfig = SftOptimizerConfig()
    """AdamW."""


class Example(NamedTuple):
    """A prompt and what shall follow it, as token ids; the end token is part of the completion."""

    prompt: list[int]
    completion: list[int]


class SftStep(NamedTuple):
    """What one SFT step reports."""

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
    texts = _texts(recipe)
    start = Start(recipe, recipe.run, restart)
    if recipe.new_model and not start.resumes:
        policy = new_policy(recipe.new_model, character_tokenizer(_alphabet(recipe.data)), recipe.model)
    else:
        policy = load_policy(start.model_to_load(recipe.model))
    optimizer = Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps)
    session = start.begin(policy, optimizer)
    for step in session.steps():
        began = time.perf_counter()
        examples = encode(policy, RANKS.share(texts(step)), recipe.sft.loss_on)
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
    """Accumulate the gradient of the mean negative log-probability; returns that mean and the number of trained tokens.

    The denominator is that of the whole step, so the cut into micro-batches does not matter.
    """
    examples = sorted(examples, key=lambda example: len(example.prompt) + len(example.completion))
    denominator = RANKS.sum(sum(len(example.completion) for example in examples))
    budget = micro_batch_tokens(tokens_per_micro_batch, policy.device)
    chunks = list(micro_batches([len(e.prompt) + len(e.completion) for e in examples], budget))

    def loss_of(chunk: range) -> tuple[Tensor, float]:
        packed = pack([Sequences(examples[i].prompt, [examples[i].completion]) for i in chunk], policy.device)
        loss = -policy.token_logprobs(packed).logprobs.sum() / denominator
        return loss, loss.item()

    total = sum(accumulate(loss_of, chunks, [weight for _, weight in policy.trainable()], policy.device))
    if not math.isfinite(total):
        raise DataError(f"the SFT loss is {total}: look at the examples of this step")
    return total, denominator


def encode(policy: Policy, pairs: Sequence[tuple[str, str]], loss_on: Literal["completion", "all"]) -> list[Example]:
    """Token ids of text pairs, the end token added; with `all` the prompt is the first token alone."""
    prompts = policy.tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    completions = policy.tokenizer([completion for _, completion in pairs], add_special_tokens=False)["input_ids"]
    end = policy.tokenizer.eos_token_id
    examples = [Example(prompt, [*completion, end]) for prompt, completion in zip(prompts, completions, strict=True)]
    if loss_on == "all":
        examples = [Example((e.prompt + e.completion)[:1], (e.prompt + e.completion)[1:]) for e in examples]
    for example, (prompt, _) in zip(examples, pairs, strict=True):
        length = len(example.prompt) + len(example.completion)
        if not example.prompt or length > policy.context_length:
            raise DataError(
                f"the example that begins {prompt[:60]!r} has {length} tokens, {len(example.prompt)} of them prompt; "
                f"allowed: a prompt of at least 1 token, {policy.context_length} in all"
            )
    return examples


def _texts(recipe: SftRecipe) -> Callable[[int], list[tuple[str, str]]]:
    """The text pairs of each step; a pure function of seed and step."""
    size, seed, data = recipe.sft.sequences_per_step, recipe.run.seed, recipe.data
    if not isinstance(data, PairsData):
        write = diet.document if isinstance(data, DietData) else corpus.document
        mix: Any = data

        def generated(step: int) -> list[tuple[str, str]]:
            documents = (write(seed, step * size + i, mix) for i in range(size))
            return [(item.prompt, item.completion) for item in documents]

        return generated
    pairs = read_pairs(data)

    return lambda step: [pairs[i] for i in shuffled_epochs(len(pairs), size, step, seed, "sft order")]


def _alphabet(data: CorpusData | DietData | PairsData) -> str:
    """The characters of a new model."""
    return diet.alphabet() if isinstance(data, DietData) else corpus.alphabet()


def read_pairs(data: PairsData) -> list[tuple[str, str]]:
    """Read a file of pairs.

    Raises:
        DataError: names the file, the line and what is wrong with it.
    """
    pairs = []
    try:
        lines = Path(data.path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{data.path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            pairs.append(_read_pair(data, number, line))
    if not pairs:
        raise DataError(f"{data.path} holds no examples")
    return pairs


def _read_pair(data: PairsData, number: int, line: str) -> tuple[str, str]:
    try:
        row: dict[str, Any] = json.loads(line)
        pair = row[data.prompt_field], row[data.completion_field]
    except ValueError as error:
        raise DataError(f"{data.path}, line {number} is not JSON: {error}") from None
    except (KeyError, TypeError):
        raise DataError(
            f"{data.path}, line {number} has no field {data.prompt_field!r} or {data.completion_field!r}"
        ) from None
    if not all(isinstance(text, str) and text for text in pair):
        raise DataError(f"{data.path}, line {number}: prompt and completion must be non-empty strings")
    return pair


TRAINER = Trainer(SftRecipe, train_sft)
