"""A checkpoint is a plain Hugging Face directory, or one of peft's; a trainer's state lies beside the weights."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from groupwise.errors import CheckpointError
from groupwise.models.adapter_files import read_adapters
from groupwise.models.backbone import Backbone, Saved
from groupwise.models.config import ModelConfig
from groupwise.models.policy import start_policy
from groupwise.models.reward_model import start_reward_model
from groupwise.runs.atomic import MANIFEST, check_directory, new_directory

TRAINER_STATE = "trainer_state.json"
OPTIMIZER_STATE = "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a trainer needs beside the weights to resume as if it had never stopped."""

    facts: dict[str, Any]
    """Counters and file sizes, JSON."""
    tensors: dict[str, Tensor]
    """The optimizer's moments."""


def write_plain(checkpoint: Path, directory: Path) -> None:
    """Put the model of a checkpoint into a directory that exists, without the trainer's state.

    Adapters are added, in fp32, to the weights that they stand on, so that what is written needs nothing else.

    Raises:
        ModelError: the model that the adapters stand on is not there any more, or has other weights.
    """
    if (files := read_adapters(str(checkpoint))) is None:
        for file in checkpoint.iterdir():
            if file.name not in (OPTIMIZER_STATE, TRAINER_STATE, MANIFEST):
                shutil.copy(file, directory / file.name)
        return
    config = ModelConfig(path=str(checkpoint), device="cpu")
    whole: Backbone = start_reward_model(config) if files.scores else start_policy(config, None, seed=0)
    with _disk_errors():
        whole.save(directory)


def save_checkpoint(path: Path, policy: Saved, state: TrainerState | None = None) -> None:
    """Write a checkpoint atomically; it loads unchanged in transformers and vLLM, adapters in peft."""
    with new_directory(path) as directory, _disk_errors():
        policy.save(directory)
        if state is not None:
            save_file(
                {name: tensor.contiguous() for name, tensor in state.tensors.items()}, directory / OPTIMIZER_STATE
            )
            (directory / TRAINER_STATE).write_text(json.dumps(state.facts, indent=1))


@contextmanager
def _disk_errors() -> Iterator[None]:
    """safetensors wraps the system's errors in its own type; make them OSError again."""
    try:
        yield
    except SafetensorError as error:
        if not (code := re.search(r"os error (\d+)", str(error))):
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def load_trainer_state(path: Path, check: bool = True) -> TrainerState:
    """Read a checkpoint's trainer state; with `check`, after every file's hash was compared.

    Raises:
        CheckpointError: the checkpoint is damaged, or was written without trainer state.
    """
    if check:
        check_directory(path)
    if not (path / TRAINER_STATE).is_file():
        raise CheckpointError(
            f"{path} holds a model but no trainer state: it can be a start (model.path), not a resume"
        )
    facts = json.loads((path / TRAINER_STATE).read_text())
    return TrainerState(facts, load_file(path / OPTIMIZER_STATE))
