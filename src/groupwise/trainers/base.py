"""Shared by all trainers: their description, fields of their recipes, and the frozen model that a run starts from."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import Field
from torch import Tensor

from groupwise.config import Section, read_toml
from groupwise.config.schema import Makes, walk
from groupwise.errors import ConfigError, ModelError
from groupwise.models.backbone import Backbone
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.loading import compute_dtype, device_of, tokenizer_of
from groupwise.models.located import is_adapter_directory
from groupwise.models.packed import Sequences, micro_batch_tokens, micro_batches, num_shared
from groupwise.models.policy import Policy, start_policy
from groupwise.models.prompts import reads_clock, settled_task
from groupwise.models.sharded import sharded
from groupwise.models.size import language_model_size
from groupwise.models.steps import ImplicitRewardModel
from groupwise.ranks.group import RANKS
from groupwise.runs import progress
from groupwise.runs.directory import RunDirectory, flattened
from groupwise.tasks.base import ChatArguments, TaskConfig
from groupwise.tasks.table import settled
from groupwise.training.config import Recipe
from groupwise.training.gradient import accumulate
from groupwise.training.optimizer import OptimizerConfig
from groupwise.training.session import Session

__all__ = ["OnReport", "Recipe", "Trainer", "data_line"]

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)
OnReport = Callable[[Any], None]
"""Called with every report of a run: its steps, and what was measured on the way."""


class ModelRecipe(Recipe):
    """Base of all recipes that train a model."""

    model: ModelConfig = ModelConfig()
    """The model to start from; also the reference of a KL term or a preference loss."""
    lora: LoraConfig | None = None
    """Adapters to train beside the model's weights (LoRA); without the section all weights are trained."""


def with_chat(recipe: AnyRecipe, *, is_plain: bool = False) -> AnyRecipe:
    """Return the recipe with what its task's template leaves open: the chat template that the model has, or none.

    All ranks have to ask for it.
    """
    task, verifier = (getattr(recipe, name, None) for name in ("task", "verifier"))
    if not isinstance(task, TaskConfig) or not isinstance(recipe, ModelRecipe) or verifier is None:
        return recipe
    chosen = settled(task, verifier, lambda: False) if is_plain else settled_task(task, verifier, recipe.model.path)
    return recipe.model_copy(update={"task": chosen})


def dated(recipe: Recipe, restart: bool = False) -> Recipe:
    """Return the recipe with one instant for chat templates that read the clock: the run's, if it has begun.

    All ranks have to ask for it.
    """
    sections = [visited.value for visited in walk(recipe)]
    chats = [section for section in sections if isinstance(section, ChatArguments) and section.reads_messages]
    config = RunDirectory(Path(recipe.run.directory)).config

    def instant() -> datetime | None:
        if config.exists() and not restart:
            recorded = [value for key, value in flattened(read_toml(config)).items() if key.endswith(".now")]
            return datetime.fromisoformat(recorded[0]) if recorded else None
        model = getattr(recipe, "model", None)
        if model is None or not reads_clock(tokenizer_of(model.path)):
            return None
        return datetime.now().replace(microsecond=0)

    if not chats or all(chat.now for chat in chats):
        return recipe
    now = RANKS.by_first(instant)

    def at(section: Section) -> dict[str, Any]:
        is_open = isinstance(section, ChatArguments) and section.reads_messages and section.now is None
        return {"now": now} if is_open else {}

    return recipe if now is None else _changed(recipe, at)


def with_precision(recipe: AnyRecipe) -> AnyRecipe:
    """Return the recipe with the precision that each of its models computes in, where it leaves that to the machine.

    All ranks have to ask for it.
    """

    def precision(section: Section) -> dict[str, Any]:
        if not isinstance(section, ModelConfig) or section.compute_dtype != "auto":
            return {}
        try:
            num_weights = language_model_size(section.path).total
        except ModelError:  # which loading it reports
            return {}
        chosen = RANKS.by_first(lambda: compute_dtype(section, num_weights))
        if chosen == "bfloat16" and RANKS.is_first:
            progress.tell(
                f"{section.path} computes in bfloat16: it has {num_weights / 1e6:,.0f} million weights, and the "
                f"{device_of(section)} has instructions for it (model.compute_dtype)"
            )
        return {"compute_dtype": chosen}

    chosen: AnyRecipe = _changed(recipe, precision)
    return chosen


def _changed(section: Any, change: Callable[[Section], dict[str, Any]]) -> Any:
    """The same section with what `change` gives for it and for every section in it."""
    if isinstance(section, Mapping):
        return {name: _changed(value, change) for name, value in section.items()}
    if not isinstance(section, Section):
        return section
    held = {name: getattr(section, name) for name in type(section).model_fields}
    changes = {name: _changed(value, change) for name, value in held.items() if isinstance(value, Section | Mapping)}
    changes |= change(section)
    return section.model_copy(update=changes) if changes else section


class FineTuningConfig(OptimizerConfig):
    """The optimizer, with the rate of fine-tuning."""

    lr: float = Field(1e-5, ge=0)
    """Peak learning rate (InstructGPT's reward model: 9e-6; DPO: 1e-6); pretraining from random weights wants some
    1e-3."""


class FineTuningRecipe(ModelRecipe):
    """Base of all recipes that learn from data with AdamW."""

    optimizer: FineTuningConfig = FineTuningConfig()
    """The optimizer."""


class MicroBatchConfig(Section):
    """The memory of a step."""

    tokens_per_micro_batch: int = Field(0, ge=0)
    """Most tokens in one forward and backward, 0 for what suits the device; a longer sequence stands alone."""


class HeldOutConfig(MicroBatchConfig):
    """The measurement on held-out data."""

    evaluate_every: int = Field(20, ge=1)
    """Steps between two measurements on the first 256 held-out pairs or rows; the last step is followed by one too."""

    def is_due(self, done: int, num_steps: int) -> bool:
        return done % self.evaluate_every == 0 or done == num_steps


R = TypeVar("R")
M = TypeVar("M")

NUM_HELD_OUT = 256
"""Most held-out pairs or rows that are measured."""


def accumulate_rows(
    loss_of: Callable[[list[R]], tuple[Tensor, M]],
    rows: Sequence[R],
    sequences_of: Callable[[R], Sequences],
    model: Backbone | ImplicitRewardModel,
    tokens_per_micro_batch: int,
) -> tuple[float, list[M]]:
    """Accumulate the gradient of a step's loss over micro-batches of rows of similar length, on all ranks.

    `loss_of` gives the part of some rows in the step's loss, whose denominator is that of the whole step, and what else
    is measured of them. Returns the loss, and the measurements, by length of the rows.
    """

    def compute(part: list[R]) -> tuple[Tensor, tuple[float, M]]:
        loss, measured = loss_of(part)
        return loss, (loss.item(), measured)

    ordered = sorted(rows, key=lambda row: sequences_of(row).num_read)
    sequences = [sequences_of(row) for row in ordered]
    is_alone = RANKS.partial_sums > 1 or not isinstance(model, Backbone) or model.is_recurrent
    shared = 0 if is_alone else num_shared([sequence.prompt for sequence in sequences])
    sizes = [sequence.num_read - shared for sequence in sequences]
    budget = micro_batch_tokens(tokens_per_micro_batch, model.device, shared)
    chunks = list(micro_batches(sizes, RANKS.portion(budget, sum(sizes))))
    weights, costs = [weight for _, weight in model.trainable()], [sum(sizes[i] for i in chunk) for chunk in chunks]
    parts = [[ordered[i] for i in chunk] for chunk in chunks]
    losses, measured = zip(*accumulate(compute, parts, weights, model.device, costs), strict=True)
    return sum(losses), list(measured)


class Gradient(NamedTuple):
    """A gradient that stands at the weights, and what was measured on the way."""

    loss: float
    num_tokens: int
    measured: Mapping[str, Any] = {}  # By the name that the metrics have; None where it has no meaning
    facts: Mapping[str, Any] = {}  # Of the batch, for the ledger


class DataStep(NamedTuple):
    """The report of one step of learning from data; loss and measurements are from before the update."""

    step: int
    loss: float
    measured: Mapping[str, Any]
    grad_norm: float
    lr: float
    num_tokens: int
    seconds: float


def learn(
    session: Session,
    gradient: Callable[[int], Gradient],
    on_report: OnReport,
    measure: Callable[[int], Any] = lambda done: None,
    kind: str = "held_out",
) -> Session:
    """Run the loop of learning from data: do each step, record and report it; end the session.

    `measure` is called with the number of steps done; what it gives, if anything, is recorded as an evaluation.
    """
    for number in session.steps():
        began = time.perf_counter()
        found = gradient(number)
        lr, grad_norm = session.optimizer.lr(number), session.optimizer.update(number)
        seconds = time.perf_counter() - began
        report = DataStep(number, found.loss, found.measured, grad_norm, lr, found.num_tokens, seconds)
        session.progress.tokens += found.num_tokens
        session.progress.sampled_tokens += int(found.measured.get("sampled_tokens") or 0)
        facts = {"step": number, **found.facts, "loss": found.loss, "grad_norm": grad_norm}
        figures = {**report._asdict(), **found.measured}
        del figures["measured"]
        session.record({**facts, "weights": session.policy.fingerprint()}, figures)
        on_report(report)
        if measured := measure(number + 1):
            session.record({"evaluation": kind, **measured._asdict()}, {"kind": kind, **measured._asdict()})
            on_report(measured)
    session.finish()
    return session


def data_line(report: DataStep) -> str:
    """Format one step of training on data; an algorithm's own measurements stand at the end of the line."""
    rate = report.num_tokens / report.seconds
    line = f"step {report.step:5d}  loss {report.loss:.4f}  lr {report.lr:.1e}  {rate:,.0f} tokens/s"
    for name, value in report.measured.items():
        if value is not None:
            line += f"  {name} {value:,}" if isinstance(value, int) else f"  {name} {value:.3f}"
    return line


@dataclass(frozen=True, slots=True)
class Trainer:
    """One algorithm. Its module has it as `TRAINER`, and a line in `TRAINERS` names the module."""

    recipe: type[Recipe]
    run: Callable[[Any, bool, OnReport], Session]
    """(recipe, restart, called with every report): runs it, or resumes an interrupted run."""
    makes: Makes = "model"
    line: Callable[[Any], str] = data_line  # Of a report; the default is that of a `DataStep`
    epochs: Callable[[Any], int] = lambda recipe: 1
    """(recipe): number of passes over the completions that it sampled."""
    trained_beside: Callable[[Any], tuple[str, ...]] = lambda recipe: ()
    """(recipe): models of the policy's size that a step trains beside it, by name; for the prediction of memory."""


def load_reference(model: ModelConfig, lora: LoraConfig | None, policy: Policy) -> Policy:
    """Load the frozen model that a run starts from: a second one, or the policy without its adapters.

    Raises ConfigError where the run trains adapters that were trained before: without them it is another model.
    """
    if lora is None:
        return sharded(start_policy(model, None, seed=0, in_rows=True).freeze())
    if is_adapter_directory(model.path):
        raise ConfigError(
            f"model.path = {model.path!r} holds adapters that go on learning, so without them the reference would "
            "be the model they stand on, not the one this run starts from. Export that run (`groupwise export RUN "
            "DIRECTORY`) and start from the directory with new adapters, or train without a reference"
        )
    return policy.base()
