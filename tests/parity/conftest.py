"""Both sides of a comparison: one model, the same completions and rewards, through our update and through TRL's trainer.

TRL's trainer is the real one in its real training loop. It is given the completions instead of sampling them; `use_vllm`
is switched on after the start, which would look for a server; and completions stay in order instead of being shuffled.
"""

import copy
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback

from groupwise.models.policy import Policy
from groupwise.trainers.advantages import advantaged
from groupwise.training.forward import per_token
from groupwise.training.kl_reward import with_kl_part
from groupwise.training.loss_config import LossConfig
from groupwise.training.update import UpdateMetrics, update_policy
from groupwise.types import (
    AdvantagedGroup,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    Verdict,
)

VERSION = "1.16.0"
MAX_TOKENS = 12
END = 1
REFERENCE = 99
"""Number of the change that makes the reference of the policy."""
TOLERANCE = 2e-5
"""Of shares, see `gap`. Rounding: in single precision either side is up to 1.1e-5 away from double precision."""
CHANGE = 0.01
"""Standard deviation of what is added to every weight after an update."""


class Batch(NamedTuple):
    """Completions of some prompts and what they earned; everything by prompt."""

    prompts: Sequence[str]
    completions: Sequence[Sequence[list[int]]]
    parts: Sequence[Sequence[Sequence[float | None]]]
    """By part of the reward, prompt and completion; None where the verifier failed."""
    noise: float = 0.0
    """How far the sampler's log-probabilities are from the trainer's (standard deviation)."""
    stops: frozenset[int] = frozenset({END})
    """Tokens that end a completion where they stand last."""

    @property
    def rows(self) -> list[list[int]]:
        return [ids for group in self.completions for ids in group]

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.rows))


class Updates(NamedTuple):
    """What one side did in one or several updates."""

    loss: float
    """Mean over the updates."""
    gradients: list[dict[str, Tensor]]
    """Of every update, by parameter."""
    metrics: UpdateMetrics | None = None


def completion_of(length: int, ends: bool, seed: int) -> list[int]:
    tokens = np.random.default_rng(seed).integers(2, 258, length).tolist()
    return [*tokens[:-1], END] if ends else tokens


@pytest.fixture(scope="session")
def batch() -> Batch:
    """Four ragged groups of four; four completions are cut off at the limit; the second group has no signal."""
    lengths = [(3, 12, 7, 1), (5, 2, 9, 12), (12, 4, 6, 8), (10, 12, 12, 2)]
    rewards = [(1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0), (1.0, 0.5, 0.0, 0.25)]
    cut_off = {(0, 1), (1, 3), (2, 0), (3, 1)}  # (3, 2) is as long, but ends
    completions = [
        [completion_of(length, (i, j) not in cut_off, 10 * i + j) for j, length in enumerate(row)]
        for i, row in enumerate(lengths)
    ]
    return Batch(["2+2=", "Say it: ", "?", "What is 6 times 7"], completions, [rewards])


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return tiny_policy()


def groups_of(batch: Batch, policy: Policy, temperature: float = 1.0) -> list[Group]:
    """The batch as if an engine had sampled it from the policy."""
    groups = []
    for number, (text, rows) in enumerate(zip(batch.prompts, batch.completions, strict=True)):
        prompt = Prompt(Problem(f"p{number}", text, ""), text, tuple(policy.tokenizer(text)["input_ids"]))
        reasons = [FinishReason.STOP if ids[-1] in batch.stops else FinishReason.LENGTH for ids in rows]
        one = np.float32(1)
        made = [
            Completion(i, np.array(ids), -np.full(len(ids), one), np.full(len(ids), one), reason, "")
            for i, (ids, reason) in enumerate(zip(rows, reasons, strict=True))
        ]
        groups.append(Group(prompt, tuple(made), step=0, policy_version=0))
    found = per_token(groups, lambda pack: policy.token_logprobs(pack, temperature).logprobs, 4096, policy.device)
    return [_sampled(group, arrays, batch.noise) for group, arrays in zip(groups, found, strict=True)]


def _sampled(group: Group, logprobs: Sequence[Any], noise: float) -> Group:
    generator = np.random.default_rng(len(group.prompt.text))
    noisy = [one + noise * generator.standard_normal(len(one)).astype(np.float32) for one in logprobs]
    bounded = [np.minimum(one, -1e-3) if noise else one for one in noisy]
    pairs = zip(group.completions, bounded, strict=True)
    return replace(group, completions=tuple(replace(made, sampling_logprobs=one) for made, one in pairs))


def scored(batch: Batch, groups: Sequence[Group]) -> list[ScoredGroup]:
    """The groups with the batch's rewards as verdicts."""

    def verdict(prompt: int, completion: int) -> Verdict:
        values = [part[prompt][completion] for part in batch.parts]
        parts = {f"part{k}": value for k, value in enumerate(values) if value is not None}
        return Verdict(Outcome.WRONG if parts else Outcome.CRASHED, parts, "")

    return [
        ScoredGroup(group, tuple(verdict(i, j) for j in range(len(group.completions))))
        for i, group in enumerate(groups)
    ]


def gradients_of(model: Any) -> dict[str, Tensor]:
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def move(model: Any, number: int) -> None:
    """Change all weights, the same on both sides."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += CHANGE * torch.randn(parameter.shape, generator=generator)


def reference_of(policy: Policy) -> Policy:
    """A policy near the one that is trained."""
    model = copy.deepcopy(policy.model)
    move(model, REFERENCE)
    return replace(policy, model=model).freeze()


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
        return advantaged(with_kl_part(groups, reference_of(policy), loss, temperature), advantage, policy)

    return prepare


@pytest.fixture
def ours(policy: Policy, our_groups: Callable[..., list[AdvantagedGroup]]) -> Callable[..., Updates]:
    """ours(batch, advantage, temperature, **loss configuration) -> what `grpo_step` does after verification."""

    def run(batch: Batch, advantage: str = "group_mean", temperature: float = 1.0, **config: Any) -> Updates:
        groups = our_groups(batch, advantage, temperature, **config)
        learner = replace(policy, model=copy.deepcopy(policy.model))
        recorder = Recorder(learner)
        metrics = update_policy(
            learner, recorder, groups, LossConfig(**config),  # type: ignore[arg-type]
            step=0, temperature=temperature, max_tokens=MAX_TOKENS, reference=reference_of(policy),
        )  # fmt: skip
        return Updates(metrics.surrogate, recorder.gradients, metrics)

    return run


@pytest.fixture(scope="session")
def trl() -> ModuleType:
    module = pytest.importorskip("trl", reason="needs TRL: pip install -e '.[peers]'")
    assert module.__version__ == VERSION, f"these tests know TRL {VERSION}, found {module.__version__}"
    return module


class TrlRecorder(TrainerCallback):
    """Keeps TRL's gradients and moves its weights; the learning rate is 0, so nothing else does."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.gradients.append(gradients_of(kwargs["model"]))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        move(kwargs["model"], len(self.gradients))


@pytest.fixture
def trl_trainer(
    trl: ModuleType,
    make_model: Callable[..., Any],
    tokenizer: Any,
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """trl_trainer(batch, algorithm, micro_batches=..., mini_batches=..., **TRL's configuration) -> its trainer.

    `micro_batches` are accumulated for one update; a generation serves `mini_batches` updates, `num_iterations` times.
    """
    import datasets

    def make(
        batch: Batch, algorithm: str = "GRPO", micro_batches: int = 1, mini_batches: int = 1, **config: Any
    ) -> Any:
        module = importlib.import_module(f"trl.trainer.{algorithm.lower()}_trainer")
        shuffle = trl.trainer.utils.shuffle_sequence_dict if config.pop("shuffled", False) else lambda rows: rows
        monkeypatch.setattr(module, "shuffle_sequence_dict", shuffle)
        model = make_model()
        reference_of(policy).model.save_pretrained(tmp_path / "reference")
        model.config._name_or_path = str(tmp_path / "reference")  # where TRL looks for the reference
        use_vllm = config.pop("use_vllm", False)
        settings = {
            "output_dir": str(tmp_path / "trl"), "use_cpu": True, "bf16": False, "activation_checkpointing": False,
            "per_device_train_batch_size": len(batch.rows) // (micro_batches * mini_batches),
            "gradient_accumulation_steps": micro_batches, "steps_per_generation": micro_batches * mini_batches,
            "max_steps": mini_batches * config.get("num_iterations", 1), "num_generations": len(batch.completions[0]),
            "max_completion_length": MAX_TOKENS, "shuffle_dataset": False, "beta": 0.0, "learning_rate": 0.0,
            "max_grad_norm": 0.0, "save_strategy": "no", "logging_strategy": "no", "report_to": "none",
            "disable_tqdm": True,
        }  # fmt: skip
        recorder = TrlRecorder()
        trainer = getattr(trl, f"{algorithm}Trainer")(
            model=model,
            reward_funcs=[_reward(batch, part) for part in batch.parts],
            args=getattr(trl, f"{algorithm}Config")(**settings | config),
            train_dataset=datasets.Dataset.from_dict({"prompt": list(batch.prompts)}),
            processing_class=tokenizer,
            callbacks=[recorder],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.use_vllm, trainer.recorder = use_vllm, recorder
        temperature = config.get("temperature", 1.0)
        logprobs = [c.sampling_logprobs.tolist() for g in groups_of(batch, policy, temperature) for c in g.completions]
        answer = {"GRPO": (batch.rows, logprobs if use_vllm else None), "RLOO": batch.rows}[algorithm]
        trainer._generate_single_turn = lambda *_: answer
        return trainer

    return make


def _reward(batch: Batch, part: Sequence[Sequence[float | None]]) -> Callable[..., list[float | None]]:
    def reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        assert prompts == [text for text, row in zip(batch.prompts, batch.completions, strict=True) for _ in row]
        assert completion_ids == batch.rows
        return [value for row in part for value in row]

    return reward


@pytest.fixture
def theirs(trl_trainer: Callable[..., Any]) -> Callable[..., Updates]:
    """theirs(batch, algorithm, **as for `trl_trainer`) -> what TRL's training loop does."""

    def run(batch: Batch, algorithm: str = "GRPO", **config: Any) -> Updates:
        trainer = trl_trainer(batch, algorithm, **config)
        loss = trainer.train().training_loss
        return Updates(loss, trainer.recorder.gradients)

    return run


@pytest.fixture(scope="session")
def gap() -> Callable[..., float]:
    """gap(our gradients, TRL's, factor=1): largest distance of ours × factor from theirs, over all parameters.

    In shares of the largest entry of TRL's gradient of that parameter.
    """

    def measure(mine: dict[str, Tensor], other: dict[str, Tensor], factor: float = 1.0) -> float:
        assert mine.keys() == other.keys()
        return max(((mine[n] * factor - other[n]).abs().max() / other[n].abs().max()).item() for n in mine)

    return measure


@pytest.fixture(scope="session")
def assert_equal(gap: Callable[..., float]) -> Callable[..., None]:
    """assert_equal(ours, theirs, factor=1): gradients of every update and the loss, ours times the factor."""

    def check(found: Updates, expected: Updates, factor: float = 1.0) -> None:
        pairs = zip(found.gradients, expected.gradients, strict=True)
        worst = max(gap(mine, other, factor) for mine, other in pairs)
        of_loss = abs(found.loss * factor - expected.loss) / max(1.0, abs(expected.loss))
        print(f"largest difference of gradients {worst:.1e}, of losses {of_loss:.1e}")
        assert worst < TOLERANCE
        assert of_loss < TOLERANCE

    return check
