"""TRL's trainer, the real one in its real training loop, and what stands in for a sampler and an optimizer.

It is given the completions instead of sampling them; `use_vllm`, which would look for a server, is switched on after
the start; and completions stay in order unless they are to be shuffled.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from parity_batch import MAX_TOKENS, Batch, gradients_of, move
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback

VERSION = "1.16.0"


def import_trl() -> ModuleType:
    """TRL, or a skip where it is not installed."""
    module: ModuleType = pytest.importorskip("trl", reason="needs TRL: pip install -e '.[peers]'")
    assert module.__version__ == VERSION, f"these tests know TRL {VERSION}, found {module.__version__}"
    return module


class TrlRecorder(TrainerCallback):
    """Keeps the gradients and moves the weights; the learning rate is 0, so nothing else does."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.gradients.append(gradients_of(kwargs["model"]))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        move(kwargs["model"], len(self.gradients))


def settings(batch: Batch, directory: Path, micro_batches: int, mini_batches: int, num_iterations: int) -> Any:
    """TRL's configuration; a case adds its own to it.

    Args:
        batch: sampled at once.
        directory: for whatever the trainer writes.
        micro_batches: accumulated for one update.
        mini_batches: updates that the batch is cut into.
        num_iterations: how often all of them are made.
    """
    return {
        "output_dir": str(directory),
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "per_device_train_batch_size": len(batch.rows) // (micro_batches * mini_batches),
        "gradient_accumulation_steps": micro_batches,
        "steps_per_generation": micro_batches * mini_batches,
        "num_generations": len(batch.completions[0]),
        "num_iterations": num_iterations,
        "max_steps": mini_batches * num_iterations,
        "max_completion_length": MAX_TOKENS,
        "shuffle_dataset": False,
        "beta": 0.0,
        "learning_rate": 0.0,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def make_trainer(trl: ModuleType, algorithm: str, model: Any, tokenizer: Any, batch: Batch, config: Any) -> Any:
    """GRPOTrainer or RLOOTrainer with the batch's prompts and rewards; its `recorder` keeps the gradients."""
    import datasets

    recorder = TrlRecorder()
    trainer = getattr(trl, f"{algorithm}Trainer")(
        model=model,
        reward_funcs=[_reward(batch, part) for part in batch.parts],
        args=getattr(trl, f"{algorithm}Config")(**config),
        train_dataset=datasets.Dataset.from_dict({"prompt": list(batch.prompts)}),
        processing_class=tokenizer,
        callbacks=[recorder],
    )
    trainer.remove_callback(PrinterCallback)  # it prints to stdout
    trainer.recorder = recorder
    return trainer


def _reward(batch: Batch, part: Sequence[Sequence[float | None]]) -> Callable[..., list[float | None]]:
    def reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        assert prompts == [text for text, row in zip(batch.prompts, batch.completions, strict=True) for _ in row]
        assert completion_ids == batch.rows
        return [value for row in part for value in row]

    return reward


def sample(trainer: Any, algorithm: str, batch: Batch, logprobs: list[list[float]] | None) -> None:
    """Let the trainer sample the batch; with log-probabilities as if vLLM had."""
    answer = {"GRPO": (batch.rows, logprobs), "RLOO": batch.rows}[algorithm]
    trainer._generate_single_turn = lambda *_: answer
    trainer.use_vllm = logprobs is not None


def keep_order(monkeypatch: pytest.MonkeyPatch, algorithm: str, shuffled: bool) -> None:
    """Leave completions in the batch's order unless they are to be shuffled."""
    shuffle = importlib.import_module("trl.trainer.utils").shuffle_sequence_dict if shuffled else lambda rows: rows
    module = importlib.import_module(f"trl.trainer.{algorithm.lower()}_trainer")
    monkeypatch.setattr(module, "shuffle_sequence_dict", shuffle)
