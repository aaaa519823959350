"""A reward model: one number for a whole completion, read by one linear layer at the token that ends it.

It is transformers' sequence classifier with one label, in the packed forward: its directory loads unchanged in
AutoModelForSequenceClassification, and any such directory with one label and full attention loads here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models import attention
from groupwise.models.backbone import Backbone
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import ModelConfig, damaged, read_pretrained, to_device

HEAD = "score.weight"


@dataclass(frozen=True, slots=True)
class RewardModel(Backbone):
    """A model that scores completions."""

    @property
    def head(self) -> torch.nn.Linear:
        """The layer that makes a score of a hidden state."""
        layer: torch.nn.Linear = self.model.score  # type: ignore[assignment]
        return layer

    def scores(self, sequences: Sequence[Sequences]) -> Tensor:
        """(B,) score of every completion, in order, with gradient; each ends with its end token."""
        score: Tensor = self.head(self._end_states(sequences).float())[:, 0]
        return score

    def _end_states(self, sequences: Sequence[Sequences]) -> Tensor:
        """(B, d) hidden states at the last token of every completion."""
        # a pack never reads a completion's last token, which is only predicted; one more after it has the end read
        longer = [Sequences(one.prompt, [np.append(c, 0) for c in one.completions]) for one in sequences]
        packed = pack(longer, self.device)
        ends = np.cumsum([len(completion) for one in longer for completion in one.completions]) - 1
        with self.precision():
            return self.hidden_at(packed, packed.head_positions[torch.from_numpy(ends).to(self.device)])


def load_reward_model(config: ModelConfig) -> RewardModel:
    """Load a reward model.

    Raises:
        ModelError: it is missing, damaged, a language model without a score, or without an end token.
        UnsupportedModelError: it computes attention in a way we do not.
    """
    return _load(config, allow_language_model=False)


def start_reward_model(config: ModelConfig) -> RewardModel:
    """Load what a reward model is trained from: a language model, whose score is 0 at first, or a reward model."""
    return _load(config, allow_language_model=True)


def _load(config: ModelConfig, *, allow_language_model: bool) -> RewardModel:
    model, tokenizer, lost = read_pretrained(AutoModelForSequenceClassification, config, num_labels=1)
    if lost == [HEAD] and not allow_language_model:
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
    to_device(model, config)
    found = RewardModel(model, tokenizer, frozenset({end}), getattr(torch, config.compute_dtype))
    if lost:
        torch.nn.init.zeros_(found.head.weight)
    _check_forward(found)
    return found


@torch.no_grad()
def _check_forward(reward_model: RewardModel) -> None:
    """Compare with transformers' own eager forward; hidden states, because a new head scores everything 0."""
    model, body = reward_model.model, reward_model.model.base_model
    vocabulary = model.config.get_text_config().vocab_size
    prompt, *tails = ([(7 * i + 3 * k + 1) % vocabulary for i in range(length)] for k, length in enumerate((3, 4, 2)))
    with reward_model.precision():
        ours = reward_model._end_states([Sequences(prompt, tails)]).float()
        model.set_attn_implementation("eager")
        rows = [torch.tensor([[*prompt, *tail]], device=reward_model.device) for tail in tails]
        theirs = torch.cat([body(row, use_cache=False).last_hidden_state[:, -1] for row in rows]).float()
        model.set_attn_implementation(attention.NAME)
    difference = (ours - theirs).abs().max().item()
    allowed = (1e-3 if reward_model.compute_dtype is torch.float32 else 0.25) * max(1.0, theirs.abs().max().item())
    if not difference <= allowed:
        raise UnsupportedModelError(
            f"{type(model).__name__}: the packed forward differs from transformers' eager forward by {difference:.2g} "
            f"(allowed {allowed:.2g}), so this architecture is not supported"
        )
