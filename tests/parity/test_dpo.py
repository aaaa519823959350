"""Loss and every parameter's gradient of learning from pairs equal TRL's, in two updates on the same text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parity_batch import Updates, assert_equal, gradients_of, move, reference_of
from parity_trl import TrlRecorder, import_trl
from transformers import PrinterCallback

from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import start_reward_model
from groupwise.tasks.preferences import Pair
from groupwise.trainers.dpo import DpoConfig, dpo_gradient, referred
from groupwise.trainers.preferences import RewardModelConfig, encode, reward_model_gradient

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

PAIRS = [
    Pair("2+2=", "4", "five"), Pair("What is 6 times 7?\n", "It is 42.", "42"),
    Pair("?", "no", "yes, and yes"), Pair("Say it: ", "it", "that"),
]  # fmt: skip
BETA = 0.1


def settings(directory: Path, micro_batches: int) -> dict[str, Any]:
    """TRL's configuration of two updates on all pairs."""
    return {
        "output_dir": str(directory),
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "per_device_train_batch_size": len(PAIRS) // micro_batches,
        "gradient_accumulation_steps": micro_batches,
        "max_steps": 2,
        "learning_rate": 0.0,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def theirs(algorithm: str, model: Any, tokenizer: Any, config: dict[str, Any], **more: Any) -> Updates:
    """Loss and gradients of TRL's trainer of that name."""
    import datasets

    trl, recorder = import_trl(), TrlRecorder()
    rows = {name: [getattr(pair, name) for pair in PAIRS] for name in ("prompt", "chosen", "rejected")}
    trainer = getattr(trl, f"{algorithm}Trainer")(
        model=model,
        args=getattr(trl, f"{algorithm}Config")(**config),
        train_dataset=datasets.Dataset.from_dict(rows),
        processing_class=tokenizer,
        callbacks=[recorder],
        **more,
    )
    trainer.remove_callback(PrinterCallback)
    return Updates(trainer.train().training_loss, recorder.gradients)


def ours(model: Any, gradient: Callable[[], float]) -> Updates:
    """Loss and gradients of two updates, between which the weights move as in `TrlRecorder`."""
    losses, gradients = [], []
    for number in (1, 2):
        losses.append(gradient())
        gradients.append(gradients_of(model))
        model.zero_grad(set_to_none=True)
        move(model, number)
    return Updates(sum(losses) / 2, gradients)


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize(("loss", "their_loss"), [("dpo", "sigmoid"), ("ipo", "ipo")])
def test_dpo(
    make_model: Any, tokenizer: Any, policy: Policy, tmp_path: Path, loss: str, their_loss: str, micro_batches: int
) -> None:
    learner = policy.copy()
    config = DpoConfig(loss=loss, beta=BETA, tokens_per_micro_batch=1000 if micro_batches == 1 else 30)
    pairs = referred(reference_of(policy), encode(policy, PAIRS), config)
    found = ours(learner.model, lambda: dpo_gradient(learner, pairs, config)[0])
    reference = reference_of(policy).model
    reference.set_attn_implementation("eager")
    expected = theirs(
        "DPO", make_model(), tokenizer, settings(tmp_path, micro_batches) | {"loss_type": their_loss, "beta": BETA},
        ref_model=reference,
    )  # fmt: skip
    assert_equal(found, expected)


@pytest.mark.parametrize("centring", [0.0, 0.1])
def test_reward_model(tokenizer: Any, policy: Policy, tmp_path: Path, centring: float) -> None:
    save_checkpoint(tmp_path / "policy", policy)
    mine, other = (start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu")) for _ in range(2))
    for one in (mine, other):
        with torch.no_grad():
            one.head.weight.copy_(torch.randn(one.head.weight.shape, generator=torch.Generator().manual_seed(0)))
    other.model.set_attn_implementation("eager")
    pairs, config = encode(mine, PAIRS), RewardModelConfig(centring=centring)
    found = ours(mine.model, lambda: reward_model_gradient(mine, pairs, config)[0])
    coefficient = {"center_rewards_coefficient": centring or None, "disable_dropout": True}
    assert_equal(found, theirs("Reward", other.model, tokenizer, settings(tmp_path, 1) | coefficient))
