"""A completion's steps as a process reward model reads them: token ids, the ends of the steps, and a score at each."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.errors import DataError
from groupwise.models.cores import in_threads
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches
from groupwise.models.reward_model import RewardModel
from groupwise.tasks.step_rows import StepRow


class EncodedSteps(NamedTuple):
    """A row as token ids."""

    prompt: list[int]
    completion: list[int]
    ends: list[int]
    """Number of tokens up to and with each step's last one."""
    labels: list[float | None]

    @property
    def sequences(self) -> Sequences:
        return Sequences(self.prompt, [self.completion])

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.completion)


def encode_steps(model: RewardModel, row: StepRow, supervision: str = "process") -> EncodedSteps:
    """Token ids of a row: step by step, so that every token belongs to one step and every step ends with a token.

    Raises:
        DataError: it is too long, or the tokenizer cannot write it.
    """
    tokenizer = model.tokenizer
    prompt = tokenizer(row.prompt)["input_ids"]
    steps = tokenizer(list(row.steps), add_special_tokens=False)["input_ids"]
    ids = [token for step in steps for token in step]
    if not prompt or not all(steps) or len(prompt) + len(ids) > model.context_length:
        raise DataError(
            f"the row that begins {row.prompt[:60]!r} has {len(prompt) + len(ids)} tokens, {len(prompt)} of them "
            f"prompt; allowed: a prompt and steps of at least 1 token each, {model.context_length} in all"
        )
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in (*prompt, *ids):
        raise DataError(f"the tokenizer cannot write all characters of the row that begins {row.prompt[:60]!r}")
    ends = [sum(map(len, steps[: i + 1])) for i in range(len(steps))]
    labels = list(row.labels)
    if supervision == "outcome":
        labels = [*[None] * (len(labels) - 1), labels[-1]]
    return EncodedSteps(prompt, ids, ends, labels)


def step_logits(model: RewardModel, rows: Sequence[EncodedSteps]) -> Tensor:
    """(N,) score of every step of the rows, in order, with gradient; σ of it is the chance that the step is right."""
    return model.step_scores([row.sequences for row in rows], [[row.ends] for row in rows])


@torch.no_grad()
def score_rows(model: RewardModel, rows: Sequence[EncodedSteps], tokens_per_micro_batch: int = 0) -> list[list[float]]:
    """Of every row, the chance that each step is right."""
    chunks = list(
        micro_batches([row.num_tokens for row in rows], micro_batch_tokens(tokens_per_micro_batch, model.device))
    )
    logits = in_threads(lambda chunk: step_logits(model, [rows[i] for i in chunk]).double().cpu(), chunks, model.device)
    chances = iter(torch.cat(list(logits)).sigmoid().tolist())
    return [[next(chances) for _ in row.ends] for row in rows]
