"""Distillation: a student learns every next-token distribution of a teacher, not only the tokens that were drawn.

Completions come from a file, the teacher or the student itself. Generalised knowledge distillation (GKD, Agarwal et
al., arXiv:2306.13649); with `student` and `reverse_kl` it is on-policy distillation.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from groupwise.algorithms.distillation import DIVERGENCES, Comparison
from groupwise.config import ReadIf, Section
from groupwise.config.schema import one_of
from groupwise.errors import ConfigError, DataError, ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy, start_policy
from groupwise.models.sharded import sharded
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.trainers.base import (
    FineTuningRecipe,
    Gradient,
    MicroBatchConfig,
    OnReport,
    Trainer,
    accumulate_rows,
    learn,
)
from groupwise.trainers.preferences import pairs_of_step
from groupwise.trainers.report import hash_tokens
from groupwise.trainers.rl_run import problem_order
from groupwise.trainers.sft import PairsData, encode, read_rows
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Session, Start
from groupwise.training.tokens import sequences_of
from groupwise.verifiers.unjudged import Unjudged


class DistilledPairs(PairsData):
    """Completions from a file."""

    sequences_per_step: int = Field(64, ge=1)
    """Pairs per step."""


class SampledData(Section):
    """Completions sampled in every step, on a task's training problems."""

    task: TaskOptions
    """Source of the problems; nothing is verified."""
    prompts_per_step: int = Field(16, ge=1)
    """Problems per step."""
    group_size: int = Field(8, ge=1)
    """Completions per problem."""
    sampling: SamplingConfig = SamplingConfig()
    """The draws of completions."""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.sampling.temperature == 0 and self.group_size > 1:
            raise ValueError(
                f"sampling.temperature = 0 draws {self.group_size} equal completions of every problem; allowed are "
                "temperature > 0 and group_size = 1"
            )
        return self


class TeacherData(SampledData):
    """Completions of the teacher."""

    source: Literal["teacher"] = "teacher"
    """The teacher samples."""


class StudentData(SampledData):
    """Completions of the student as it is in that step."""

    source: Literal["student"] = "student"
    """The student samples (on-policy): it learns where its own mistakes lead it."""


class DistillConfig(MicroBatchConfig):
    """The loss and its batches."""

    divergence: Annotated[str, one_of(DIVERGENCES)] = "forward_kl"
    """`forward_kl` (teacher ‖ student, covers all that the teacher may say), `reverse_kl` (student ‖ teacher, seeks its
    modes; on-policy distillation) or `jsd` (between the two)."""
    beta: Annotated[float, ReadIf(lambda distill: distill.divergence == "jsd", "divergence = 'jsd'")] = Field(
        0.5, gt=0, lt=1
    )
    """β of `jsd`: near 0 it is like `forward_kl`, near 1 like `reverse_kl`."""
    top_k: int = Field(0, ge=0)
    """Compare the teacher's k likeliest tokens and, as one class, all others: never more than the divergence over all
    tokens, which 0 compares."""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Divides both models' logits before they are compared (Hinton et al., arXiv:1503.02531, without the factor T²)."""

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.divergence, self.beta, self.top_k, self.temperature)


class DistillRecipe(FineTuningRecipe):
    """A whole distillation run."""

    algorithm: Literal["distill"] = "distill"
    """The trainer of this recipe."""
    model: ModelConfig
    """The student to start from."""
    teacher: ModelConfig = ModelConfig()
    """The model to learn from; never trained. Its vocabulary must be the student's."""
    data: Annotated[DistilledPairs | TeacherData | StudentData, Field(discriminator="source")]
    """The source of completions."""
    distill: DistillConfig = DistillConfig()
    """The loss."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.model.path == self.teacher.path:
            raise ValueError(
                f"model.path and teacher.path are both '{self.teacher.path}': a model has nothing to learn from itself"
            )
        return self


Batch = tuple[list[Sequences], dict[str, Any]]
"""Completions of a step, and the facts for the ledger where they were sampled in it."""
DrawBatch = Callable[[int, Policy, Policy], Batch]
"""(step, student, teacher) -> its completions; a pure function of the recipe, the step and the weights."""


def train_distill(recipe: DistillRecipe, restart: bool = False, on_report: OnReport = lambda report: None) -> Session:
    """Run a distillation recipe, or resume an interrupted run; returns the session with the trained student."""
    draw_batch = batches(recipe)
    start = Start(recipe, recipe.run, restart)
    teacher = sharded(load_policy(recipe.teacher, in_rows=True).freeze())
    student = sharded(start_policy(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed, in_rows=True))
    teacher = as_teacher_of(student, teacher, recipe.distill.top_k)
    session = start.begin(student, Optimizer(student.trainable(), recipe.optimizer, recipe.run.num_steps))

    def gradient(step: int) -> Gradient:
        sequences, facts = draw_batch(step, student, teacher)
        found = distill_gradient(student, teacher, sequences, recipe.distill)
        sampled = {"sampled_tokens": found.num_tokens if facts else None}
        return found._replace(measured={**found.measured, **sampled}, facts=facts)

    return learn(session, gradient, on_report)


def as_teacher_of(student: Policy, teacher: Policy, top_k: int = 0) -> Policy:
    """Let the teacher read and stop as the student does; raises ModelError where their tokens mean different things."""
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if ours != theirs:
        different = sorted(token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token))
        examples = ", ".join(f"{t!r} ({ours.get(t, 'none')} and {theirs.get(t, 'none')})" for t in different[:3])
        raise ModelError(
            f"student ({len(ours)} tokens) and teacher ({len(theirs)} tokens) have different vocabularies; "
            f"{len(different)} tokens have different ids, such as {examples}. Allowed is a teacher with the same "
            "tokenizer"
        )
    if unknown := teacher.stop_ids - student.stop_ids:
        names = ", ".join(map(repr, student.tokenizer.convert_ids_to_tokens(sorted(unknown))))
        raise ModelError(
            f"the teacher ends completions with {names}, at which the student does not stop: add it to eos_token_id in "
            "the student's generation_config.json"
        )
    if student.device != teacher.device:
        raise ConfigError(
            f"the student is on {student.device}, the teacher on {teacher.device}: allowed are model.device and "
            "teacher.device that mean the same"
        )
    if top_k >= shared_vocabulary(student, teacher):
        raise ConfigError(
            f"distill.top_k = {top_k} leaves no token for the rest of a vocabulary of "
            f"{shared_vocabulary(student, teacher)}; allowed are smaller numbers, and 0 for all tokens"
        )
    return replace(teacher, tokenizer=student.tokenizer, stop_ids=student.stop_ids)


def shared_vocabulary(student: Policy, teacher: Policy) -> int:
    """Count the rows that both heads have. Models of one family pad the same vocabulary to different sizes."""
    return min(student.vocabulary, teacher.vocabulary)


def batches(recipe: DistillRecipe) -> DrawBatch:
    """Open the source of a recipe's completions: pairs or problems in shuffled epochs."""
    data, seed = recipe.data, recipe.run.seed
    if isinstance(data, DistilledPairs):
        rows, size = read_rows(data), data.sequences_per_step

        def from_file(step: int, student: Policy, teacher: Policy) -> Batch:
            chosen = pairs_of_step(len(rows), size, seed, step)
            examples = encode(student, [rows[i] for i in chosen], "completion", chat=data)
            return [example.sequences for example in examples], {}

        return from_file
    task, size = make_task(data.task), data.prompts_per_step
    problems = split_problems(task, "train", None)
    if size > len(problems):
        raise ConfigError(f"data.prompts_per_step = {size} is more than the {len(problems)} training problems")

    def draw_batch(step: int, student: Policy, teacher: Policy) -> Batch:
        chosen = [problems[i] for i in problem_order(len(problems), size, seed, step)[:size]]
        actors = Actors.of(student if data.source == "student" else teacher, task.template, Unjudged())
        draws = Draws(seed, Purpose.DISTILL, step)
        scored = sample_and_score(actors, chosen, data.group_size, data.sampling, draws)
        facts = {"problems": [group.group.prompt.problem.id for group in scored], "tokens": hash_tokens(scored)}
        return [sequences_of(group.group) for group in scored], facts

    return draw_batch


def distill_gradient(
    student: Policy, teacher: Policy, sequences: Sequence[Sequences], config: DistillConfig
) -> Gradient:
    """Accumulate the gradient of the mean divergence over all completion tokens, in nats.

    Measured is the share of them at which both models' likeliest token is the same.
    """
    num_tokens = sum(sequence.num_predicted for sequence in sequences)

    def loss_of(chunk: list[Sequences]) -> tuple[Tensor, int]:
        packed = pack(chunk, student.device)
        context, vocabulary = min(student.context_length, teacher.context_length), shared_vocabulary(student, teacher)
        if (longest := int(packed.position_ids.max()) + 1) > context:
            raise DataError(
                f"student and teacher would read {longest} tokens of a prompt and its completion; at most {context}, "
                "the shorter context of the two, is allowed"
            )
        if (largest := int(packed.input_ids.max())) >= vocabulary:
            raise DataError(
                f"token {largest} occurs, a padding of one model's vocabulary that the other does not have; allowed "
                f"are tokens below {vocabulary}"
            )
        compared = student.divergence(packed, teacher, config.comparison)
        return compared.divergence / num_tokens, int(compared.agreements.item())

    size = config.tokens_per_micro_batch
    loss, agreements = accumulate_rows(loss_of, sequences, lambda sequence: sequence, student, size)
    return Gradient(loss, num_tokens, {"teacher_agreement": sum(agreements) / num_tokens})


TRAINER = Trainer(DistillRecipe, train_distill)
