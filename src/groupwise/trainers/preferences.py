"""Shared by the trainers that learn from preference pairs: recipe, encoding, loop, held-out pairs."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.preferences import calibration_error, preferred, reliability
from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.models.backbone import Backbone
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.cores import shared_out
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches
from groupwise.models.steps import has_unknown
from groupwise.randomness import shuffled_epochs
from groupwise.tasks.preferences import Message, Pair, PairsData
from groupwise.trainers.base import Recipe
from groupwise.training.optimizer import OptimizerConfig
from groupwise.training.session import Session


class PairsConfig(Section):
    """Numbers of pairs that a step learns from, and that are measured."""

    pairs_per_step: int = Field(64, ge=1)
    """Pairs per step (InstructGPT's reward model and DPO: 64)."""
    tokens_per_micro_batch: int = Field(0, ge=0)
    """Most tokens in one forward and backward; 0: what suits the device."""
    evaluate_every: int = Field(20, ge=1)
    """Steps between two measurements on held-out pairs; the last step is followed by one anyway."""
    evaluate_pairs: int = Field(256, ge=1)
    """Held-out pairs to measure on (the first ones)."""


class PairsOptimizerConfig(OptimizerConfig):
    """AdamW with the rate of fine-tuning."""

    lr: float = Field(1e-5, ge=0)
    """Peak learning rate (InstructGPT's reward model: 9e-6; DPO: 1e-6)."""


class PairsRecipe(Recipe):
    """Base of all recipes that learn from pairs."""

    model: ModelConfig = ModelConfig()
    """The model to start from."""
    lora: LoraConfig | None = None
    """Adapters to train beside the model's weights (LoRA); without the section all weights are trained."""
    data: PairsData
    """The pairs."""
    optimizer: PairsOptimizerConfig = PairsOptimizerConfig()
    """AdamW."""

    @property
    def pairs(self) -> PairsConfig:
        """The section of the algorithm, which says how much a step learns from."""
        raise NotImplementedError


class EncodedPair(NamedTuple):
    """A pair as token ids; the end token is part of the completions."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    margin: float = 0.0
    ref_chosen: float = math.nan
    """log π_ref of the completions, where a reference is asked."""
    ref_rejected: float = math.nan

    @property
    def sequences(self) -> Sequences:
        """Both completions after their prompt, which is computed once."""
        return Sequences(self.prompt, [self.chosen, self.rejected])

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.chosen) + len(self.rejected)


class HeldOut(NamedTuple):
    """A model's figures on the held-out pairs."""

    step: int
    """Finished steps."""
    accuracy: Estimate
    """Share of pairs whose chosen completion scores higher; equal scores count half."""
    margin: float
    """Mean score of the chosen completions minus that of the rejected ones."""
    calibration_error: float
    """Expected calibration error of the probability σ(score difference)."""
    mean_score: float
    """Mean over all completions; only differences are learnt, so a mean near 0 is centring's doing."""


class StepReport(Protocol):
    """Fields of every step's report."""

    @property
    def step(self) -> int: ...

    @property
    def loss(self) -> float: ...

    @property
    def grad_norm(self) -> float: ...

    @property
    def num_tokens(self) -> int: ...

    def _asdict(self) -> dict[str, Any]: ...


def encode(model: Backbone, pairs: Sequence[Pair]) -> list[EncodedPair]:
    """Token ids of pairs, the end token added.

    Raises:
        DataError: a pair is too long, cannot be written by the tokenizer, or is a conversation without chat template.
    """
    return [_encoded(model, pair) for pair in pairs]


def _encoded(model: Backbone, pair: Pair) -> EncodedPair:
    tokenizer, is_chat = model.tokenizer, isinstance(pair.prompt, list)
    prompt, *completions = _rendered(tokenizer, pair) if is_chat else (pair.prompt, pair.chosen, pair.rejected)
    # a chat template writes its own special tokens
    ids = tokenizer(prompt, add_special_tokens=not is_chat)["input_ids"]
    chosen, rejected = tokenizer(completions, add_special_tokens=False)["input_ids"]
    end = tokenizer.eos_token_id
    encoded = EncodedPair(ids, [*chosen, end], [*rejected, end], pair.margin)
    longest = len(ids) + max(len(encoded.chosen), len(encoded.rejected))
    if not ids or longest > model.context_length:
        raise DataError(
            f"the pair that begins {prompt[:60]!r} has {longest} tokens, {len(ids)} of them prompt; allowed: a prompt "
            f"of at least 1 token, {model.context_length} in all"
        )
    if has_unknown(tokenizer, "".join(map(str, (prompt, *completions))), [*ids, *chosen, *rejected]):
        raise DataError(f"the tokenizer cannot write all characters of the pair that begins {prompt[:60]!r}")
    return encoded


def _rendered(tokenizer: Any, pair: Pair) -> list[str]:
    """Prompt and completions as the chat template writes them, without the end token."""
    if not tokenizer.chat_template:
        raise DataError("the pairs are conversations, but the tokenizer has no chat template: give them as plain text")
    prompt: str = tokenizer.apply_chat_template(pair.prompt, tokenize=False, add_generation_prompt=True)
    return [prompt, *(_completion(tokenizer, prompt, [*pair.prompt, *said]) for said in (pair.chosen, pair.rejected))]


def _completion(tokenizer: Any, prompt: str, conversation: list[Message]) -> str:
    whole: str = tokenizer.apply_chat_template(conversation, tokenize=False)
    if not whole.startswith(prompt):
        raise DataError(
            f"the chat template writes a conversation that does not begin with its prompt {prompt[-60:]!r}: give the "
            "pairs as plain text"
        )
    text, end, rest = whole[len(prompt) :].rpartition(tokenizer.eos_token)
    return text if end and not rest.strip() else whole[len(prompt) :]


def pairs_of_step(num_pairs: int, size: int, seed: int, step: int) -> list[int]:
    """The pairs that a step learns from."""
    return shuffled_epochs(num_pairs, size, step, seed, "pair order")


def chunks(pairs: Sequence[EncodedPair], budget: int) -> Iterator[list[EncodedPair]]:
    """The pairs by length, in micro-batches."""
    by_length = sorted(pairs, key=lambda pair: pair.num_tokens)
    for chunk in micro_batches([pair.num_tokens for pair in by_length], budget):
        yield [by_length[i] for i in chunk]


Step = Callable[[int, Sequence[EncodedPair]], Any]
"""(step, its pairs) -> what the step reports."""
Scores = Callable[[list[EncodedPair]], Tensor]
"""A micro-batch of pairs -> (B, 2) scores of chosen and rejected completions."""


def train_on_pairs(
    recipe: PairsRecipe,
    session: Session,
    train: Sequence[EncodedPair],
    held_out: Sequence[EncodedPair],
    step: Step,
    scores: Scores,
    on_report: Callable[[Any], None],
) -> Session:
    """The loop: draw pairs, do the step, record, measure on held-out pairs."""
    config, run = recipe.pairs, recipe.run
    for number in session.steps():
        indices = pairs_of_step(len(train), config.pairs_per_step, run.seed, number)
        report = step(number, [train[i] for i in indices])
        session.progress.tokens += report.num_tokens
        fingerprint = session.policy.fingerprint()
        facts = {"step": number, "loss": report.loss, "grad_norm": report.grad_norm, "weights": fingerprint}
        session.record(facts, report._asdict())
        on_report(report)
        done = number + 1
        if held_out and (done % config.evaluate_every == 0 or done == run.num_steps):
            measured = held_out[: config.evaluate_pairs]
            measurement = measure(done, measured, scores, config.tokens_per_micro_batch, session.policy.device)
            session.record(
                {"evaluation": "held_out", **_plain(measurement)}, {"kind": "held_out", **_plain(measurement)}
            )
            on_report(measurement)
    session.finish()
    return session


def _plain(report: HeldOut) -> dict[str, Any]:
    return {**report._asdict(), "accuracy": list(report.accuracy)}


@torch.no_grad()
def measure(step: int, pairs: Sequence[EncodedPair], scores: Scores, budget: int, device: torch.device) -> HeldOut:
    """Accuracy with its interval, margin, calibration and mean of the scores of some pairs."""
    pieces = list(chunks(pairs, micro_batch_tokens(budget, device)))
    pair_scores = torch.cat(list(shared_out(scores, pieces, device))).double().cpu()
    chosen, rejected = pair_scores.T.numpy()
    return HeldOut(
        step=step,
        accuracy=mean_share(preferred(chosen, rejected)),
        margin=float((chosen - rejected).mean()),
        calibration_error=calibration_error(reliability(chosen, rejected)),
        mean_score=float(pair_scores.mean()),
    )
