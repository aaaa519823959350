"""Models on disk: checkpoints, plain Hugging Face directories or peft's, and weights for inference servers."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from groupwise.errors import CheckpointError
from groupwise.models.backbone import Backbone, no_progress_bars
from groupwise.models.config import ModelConfig
from groupwise.models.located import is_adapter_directory, locate
from groupwise.models.policy import Policy, start_policy
from groupwise.models.reward_model import start_reward_model
from groupwise.randomness import key
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import own_rows, settle, sharded_like, whole_tensor
from groupwise.runs.atomic import MANIFEST, check_directory, new_directory

TRAINER_STATE = "trainer_state.json"
OPTIMIZER_STATE = "optimizer.safetensors"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class TrainerState:
    """The state of a trainer beside the weights, with which it resumes as if it had never stopped."""

    facts: dict[str, Any]  # Counters and file sizes, JSON
    tensors: dict[str, Tensor]


def write_plain(checkpoint: Path, directory: Path) -> None:
    """Put the model of a checkpoint into an existing directory, without the trainer's state.

    Adapters are added, in fp32, to the weights that they stand on, so that what is written needs nothing else.

    Raises:
        ModelError: the model that the adapters stand on is no longer there, or has other weights.
    """
    if not is_adapter_directory(str(checkpoint)):
        for file in checkpoint.rglob("*"):
            if file.is_file() and file.name not in (OPTIMIZER_STATE, TRAINER_STATE, MANIFEST):
                target = directory / file.relative_to(checkpoint)
                target.parent.mkdir(exist_ok=True)  # of one chat template among several
                shutil.copy(file, target)
        return
    config = ModelConfig(path=str(checkpoint), device="cpu")
    adapters = locate(config.path).adapters
    scores = adapters is not None and adapters.scores
    whole: Backbone = start_reward_model(config) if scores else start_policy(config, None, seed=0)
    with _disk_errors():
        whole.save(directory)


def save_checkpoint(
    path: Path, policy: Backbone, state: TrainerState | None = None, weights: Mapping[str, Tensor] | None = None
) -> None:
    """Write a checkpoint atomically; it loads unchanged in transformers and vLLM, adapters in peft.

    `weights`: those that were `gathered`, in place of the policy's own.
    """
    with new_directory(path) as directory, _disk_errors():
        policy.save(directory, weights)
        if state is not None:
            save_file(
                {name: tensor.contiguous() for name, tensor in state.tensors.items()}, directory / OPTIMIZER_STATE
            )
            (directory / TRAINER_STATE).write_text(json.dumps(state.facts, indent=1))


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Make OSError again of the system's errors, which safetensors wraps in its own type."""
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
    return TrainerState(json.loads((path / TRAINER_STATE).read_text()), load_file(path / OPTIMIZER_STATE))


def save_for_serving(policy: Policy, directory: Path, weights: dict[str, Tensor]) -> None:
    """Write `serving_weights`, configuration and tokenizer."""
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})
    policy.model.config.save_pretrained(directory)
    if policy.model.generation_config is not None:
        policy.model.generation_config.save_pretrained(directory)
    with no_progress_bars():
        policy.tokenizer.save_pretrained(directory)


def serving_weights(policy: Policy) -> dict[str, Tensor]:
    """Return the weights by name on the processor, the head under its own name even if it is tied.

    A server may keep its own copy of the head, which it renews only when it reads weights of that name.
    Adapters are added to the weights that they stand on, in fp32, so a server samples with no product beside them. All
    ranks have to ask; the others than the first get nothing.
    """
    weights = {}
    for name, weight in policy.plain_state():
        if RANKS.is_first:
            weights[name] = weight.detach().cpu().contiguous()
    if not RANKS.is_first:
        return {}
    head = policy.model.get_output_embeddings()
    [name] = [name for name, module in policy.model.named_modules() if module is head]
    if f"{name}.weight" not in weights:
        embedding = policy.model.get_input_embeddings()
        [tied] = [name for name, module in policy.model.named_modules() if module is embedding]
        weights[f"{name}.weight"] = weights[f"{tied}.weight"].clone()  # a file may not hold one memory twice
    return weights


@contextmanager
def changing_a_little(policy: Policy, share: float = 0.05) -> Iterator[None]:
    """Add noise of this share of its size to every tensor, enough that each is missed, while the context is open.

    Then the weights have their bits again. It takes a policy on ranks, too: all of them have to ask.
    """
    settle(policy.root)
    kept = []
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            rows = own_rows(weight.detach())
            kept.append((rows, rows.clone()))
            rows.add_(own_rows(sharded_like(_noise(name, whole_tensor(weight.detach()), share), weight)))
    try:
        yield
    finally:
        settle(policy.root)  # else what a forward gathered would stay
        for rows, before in kept:
            rows.copy_(before)


def _noise(name: str, weight: Tensor, share: float) -> Tensor:
    generator = torch.Generator().manual_seed(key("changed a little", name) >> 1)
    noise = torch.randn(weight.shape, generator=generator).to(weight)
    size = weight.float().square().mean().sqrt().clamp_min(1e-2)
    return noise * (share * size).to(weight.dtype)
