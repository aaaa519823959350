"""What faults are planted into: whole training runs of a tiny model, and the tests of this repository."""

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from planting import Edit
from tokenizers.processors import TemplateProcessing

from groupwise import trainers
from groupwise.config import parse
from groupwise.errors import InvariantError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
from groupwise.runs.directory import RunDirectory
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.report import StepReport

TESTS = Path(__file__).parents[1]
NUMBERS = count()
STOP_IDS = [1, *range(100, 130)]
"""End tokens of the model; the tokenizer knows only the first."""
RECIPE: dict[str, Any] = {
    "run": {"directory": "", "num_steps": 3, "checkpoint_every": 2, "seed": 1},
    "model": {"device": "cpu", "num_threads": 1},
    "task": {
        "kind": "arithmetic",
        "num_problems": 16,
        "num_eval_problems": 1,
        "template": {"chat": True, "prompt": "{question}\n"},
    },
    "verifier": {"parts": {"brief": {"kind": "overlong", "weight": 1.0, "cache_tokens": 8}}},
    "sampling": {"max_tokens": 8, "temperature": 0.9},
    "grpo": {"prompts_per_step": 4, "group_size": 8},
    "loss": {"tokens_per_micro_batch": 100},
    "optimizer": {"lr": 1e-2},
    "evaluation": {"num_problems": 1, "num_samples": 2, "test_problems": 0},
}
"""Answers at random are hardly ever right, but short ones earn more."""


class KilledError(Exception):
    """Stands for the end of the process."""


@dataclass(frozen=True)
class Lab:
    """Where checks run."""

    request: pytest.FixtureRequest
    folder: Path
    settings: tuple[str, ...] = ()
    """In what the recipe differs, `a.b=c`."""

    def recipe(self) -> GrpoRecipe:
        """A run in a directory of its own."""
        paths = (f"run.directory={self.folder / f'run-{next(NUMBERS)}'}", f"model.path={_model(self.folder)}")
        return parse(GrpoRecipe, RECIPE, (*paths, *self.settings))


def train(lab: Lab) -> None:
    """A whole run: dev, three steps, checkpoints, dev."""
    _run(lab.recipe())


def resume(lab: Lab) -> None:
    """A run that dies after its first checkpoint and goes on has the ledger of one that never died."""

    def die(report: StepReport) -> None:
        if report.step == 2:
            raise KilledError

    interrupted = lab.recipe()
    with pytest.raises(KilledError):
        _run(interrupted, die)
    assert _run(interrupted) == _run(lab.recipe()), "the ledger of the resumed run differs"


def _run(recipe: GrpoRecipe, on_step: Callable[[StepReport], None] = lambda report: None) -> bytes:
    """The run's ledger."""
    trainers.train(recipe, on_report=lambda report: on_step(report) if isinstance(report, StepReport) else None)
    return RunDirectory(Path(recipe.run.directory)).ledger.path.read_bytes()


@cache
def _model(folder: Path) -> Path:
    """A model with random weights, several end tokens, a BOS token that its tokenizer writes, and a chat template."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<|begin|>"})
    bos = ("<|begin|>", tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<|begin|> $A", special_tokens=[bos])
    tokenizer.chat_template = "{{ bos_token }}{{ messages[0]['content'] }}"
    size = NewModel(
        architecture="qwen2", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, context_length=64,
    )  # fmt: skip
    policy = new_policy(size, tokenizer, ModelConfig(device="cpu"))
    policy.model.generation_config.eos_token_id = STOP_IDS
    with torch.no_grad():  # large enough for attention to matter
        for parameter in policy.model.parameters():
            parameter *= 8 if parameter.ndim > 1 else 1
    save_checkpoint(folder / "model", policy)
    return folder / "model"


class Check(NamedTuple):
    """What must notice a fault."""

    run: Callable[[Lab], None]
    error: type[Exception]
    where: str
    """The package of the program that raises the error, or the test that fails."""
    says: str = ""
    """Part of the error's message, as it stands in the source of that package; empty for a test."""


def stops(where: str, says: str, error: type[Exception] = InvariantError, run: Callable[[Lab], None] = train) -> Check:
    """The program itself notices, in a whole run."""
    return Check(run, error, where, says)


def fails(file: str, name: str, **arguments: Any) -> Check:
    """A test of this repository notices; what is not given of its arguments are fixtures."""

    def run(lab: Lab) -> None:
        test = getattr(load(file), name)
        wanted = [one for one in inspect.signature(test).parameters if one not in arguments]
        test(**{one: lab.request.getfixturevalue(one) for one in wanted}, **arguments)

    return Check(run, AssertionError, f"tests/{file}::{name}")


@cache
def load(file: str) -> ModuleType:
    """A test file as a module of its own, not registered: there is at most one of a file in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(f"with_faults_{Path(file).stem}", TESTS / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fault(NamedTuple):
    """A fault and what must notice it."""

    number: int
    """In the list of faults seen in other systems; 0 for those that are not in it."""
    what: str
    """The fault in a sentence."""
    check: Check
    plant: tuple[Edit | Callable[[Lab, pytest.MonkeyPatch], None], ...] = ()
    """The slips in the code."""
    settings: tuple[str, ...] = ()
    """The slips in the recipe."""

    def by(self, where: str, before: str, after: str) -> "Fault":
        """This fault with a slip in the code; the arguments are those of `Edit`."""
        return self._replace(plant=(*self.plant, Edit(where, before, after)))


LEDGER = Check(resume, AssertionError, "tests/faults/lab.py::resume")
"""The ledger of a resumed run is that of an uninterrupted one."""
