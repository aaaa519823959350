"""A checkpoint is a plain Hugging Face directory; a trainer's state, when there is one, lies beside the weights."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from groupwise.errors import CheckpointError
from groupwise.models.backbone import Backbone
from groupwise.runs.atomic import check_directory, new_directory

TRAINER_STATE = "trainer_state.json"
OPTIMIZER_STATE = "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a trainer needs beside the weights to resume as if it had never stopped."""

    facts: dict[str, Any]
    """Counters and file sizes, JSON."""
    tensors: dict[str, Tensor]
    """The optimizer's moments."""


def save_checkpoint(path: Path, policy: Backbone, state: TrainerState | None = None) -> None:
    """Write a checkpoint atomically; it loads unchanged in transformers and vLLM."""
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


def load_trainer_state(path: Path) -> TrainerState:
    """Read a checkpoint's trainer state after checking every file's hash.

    Raises:
        CheckpointError: the checkpoint is damaged, or was written without trainer state.
    """
    check_directory(path)
    if not (path / TRAINER_STATE).is_file():
        raise CheckpointError(
            f"{path} holds a model but no trainer state: it can be a start (model.path), not a resume"
        )
    facts = json.loads((path / TRAINER_STATE).read_text())
    return TrainerState(facts, load_file(path / OPTIMIZER_STATE))
