"""A reward model: one number for a whole completion, read by one linear layer at the token that ends it.

It is transformers' sequence classifier with one label, in the packed forward: its directory loads unchanged in
AutoModelForSequenceClassification, and any such directory with one label and full attention loads here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from groupwise.errors import ModelError
from groupwise.models.backbone import Backbone, Root
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.cores import shared_out
from groupwise.models.loading import Training, damaged, place, with_adapters
from groupwise.models.located import locate
from groupwise.models.packed import Pack, Sequences, micro_batch_tokens, micro_batches, pack
from groupwise.models.rows import read, read_whole

HEAD = "score.weight"


class RewardModule(Root):
    """The root module of a sequence classifier with one label."""

    def forward(self, packed: Pack) -> Tensor:
        scores: Tensor = self.score(self._states_of(packed).float())
        return scores  # (N, 1): a hook on the output would be lost on a view

    def eager_states(self, row: Tensor) -> Tensor:
        states: Tensor = self.model.base_model(row, use_cache=False).last_hidden_state
        return states

    @property
    def score(self) -> torch.nn.Linear:
        layer: torch.nn.Linear = self.model.score  # type: ignore[assignment]
        return layer


@dataclass(frozen=True, slots=True)
class RewardModel(Backbone):
    """A model that scores completions."""

    root: RewardModule

    @property
    def head(self) -> torch.nn.Linear:
        return self.root.score

    def scores(self, sequences: Sequence[Sequences]) -> Tensor:
        """Return the (B,) score of every completion, in order, with gradient; each ends with its end token."""
        return self.step_scores(sequences, _ends(sequences))

    def step_scores(self, sequences: Sequence[Sequences], ends: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """Return the (N,) score at the last token of every step of every completion, in order, with gradient.

        `ends` are of every completion the numbers of tokens up to and with each step's last one, increasing. A score
        reads the prompt and the completion up to there, so no later text changes it.
        """
        scores: Tensor = self.root(_marked(sequences, ends, self.device))
        return scores[:, 0]

    def check_forward(self) -> None:
        """Compare hidden states with those of transformers' own forward, because a new head scores everything 0.

        Of a model in rows all ranks have to ask.
        """
        size = self.model.config.get_text_config().vocab_size
        prompt, *tails = ([(7 * i + 3 * k + 1) % size for i in range(length)] for k, length in enumerate((3, 4, 2)))
        rows = [torch.tensor([[*prompt, *tail]], device=self.device) for tail in tails]
        self.compare_with_eager(
            lambda: self.end_states([Sequences(prompt, tails)]),
            lambda: torch.cat([self.root.eager_states(row)[:, -1] for row in rows]),
        )

    def end_states(self, sequences: Sequence[Sequences]) -> Tensor:
        """Return the (B, d) hidden states at the last token of every completion, of which the scores are made."""
        return self.root.states(_marked(sequences, _ends(sequences), self.device))


@torch.no_grad()
def score_completions(
    model: RewardModel, path: str, sequences: Sequence[Sequences], names: Sequence[str], tokens_per_micro_batch: int = 0
) -> list[float]:
    """Return the score of every completion, in order; the names say what the completions of each prompt are.

    Raises:
        ModelError: one is longer than what the model can read, or its score is not a number.
    """
    for sequence, name in zip(sequences, names, strict=True):
        longest = len(sequence.prompt) + max(map(len, sequence.completions))
        if longest > model.context_length:
            raise ModelError(
                f"the reward model {path!r} reads {model.context_length} tokens, but {name} has {longest} with its "
                "prompt: allow fewer in sampling.max_tokens"
            )
    budget = micro_batch_tokens(tokens_per_micro_batch, model.device)
    chunks = list(micro_batches([sequence.num_read for sequence in sequences], budget))
    parts = shared_out(lambda chunk: model.scores([sequences[i] for i in chunk]).tolist(), chunks, model.device)
    scores: list[float] = [score for part in parts for score in part]
    of = [name for sequence, name in zip(sequences, names, strict=True) for _ in sequence.completions]
    for score, name in zip(scores, of, strict=True):
        check_number(score, f"the reward model {path!r}", name)
    return scores


def check_number(score: float, model: str, of: str) -> None:
    """Check that a score can be compared (ModelError)."""
    if not math.isfinite(score):
        raise ModelError(
            f"{model} gives {score} to {of}: only numbers can be compared; its weights are damaged, or its "
            "compute_dtype is too small for them"
        )


Ends = Sequence[Sequence[Sequence[int]]]


def _ends(sequences: Sequence[Sequences]) -> Ends:
    return [[[len(completion)] for completion in sequence.completions] for sequence in sequences]


def _marked(sequences: Sequence[Sequences], ends: Ends, device: torch.device) -> Pack:
    """The pack in which the tokens behind the ends are what is predicted, so that it is read at the ends."""
    marked = []
    for sequence, ends_of_each in zip(sequences, ends, strict=True):
        # a pack never reads a completion's last token, which is only predicted; one more after it has the end read
        completions = [np.append(completion, 0) for completion in sequence.completions]
        masks = [np.zeros(len(completion), np.bool_) for completion in completions]
        for mask, step_ends in zip(masks, ends_of_each, strict=True):
            mask[np.asarray(step_ends, np.int64)] = True
        marked.append(Sequences(sequence.prompt, completions, masks))
    return pack(marked, device)


def load_reward_model(config: ModelConfig) -> RewardModel:
    """Load a reward model.

    Raises:
        ModelError: it is missing, damaged, a language model without a score, or without an end token.
        UnsupportedModelError: it computes attention in a way we do not.
    """
    return _load(config, None, in_rows=False)


def start_reward_model(
    config: ModelConfig, lora: LoraConfig | None = None, seed: int = 0, *, in_rows: bool = False
) -> RewardModel:
    """Load the start of a reward model: a language model, whose score is 0 at first, or a reward model.

    With `lora` its adapters are trained, and the score; see `models.policy.start_policy`.
    """
    return _load(config, Training(lora, seed), in_rows)


def _load(config: ModelConfig, training: Training | None, in_rows: bool) -> RewardModel:
    located = locate(config.path)
    adapts = training is not None and training.lora is not None
    kind = AutoModelForSequenceClassification
    model, tokenizer, lost, unread = read(kind, located, config, in_rows, adapts, num_labels=1)
    if unread is not None:
        read_whole(model, HEAD, unread)
    adapters, held = with_adapters(model, located, training, unread, scores=True)
    lost = [name for name in lost if name not in held]
    if lost == [HEAD] and training is None:
        raise ModelError(
            f"{config.path!r} is a language model, not a reward model: it has no score. Train one with "
            'algorithm = "reward_model"'
        )
    if lost not in ([], [HEAD]):
        raise damaged(config.path, lost)
    end = tokenizer.eos_token_id
    if end is None:
        raise ModelError(f"the tokenizer of {config.path!r} has no end-of-sequence token, at which to read the score")
    # transformers reads the score before the padding: where that is the end token it would read one token too early
    padding = tokenizer.pad_token_id
    model.config.get_text_config().pad_token_id = None if padding == end else padding
    root = RewardModule(model, place(model, config, is_read=unread is None), adapters)
    if lost:
        torch.nn.init.zeros_(root.score.weight)
    loaded = RewardModel(root, tokenizer, frozenset({end}), unread=unread)
    if unread is None:
        loaded.check_forward()
    else:
        root.computes_on = unread.device
    return loaded
