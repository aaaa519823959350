"""A process reward model: the chance that each step of a completion is right, read at the step's last token.

Lightman et al. 2023 (arXiv:2305.20050) and Math-Shepherd (arXiv:2312.08935), without marks between steps. Labels of the
last step alone make it an outcome reward model; an implicit one is a language model (`models.steps`).
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from groupwise.algorithms.step_metrics import area_under_curve, first_errors, labelled_scores
from groupwise.config import ReadIf, Section
from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.models.backbone import Backbone
from groupwise.models.policy import start_policy
from groupwise.models.reward_model import start_reward_model
from groupwise.models.sharded import sharded
from groupwise.models.steps import EncodedSteps, ImplicitRewardModel, ScoresSteps, encode_steps, mark_reads, score_rows
from groupwise.randomness import shuffled_epochs
from groupwise.tasks.step_rows import check_apart, check_training_rows, first_wrong, labelled, read_steps
from groupwise.trainers.base import (
    NUM_HELD_OUT,
    FineTuningRecipe,
    Gradient,
    HeldOutConfig,
    OnReport,
    Trainer,
    accumulate_rows,
    learn,
    load_reference,
)
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start

_IMPLICIT = ReadIf(lambda config: config.supervision == "implicit", 'supervision = "implicit"')


REPLAY_SHARE = 0.1
"""Share of a step's rows that are from before (DeepSeekMath, arXiv:2402.03300, algorithm 1)."""


class StepsData(Section):
    """Labelled steps from files."""

    path: DataRef
    """JSON lines with `prompt`, `completions` (the steps) and `labels` (true, false, 0 to 1, or null)."""
    held_out: DataRef = ""
    """Such a file of other problems, to measure on; empty: nothing is measured."""
    replay: DataRef = ""
    """Such a file from before, for example labels of an earlier policy's workings: a tenth of a step's rows; empty:
    none."""


class ProcessRewardModelConfig(HeldOutConfig):
    """The loss and its batches."""

    supervision: Literal["process", "outcome", "implicit"] = "process"
    """`process`: every step's label; `outcome`: the last step's alone, whose score is then that of the completion;
    `implicit`: the last step's alone, by a language model's log-ratio to `model.path`, which scores every step."""
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False), _IMPLICIT] = 0.05
    """β of the log-ratio (PRIME, arXiv:2502.01456: 0.05)."""
    rows_per_step: int = Field(64, ge=1)
    """Completions per step."""


class ProcessRewardModelRecipe(FineTuningRecipe):
    """A whole run."""

    algorithm: Literal["process_reward_model"] = "process_reward_model"
    """The trainer of this recipe."""
    data: StepsData
    """The labelled steps."""
    process_reward_model: ProcessRewardModelConfig = ProcessRewardModelConfig()
    """The loss."""

    @model_validator(mode="after")
    def _replays(self) -> Self:
        size = self.process_reward_model.rows_per_step
        if self.data.replay and not round(size * REPLAY_SHARE):
            raise ValueError(
                f"process_reward_model.rows_per_step = {size} leaves data.replay no row, which has a tenth of them; "
                "allowed with it are 6 and more"
            )
        return self


class HeldOutSteps(NamedTuple):
    """A model's figures on held-out rows."""

    step: int
    loss: float
    auc: float | None
    """Chance that a right step scores above a wrong one; None where one kind is missing."""
    f1: float | None
    """ProcessBench's F1 at a threshold of 1/2; None where only completions with, or without, mistakes are there."""


def train_process_reward_model(recipe: ProcessRewardModelRecipe, restart: bool, on_report: OnReport) -> Session:
    """Run a recipe, or resume an interrupted run; `on_report` gets every step's report and `HeldOutSteps`."""
    config, data = recipe.process_reward_model, recipe.data
    sources = {path: read_steps(path) for path in (data.path, data.replay) if path}
    for path, rows in sources.items():
        check_training_rows(rows, path)
    measured = read_steps(data.held_out) if data.held_out else []
    if len(chat := {row.rendered for rows in (*sources.values(), measured) for row in rows}) > 1:
        raise DataError(f"{data.path}: a chat template wrote some prompts and not others; allowed is one of the two")
    for path, rows in sources.items():
        check_apart(rows, path, measured, data.held_out, "what is learnt is no measure")
    start = Start(recipe, recipe.run, restart)
    base = start.model_to_load(recipe.model)
    model: ScoresSteps
    saved: Backbone
    if config.supervision == "implicit":
        saved = policy = sharded(start_policy(base, recipe.lora, recipe.run.seed, in_rows=True))
        model = ImplicitRewardModel(policy, load_reference(recipe.model, recipe.lora, policy), config.beta)
    else:
        model = saved = sharded(start_reward_model(base, recipe.lora, recipe.run.seed, in_rows=True))
    mark_reads(model, chat.pop())
    kind, held_out_kind = config.supervision, "outcome" if config.supervision == "outcome" else "process"
    train = {
        path: [encode_steps(model, row, kind) for row in labelled(rows, path, last=kind != "process")]
        for path, rows in sources.items()
    }
    known = labelled(measured[:NUM_HELD_OUT], data.held_out, last=held_out_kind == "outcome") if measured else []
    held_out = [encode_steps(model, row, held_out_kind) for row in known]
    session = start.begin(saved, Optimizer(model.trainable(), recipe.optimizer, recipe.run.num_steps))
    size, num_steps = config.tokens_per_micro_batch, recipe.run.num_steps

    def gradient(number: int) -> Gradient:
        chosen = step_rows(train[data.path], train.get(data.replay, []), recipe, number)
        loss, scores, labels = process_reward_model_gradient(model, chosen, size)
        accuracy, mean = ((scores > 0) == (labels > 0.5)).double().mean().item(), scores.sigmoid().mean().item()
        num_tokens = sum(row.sequences.num_read for row in chosen)
        return Gradient(loss, num_tokens, {"accuracy": accuracy, "mean_score": mean})

    def figures(done: int) -> HeldOutSteps | None:
        if not held_out or not config.is_due(done, num_steps):
            return None
        scores = score_rows(model, held_out, size)
        known = labelled_scores(scores, [row.labels for row in held_out])
        given, truth = (torch.tensor(column, dtype=torch.float64) for column in known)
        loss = torch.nn.functional.binary_cross_entropy(given, truth).item()
        f1 = first_errors(scores, [first_wrong(row.labels) for row in held_out], 0.5).f1
        auc = area_under_curve(given.tolist(), (truth >= 0.5).tolist())
        return HeldOutSteps(done, loss, *(None if number != number else number for number in (auc, f1)))

    return learn(session, gradient, on_report, figures, "held_out_steps")


def step_rows(
    train: Sequence[EncodedSteps], earlier: Sequence[EncodedSteps], recipe: ProcessRewardModelRecipe, number: int
) -> list[EncodedSteps]:
    """Choose the rows of a step, those from before last; each kind goes through its own epochs."""
    size, seed = recipe.process_reward_model.rows_per_step, recipe.run.seed
    num_earlier = round(size * REPLAY_SHARE) if earlier else 0
    new = [train[i] for i in shuffled_epochs(len(train), size - num_earlier, number, seed, "step order")]
    if not num_earlier:
        return new
    return new + [earlier[i] for i in shuffled_epochs(len(earlier), num_earlier, number, seed, "replay order")]


def process_reward_model_gradient(
    model: ScoresSteps, rows: Sequence[EncodedSteps], tokens_per_micro_batch: int
) -> tuple[float, Tensor, Tensor]:
    """Accumulate the gradient of the mean of -y log σ(s) - (1 - y) log(1 - σ(s)) over the labelled steps.

    Returns the loss in nats, and (N,) scores and labels of the labelled steps, detached.
    """
    denominator = sum(label is not None for row in rows for label in row.labels)

    def loss_of(chunk: list[EncodedSteps]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        pairs = [zip(row.ends, row.labels, strict=True) for row in chunk]
        labelled = [[(end, label) for end, label in of_row if label is not None] for of_row in pairs]
        scores = model.step_scores([row.sequences for row in chunk], [[[end for end, _ in row]] for row in labelled])
        labels = scores.new_tensor([label for row in labelled for _, label in row])
        loss = binary_cross_entropy_with_logits(scores, labels, reduction="sum") / denominator
        return loss, (scores.detach().cpu(), labels.cpu())

    loss, measured = accumulate_rows(loss_of, rows, lambda row: row.sequences, model, tokens_per_micro_batch)
    scores, labels = zip(*measured, strict=True)
    return loss, torch.cat(scores), torch.cat(labels)


TRAINER = Trainer(ProcessRewardModelRecipe, train_process_reward_model, makes="reward_model")
