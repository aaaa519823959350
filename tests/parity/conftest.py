"""Both sides of a comparison: one model, one batch, through our update and through TRL's trainer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from groupwise.algorithms.advantages import advantage as advantage_of
from groupwise.models.policy import Policy
from groupwise.trainers.grpo import advantaged
from groupwise.training.config import LossConfig
from groupwise.training.tokens import with_kl_part
from groupwise.training.update import Updater, update_policy
from groupwise.types import AdvantagedGroup

pytest.register_assert_rewrite("parity_batch", "parity_trl")  # so that a failure shows its numbers

from parity_batch import (  # noqa: E402
    MAX_TOKENS,
    Batch,
    Updates,
    four_by_four,
    gradients_of,
    groups_of,
    move,
    reference_of,
    scored,
)
from parity_trl import import_trl, keep_order, make_trainer, sample, settings  # noqa: E402


@pytest.fixture(scope="session")
def batch() -> Batch:
    return four_by_four()


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return tiny_policy()


class Recorder:
    """Stands in for our optimizer: keeps the gradients and moves the weights."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.gradients: list[dict[str, Tensor]] = []

    def update(self, step: int) -> float:
        self.gradients.append(gradients_of(self.policy.model))
        self.policy.model.zero_grad(set_to_none=True)
        move(self.policy.model, len(self.gradients))
        return 1.0


@pytest.fixture
def our_groups(policy: Policy) -> Callable[..., list[AdvantagedGroup]]:
    """our_groups(batch, advantage, temperature, **loss configuration) -> the groups that `grpo_step` trains on."""

    def prepare(batch: Batch, advantage: str, temperature: float = 1.0, **config: Any) -> list[AdvantagedGroup]:
        loss, groups = LossConfig(**config), scored(batch, groups_of(batch, policy, temperature))
        return advantaged(
            with_kl_part(groups, reference_of(policy), loss, temperature), advantage_of(advantage), policy
        )

    return prepare


@pytest.fixture
def ours(policy: Policy, our_groups: Callable[..., list[AdvantagedGroup]]) -> Callable[..., Updates]:
    """ours(batch, advantage, temperature, **loss configuration) -> what `grpo_step` does after verification."""

    def run(batch: Batch, advantage: str = "group_mean", temperature: float = 1.0, **config: Any) -> Updates:
        groups = our_groups(batch, advantage, temperature, **config)
        learner = policy.copy()
        recorder = Recorder(learner)
        loss, reference = LossConfig(**config), reference_of(policy)
        updater = Updater(learner, recorder, loss, temperature, MAX_TOKENS, reference)  # type: ignore[arg-type]
        metrics = update_policy(updater, groups, step=0)
        return Updates(metrics.surrogate, recorder.gradients, metrics)

    return run


@pytest.fixture
def trl_trainer(
    make_model: Callable[..., Any], tokenizer: Any, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """trl_trainer(batch, algorithm, micro_batches, mini_batches, num_iterations, **TRL's configuration) -> trainer."""
    trl = import_trl()

    def make(
        batch: Batch,
        algorithm: str = "GRPO",
        micro_batches: int = 1,
        mini_batches: int = 1,
        num_iterations: int = 1,
        use_vllm: bool = False,
        shuffled: bool = False,
        **config: Any,
    ) -> Any:
        keep_order(monkeypatch, algorithm, shuffled)
        model = make_model()
        reference_of(policy).model.save_pretrained(tmp_path / "reference")
        model.config._name_or_path = str(tmp_path / "reference")  # where TRL looks for the reference
        config = settings(batch, tmp_path / "trl", micro_batches, mini_batches, num_iterations) | config
        trainer = make_trainer(trl, algorithm, model, tokenizer, batch, config)
        groups = groups_of(batch, policy, config.get("temperature", 1.0))
        logprobs = [one.sampling_logprobs.tolist() for group in groups for one in group.completions]
        sample(trainer, algorithm, batch, logprobs if use_vllm else None)
        return trainer

    return make


@pytest.fixture
def theirs(trl_trainer: Callable[..., Any]) -> Callable[..., Updates]:
    """theirs(batch, algorithm, **as for `trl_trainer`) -> what TRL's training loop does."""

    def run(batch: Batch, algorithm: str = "GRPO", **config: Any) -> Updates:
        trainer = trl_trainer(batch, algorithm, **config)
        loss = trainer.train().training_loss
        return Updates(loss, trainer.recorder.gradients)

    return run
