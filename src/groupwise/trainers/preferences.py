"""Shared by the trainers that learn from preference pairs: recipe, encoding, loop, held-out pairs."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.preferences import calibration_error, preferred, reliability
from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.config import Section
from groupwise.errors import DataError
from groupwise.models.backbone import Backbone
from groupwise.models.cores import shared_out
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches
from groupwise.models.prompts import ended, prompt_ids
from groupwise.models.steps import has_unknown
from groupwise.randomness import shuffled_epochs
from groupwise.tasks.base import ChatArguments
from groupwise.tasks.preferences import Pair, PairsData
from groupwise.trainers.base import NUM_HELD_OUT, FineTuningRecipe, HeldOutConfig
from groupwise.trainers.turns import Dialogue, turns
from groupwise.training.session import Session


class PairsConfig(HeldOutConfig):
    """The batches of pairs."""

    pairs_per_step: int = Field(64, ge=1)
    """Pairs per step (InstructGPT's reward model and DPO: 64)."""


class PairsRecipe(FineTuningRecipe):
    """Base of all recipes that learn from pairs."""

    data: PairsData
    """The pairs."""

    @property
    def pairs(self) -> PairsConfig:
        raise NotImplementedError


class EncodedPair(NamedTuple):
    """A pair as token ids; the end token is part of the completions."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    margin: float = 0.0
    ref_chosen: float = math.nan
    ref_rejected: float = math.nan

    @property
    def sequences(self) -> Sequences:
        return Sequences(self.prompt, [self.chosen, self.rejected])

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.chosen) + len(self.rejected)


class HeldOut(NamedTuple):
    """A model's figures on the held-out pairs."""

    step: int
    accuracy: Estimate
    """Share of pairs whose chosen completion scores higher; equal scores count half."""
    margin: float
    calibration_error: float
    """Expected calibration error of the probability σ(score difference)."""
    mean_score: float
    """Mean over all completions; only differences are learnt, so a mean near 0 is centring's doing."""


def encode(model: Backbone, pairs: Sequence[Pair], chat: Section | None = None) -> list[EncodedPair]:
    """Write pairs as token ids, the end token added; raises DataError or ModelError where a pair cannot be written."""
    return [_encode(model, pair, chat if isinstance(chat, ChatArguments) else ChatArguments()) for pair in pairs]


def _encode(model: Backbone, pair: Pair, chat: ChatArguments) -> EncodedPair:
    tokenizer = model.tokenizer
    if isinstance(pair.prompt, list):
        place = f"the pair that begins {pair.prompt[0]['content'][:60]!r}"
        sides = [
            turns(model, Dialogue(pair.prompt, side, pair.tools, place), chat)
            for side in (pair.chosen, pair.rejected)
            if isinstance(side, list)
        ]
        shared = min(side.prompt for side in sides)
        completions = [side.ids[shared:] for side in sides]
        return EncodedPair(sides[0].ids[:shared], completions[0], completions[1], pair.margin)
    ids = prompt_ids(model, pair.prompt, f"the prompt {pair.prompt[:60]!r}")
    chosen, rejected = tokenizer([pair.chosen, pair.rejected], add_special_tokens=False)["input_ids"]
    encoded = EncodedPair(ids, ended(model, chosen), ended(model, rejected), pair.margin)
    longest = len(ids) + max(len(encoded.chosen), len(encoded.rejected))
    if not ids or longest > model.context_length:
        raise DataError(
            f"the pair that begins {pair.prompt[:60]!r} has {longest} tokens, {len(ids)} of them prompt; allowed: a "
            f"prompt of at least 1 token, {model.context_length} in all"
        )
    if has_unknown(tokenizer, "".join(map(str, pair[:3])), [*ids, *chosen, *rejected]):
        raise DataError(f"the tokenizer cannot write all characters of the pair that begins {pair.prompt[:60]!r}")
    return encoded


def pairs_of_step(num_pairs: int, size: int, seed: int, step: int) -> list[int]:
    """Choose the pairs of a step, in shuffled epochs."""
    return shuffled_epochs(num_pairs, size, step, seed, "pair order")


def chunks(pairs: Sequence[EncodedPair], budget: int) -> Iterator[list[EncodedPair]]:
    """Cut pairs, sorted by length, into micro-batches."""
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
    """Run the loop: draw pairs, do the step, record, measure on held-out pairs."""
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
            first = held_out[:NUM_HELD_OUT]
            measured = measure(done, first, scores, config.tokens_per_micro_batch, session.policy.device)
            values = {**measured._asdict(), "accuracy": list(measured.accuracy)}
            session.record({"evaluation": "held_out", **values}, {"kind": "held_out", **values})
            on_report(measured)
    session.finish()
    return session


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
