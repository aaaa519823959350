"""The packed score is transformers' own, computed on separate padded sequences; its directory is transformers' too."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from groupwise.errors import ModelError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences
from groupwise.models.policy import Policy, load_policy
from groupwise.models.reward_model import RewardModel, load_reward_model, start_reward_model

END = 1
SHAPES = [(5, [4, 1]), (1, [3, 9]), (9, [2, 2, 6]), (3, [1]), (2, [8])]
"""Prompt length and completion lengths."""


def ragged() -> list[Sequences]:
    draw = np.random.default_rng(0).integers
    return [
        Sequences(draw(2, 258, prompt).tolist(), [[*draw(2, 258, length - 1).tolist(), END] for length in lengths])
        for prompt, lengths in SHAPES
    ]


def padded(sequences: list[Sequences]) -> dict[str, torch.Tensor]:
    rows = [torch.tensor([*one.prompt, *completion]) for one in sequences for completion in one.completions]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask}


def eager(model: Any) -> Any:
    twin = copy.deepcopy(model).double()
    twin.set_attn_implementation("eager")
    return twin


@pytest.fixture
def make(tiny_policy: Callable[..., Policy], tmp_path: Path) -> Callable[..., RewardModel]:
    """make(architecture) -> a reward model with a random head on a tiny body."""

    def build(architecture: str = "qwen3") -> RewardModel:
        save_checkpoint(tmp_path / "policy", tiny_policy(architecture))
        made = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
        with torch.no_grad():
            made.head.weight.copy_(torch.randn(made.head.weight.shape, generator=torch.Generator().manual_seed(0)))
        return made

    return build


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_scores_and_gradients_equal_transformers_on_padded_sequences(
    make: Callable[..., RewardModel], architecture: str
) -> None:
    ours, sequences = make(architecture), ragged()
    found = ours.scores(sequences)
    weights = torch.randn(len(found), generator=torch.Generator().manual_seed(1)) / len(found)
    (found @ weights).backward()
    theirs = eager(ours.model)
    expected = theirs(**padded(sequences), use_cache=False).logits[:, 0]
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.1
    (expected @ weights.double()).backward()
    for (name, mine), other in zip(ours.model.named_parameters(), theirs.parameters(), strict=True):
        assert other.grad.abs().max() > 1e-5, name
        torch.testing.assert_close(mine.grad.double(), other.grad, atol=1e-5, rtol=1e-5)


def test_every_token_of_the_completion_is_read_and_no_other(make: Callable[..., RewardModel]) -> None:
    model = make()
    prompt, completion = [5, 6, 7], [8, 9, END]
    with torch.no_grad():
        alone = model.scores([Sequences(prompt, [completion])])
        together = model.scores([Sequences([9], [[3, END]]), Sequences(prompt, [completion, [4, END]])])[1:2]
        torch.testing.assert_close(alone, together)
        for place in range(3):
            changed = [*completion]
            changed[place] = 99
            assert (model.scores([Sequences(prompt, [changed])]) - alone).abs() > 1e-3


def test_a_saved_one_loads_unchanged_in_transformers_and_here(make: Callable[..., RewardModel], tmp_path: Path) -> None:
    made, sequences = make(), ragged()
    save_checkpoint(tmp_path / "saved", made)
    theirs, report = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(theirs).__name__ == "Qwen3ForSequenceClassification"
    assert theirs.config.num_labels == 1
    with torch.no_grad():
        ours = made.scores(sequences)
        torch.testing.assert_close(theirs(**padded(sequences)).logits[:, 0], ours, atol=1e-5, rtol=1e-5)
        again = load_reward_model(ModelConfig(path=str(tmp_path / "saved"), device="cpu"))
        assert torch.equal(again.scores(sequences), ours)
        start = start_reward_model(ModelConfig(path=str(tmp_path / "saved"), device="cpu"))
        assert torch.equal(start.scores(sequences), ours)


def test_a_new_one_scores_zero_and_learns_from_the_first_step(make: Callable[..., RewardModel], tmp_path: Path) -> None:
    make()
    new = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
    scores = new.scores(ragged())
    assert not scores.any()
    scores.sum().backward()
    assert new.head.weight.grad is not None
    assert new.head.weight.grad.abs().max() > 0.1


def test_a_language_model_is_no_reward_model(make: Callable[..., RewardModel], tmp_path: Path) -> None:
    make()
    with pytest.raises(ModelError, match=r"is a language model, not a reward model: it has no score. Train one"):
        load_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))


def test_a_reward_model_is_no_language_model(make: Callable[..., RewardModel], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "saved", make())
    with pytest.raises(ModelError, match=r"saved' is a reward model or another classifier; a language model is needed"):
        load_policy(ModelConfig(path=str(tmp_path / "saved"), device="cpu"))


def test_other_models_are_refused(make: Callable[..., RewardModel], tmp_path: Path) -> None:
    made = make()
    three = AutoModelForSequenceClassification.from_pretrained(tmp_path / "policy", num_labels=3)
    three.save_pretrained(tmp_path / "three")
    made.tokenizer.save_pretrained(tmp_path / "three")
    with pytest.raises(ModelError, match=r"three' is damaged: weights \['score.weight of \[3, 32\], not \[1, 32\]'\]"):
        load_reward_model(ModelConfig(path=str(tmp_path / "three"), device="cpu"))
    with pytest.raises(ModelError, match=r"nowhere' cannot be loaded: there is no such directory"):
        load_reward_model(ModelConfig(path=str(tmp_path / "nowhere"), device="cpu"))


def test_where_the_end_token_pads_transformers_scores_one_at_a_time(
    make: Callable[..., RewardModel], tmp_path: Path
) -> None:
    """It would take the end token for padding and read the score one token too early."""
    make()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path / "policy")
    made, sequences = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu")), ragged()
    torch.nn.init.ones_(made.head.weight)
    save_checkpoint(tmp_path / "saved", made)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    with torch.no_grad(), pytest.raises(ValueError, match="no padding token"):
        theirs(**padded(sequences))
    ours = iter(made.scores(sequences))
    for one in sequences:
        for completion in one.completions:
            with torch.no_grad():
                score = theirs(torch.tensor([[*one.prompt, *completion]])).logits[0, 0]
            torch.testing.assert_close(score, next(ours), atol=1e-5, rtol=1e-5)
