"""A completion's steps as process reward models read them: token ids, the ends of the steps, and a score at each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from groupwise.errors import DataError, ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.cores import shared_out
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches, pack
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import prompt_ids, unknown_id
from groupwise.models.reward_model import RewardModel, load_reward_model
from groupwise.tasks.step_rows import StepRow

ScoresSteps: TypeAlias = "RewardModel | ImplicitRewardModel"
"""A model that says of every step how likely it is to be right: a reward model with a head, or an implicit one."""


class EncodedSteps(NamedTuple):
    """A row as token ids."""

    prompt: list[int]
    completion: list[int]
    ends: list[int]  # Number of tokens up to and with each step's last one
    labels: list[float | None]

    @property
    def sequences(self) -> Sequences:
        return Sequences(self.prompt, [self.completion])


def refuse_unknown(tokenizer: Any, text: str, ids: Sequence[int], what: str) -> None:
    """Raise DataError where a tokenizer left out characters: it wrote more unknown tokens than the text names itself.

    A model that samples the unknown token leaves its name in the text, and that can be written.
    """
    unknown = unknown_id(tokenizer)
    if unknown is not None and list(ids).count(unknown) > text.count(tokenizer.unk_token):
        raise DataError(f"the tokenizer cannot write all characters of {what}")


def encode_steps(model: ScoresSteps, row: StepRow, supervision: str = "process") -> EncodedSteps:
    """Return the token ids of a row, step by step: every token belongs to one step and every step ends with a token.

    Raises:
        DataError: it is too long, or the tokenizer cannot write it.
    """
    tokenizer = model.tokenizer
    prompt = prompt_ids(model, row.prompt, f"the prompt {row.prompt[:60]!r}", is_chat=row.rendered)
    steps = tokenizer(list(row.steps), add_special_tokens=False)["input_ids"]
    ids = [token for step in steps for token in step]
    if not prompt or not all(steps) or len(prompt) + len(ids) > model.context_length:
        raise DataError(
            f"the row that begins {row.prompt[:60]!r} has {len(prompt) + len(ids)} tokens, {len(prompt)} of them "
            f"prompt; allowed: a prompt and steps of at least 1 token each, {model.context_length} in all"
        )
    text = row.prompt + "".join(row.steps)
    refuse_unknown(tokenizer, text, [*prompt, *ids], f"the row that begins {row.prompt[:60]!r}")
    labels = list(row.labels)
    if supervision != "process":
        labels = [*[None] * (len(labels) - 1), labels[-1]]
    return EncodedSteps(prompt, ids, _ends(steps), labels)


def _ends(steps: Sequence[Sequence[int]]) -> list[int]:
    return [sum(map(len, steps[: i + 1])) for i in range(len(steps))]


class Prefixes(NamedTuple):
    """Beginnings of the completions of one prompt, which are read at the ends of their steps."""

    sequences: Sequences
    ends: list[list[int]]
    """Of every completion the number of tokens up to and with each step's last one."""


def encode_prefixes(model: ScoresSteps, prompt: Sequence[int], completions: Sequence[Sequence[str]]) -> Prefixes:
    """Return the token ids of the steps of some completions of one prompt, step by step as `encode_steps` has them.

    Raises:
        ModelError: one is longer than what the model can read.
    """
    encoded = [model.tokenizer(list(steps), add_special_tokens=False)["input_ids"] for steps in completions]
    ids = [[token for step in steps for token in step] for steps in encoded]
    longest = len(prompt) + max(map(len, ids))
    if longest > model.context_length:
        raise ModelError(f"it reads {model.context_length} tokens, but a completion has {longest} with its prompt")
    return Prefixes(Sequences(prompt, ids), [_ends(steps) for steps in encoded])


@torch.no_grad()
def score_prefixes(
    model: ScoresSteps, groups: Sequence[Prefixes], tokens_per_micro_batch: int = 0
) -> list[list[list[float]]]:
    """Return of every group, completion and step the chance that it is right; each prompt is computed once."""
    budget = micro_batch_tokens(tokens_per_micro_batch, model.device)
    chunks = list(micro_batches([group.sequences.num_read for group in groups], budget))

    def logits(chunk: range) -> Tensor:
        chosen = [groups[i] for i in chunk]
        return model.step_scores([group.sequences for group in chosen], [group.ends for group in chosen]).double().cpu()

    parts = list(shared_out(logits, chunks, model.device))
    chances = iter(torch.cat(parts).sigmoid().tolist() if parts else [])
    return [[[next(chances) for _ in ends] for ends in group.ends] for group in groups]


def score_rows(model: ScoresSteps, rows: Sequence[EncodedSteps], tokens_per_micro_batch: int = 0) -> list[list[float]]:
    """Return of every row the chance that each step is right."""
    groups = [Prefixes(row.sequences, [row.ends]) for row in rows]
    return [scores for (scores,) in score_prefixes(model, groups, tokens_per_micro_batch)]


@dataclass(frozen=True, slots=True)
class ImplicitRewardModel:
    """Two language models of one tokenizer that score steps as a `RewardModel` does, by how much likelier a text is.

    Trained on outcomes alone as r = β log π(y|x) / π_ref(y|x), the sum up to a step's end is the log-odds that the
    answer will be right (Yuan et al. 2024, "Free process rewards without process labels", arXiv:2412.01981,
    proposition 3.1).
    """

    policy: Policy  # π, which is trained
    reference: Policy
    beta: float  # β: log-odds for one nat more than the reference's (PRIME, arXiv:2502.01456: 0.05)

    @property
    def tokenizer(self) -> Any:
        return self.policy.tokenizer

    @property
    def stop_ids(self) -> frozenset[int]:
        return self.policy.stop_ids

    @property
    def context_length(self) -> int:
        return min(self.policy.context_length, self.reference.context_length)

    @property
    def device(self) -> torch.device:
        return self.policy.device

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return self.policy.trainable()

    def step_scores(self, sequences: Sequence[Sequences], ends: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """Return (N,) β Σ log π/π_ref up to every step's end, in order, with the policy's gradient."""
        packed = pack(sequences, self.device)
        with torch.no_grad():
            reference = self.reference.token_logprobs(packed).logprobs
        ratios = self.policy.token_logprobs(packed).logprobs - reference
        pieces = ratios.split([len(completion) for sequence in sequences for completion in sequence.completions])
        each = zip(pieces, (step_ends for of_each in ends for step_ends in of_each), strict=True)
        return self.beta * torch.stack([piece[:end].sum() for piece, step_ends in each for end in step_ends])


READS_CHAT = "groupwise_reads_chat"  # Whether a chat template wrote the prompts; saved with adapters, too


def mark_reads(scorer: ScoresSteps, chat: bool) -> None:
    """Keep, in the tokenizer's settings, what wrote the prompts that a model learns from."""
    scorer.tokenizer.init_kwargs[READS_CHAT] = chat


def check_reads(scorer: ScoresSteps, chat: bool, name: str) -> None:
    """Check that a model reads prompts as it learnt them (ModelError)."""
    learnt = scorer.tokenizer.init_kwargs.get(READS_CHAT, chat)
    if learnt != chat:
        raise ModelError(
            f"{name} learnt from prompts that {'a' if learnt else 'no'} chat template wrote, and would read others: "
            f"allowed are task.template.chat = {str(learnt).lower()}, and labels of completions sampled as these are"
        )


def load_scorer(config: ModelConfig, reference: str = "", beta: float = 0.05, frozen: bool = True) -> ScoresSteps:
    """Load a process reward model: with a head, or where a reference is named an implicit one, frozen or not.

    Raises:
        ModelError: it cannot be loaded, or has another tokenizer than its reference.
    """
    if not reference:
        return load_reward_model(config).freeze()
    policy = load_policy(config)
    scorer = ImplicitRewardModel(
        policy.freeze() if frozen else policy, load_policy(config.at(reference)).freeze(), beta
    )
    if scorer.tokenizer.get_vocab() != scorer.reference.tokenizer.get_vocab():
        raise ModelError(
            f"{config.path!r} and its reference {reference!r} have different tokenizers: their log-probabilities are "
            "not of the same tokens; allowed is the model that it was trained from"
        )
    return scorer
