"""The two sides of the step benchmark: Groupwise and TRL, each running planned steps and telling how long they took."""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PrinterCallback, TrainerCallback
from workload import Shape, StepPlan, Workload

from groupwise.models.config import ModelConfig
from groupwise.models.policy import make_policy
from groupwise.randomness import Draws, Purpose, uniforms
from groupwise.rollout import in_process
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.tasks.base import Template
from groupwise.trainers.grpo import GrpoConfig, GrpoRecipe, grpo_learner, grpo_step
from groupwise.training.config import LossConfig, RunConfig
from groupwise.training.optimizer import OptimizerConfig
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request, Verifier

LR = 1e-4
BETAS = (0.9, 0.95)


class StepTime(NamedTuple):
    """Seconds of one step and where they went."""

    total: float
    generate: float
    verify: float

    @property
    def train(self) -> float:
        """All that is neither generation nor reward."""
        return self.total - self.generate - self.verify


class Ours:
    """Groupwise: `grpo_step` with its default configuration."""

    def __init__(self, workload: Workload, config: ModelConfig | None = None) -> None:
        shape = workload.shape
        self.workload = workload
        self.policy = make_policy(workload.model("eager"), workload.tokenizer, config)
        self.before = _copy(self.policy.model)
        self.recipe = GrpoRecipe(
            run=RunConfig(directory="unused", num_steps=1000),
            task=ArithmeticConfig(kind="arithmetic", template=Template(prompt="{question}")),
            grpo=GrpoConfig(prompts_per_step=shape.num_prompts, group_size=shape.group_size),
            sampling=SamplingConfig(temperature=1.0, max_tokens=shape.max_tokens),
            loss=LossConfig(aggregation="constant"),
            optimizer=OptimizerConfig(lr=LR, betas=BETAS, max_grad_norm=1.0),
        )
        self.verifier = _PlannedVerifier()
        self.learner = grpo_learner(self.recipe, self.policy, self.verifier)

    def step(self, step: int) -> StepTime:
        """Run and time one step; raises when it did not do what was planned."""
        plan = self.workload.plan(step)
        problems = [Problem(f"{step}-{i}", text, "") for i, text in enumerate(plan.prompts)]
        self.verifier.follow(plan)
        with forced_lengths(self._lengths(step, problems, plan), self.workload.tokenizer.eos_token_id):
            start = time.perf_counter()
            result = grpo_step(self.learner, step, problems)
            total = time.perf_counter() - start
        completions = [completion for group in result.groups for completion in group.scored.group.completions]
        _check("Groupwise", [completion.num_tokens for completion in completions], plan)
        return StepTime(total, result.seconds.generate, result.seconds.verify)

    def _lengths(self, step: int, problems: Sequence[Problem], plan: StepPlan) -> dict[int, int]:
        """Planned length by the key of the completion's random numbers."""
        size, seed = plan.lengths.shape[1], self.recipe.run.seed
        keys = [Draws(seed, Purpose.TRAIN, step).keys(problem.id, size) for problem in problems]
        return {
            key: int(length)
            for row, lengths in zip(keys, plan.lengths, strict=True)
            for key, length in zip(row, lengths, strict=True)
        }

    def check_trained(self) -> None:
        """Raises unless the weights have changed."""
        _check_trained("Groupwise", self.before, self.policy.model)


class _PlannedVerifier(Verifier):
    """Gives every completion the reward planned for its place."""

    repeatable = False  # the place is counted up

    def follow(self, plan: StepPlan) -> None:
        """From now on, give the rewards of this plan."""
        self._rewards = [iter(rewards) for rewards in plan.rewards.tolist()]

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        outcomes = {True: Outcome.CORRECT, False: Outcome.WRONG}
        rewards = [next(self._rewards[int(request.problem.id.split("-")[1])]) for request in requests]
        return [Verdict(outcomes[reward > 0], {"accuracy": reward}, "planned") for reward in rewards]


@contextlib.contextmanager
def forced_lengths(lengths: Mapping[int, int], stop_id: int) -> Iterator[None]:
    """Let the engine draw the stop token at the planned length and nowhere else; log-probabilities stay the model's."""
    stops = torch.zeros(0, dtype=torch.bool)

    def watched_uniforms(keys: Any, positions: Any) -> Any:
        nonlocal stops
        last = np.array([lengths[int(key)] for key in keys]) - 1
        stops = torch.from_numpy(np.asarray(positions) == last)
        return uniforms(keys, positions)

    def planned_draw(logits: Tensor, numbers: Tensor, config: SamplingConfig) -> Drawn:
        drawn = draw(logits, numbers, config)
        rows = ((drawn.tokens == stop_id) != stops).nonzero()[:, 0]
        if len(rows):
            drawn.tokens[rows] = torch.where(stops[rows], stop_id, stop_id + 1)
            all_logprobs = torch.log_softmax(logits[rows].float(), -1)
            drawn.logprobs[rows] = all_logprobs.gather(1, drawn.tokens[rows, None])[:, 0]
        return drawn

    with (
        mock.patch.object(in_process, "uniforms", watched_uniforms),
        mock.patch.object(in_process, "draw", planned_draw),
    ):
        yield


class TrlSettings(NamedTuple):
    """Settings of TRL that do not change what it computes."""

    micro_batch: int
    """Completions per forward and backward; the rest is gradient accumulation. Generation is always one batch."""
    continuous: bool = False
    """Generate with transformers' continuous batching instead of `generate`."""
    checkpointing: bool = False
    """Compute activations again in the backward: TRL's default, which costs time and saves memory."""
    bf16: bool = False
    """Products in bf16 by autocast, weights in fp32."""

    def __str__(self) -> str:
        sampling = "continuous batching" if self.continuous else "generate"
        checkpointing = ", gradient checkpointing" if self.checkpointing else ""
        precision = ", bf16" if self.bf16 else ""
        return f"{sampling}, {self.micro_batch} completions per forward{checkpointing}{precision}"


def train_trl(
    workload: Workload,
    num_steps: int,
    settings: TrlSettings,
    before_first: Callable[[], None] = lambda: None,
    after_step: Callable[[int, StepTime], None] = lambda step, seconds: None,
) -> list[StepTime]:
    """Train with TRL's GRPOTrainer; the callbacks run outside the timed part.

    The timed part is what `Trainer` puts between the events `on_step_begin` and `on_step_end`: generation, rewards,
    forward, backward, optimizer. Checkpoints, logging and reports are off.
    """
    import datasets
    from datasets.table import InMemoryTable
    from trl import GRPOConfig, GRPOTrainer

    shape = workload.shape
    plans = [workload.plan(step) for step in range(num_steps)]
    prompts = {"prompt": [text for plan in plans for text in plan.prompts]}
    model = workload.model("sdpa")
    before = _copy(model)
    clock = _TrlClock(model, plans, workload.tokenizer.eos_token_id, before_first, after_step)
    with tempfile.TemporaryDirectory() as directory:
        config = GRPOConfig(
            output_dir=directory,
            use_cpu=True,
            bf16=settings.bf16,
            fp16=False,
            gradient_checkpointing=settings.checkpointing,
            per_device_train_batch_size=settings.micro_batch,
            gradient_accumulation_steps=shape.rows // settings.micro_batch,
            use_transformers_continuous_batching=settings.continuous,
            transformers_continuous_batching_config=_cache_blocks(shape) if settings.continuous else None,
            num_generations=shape.group_size,
            max_completion_length=shape.max_tokens,
            max_steps=num_steps,
            shuffle_dataset=False,
            temperature=1.0,
            beta=0.0,
            num_iterations=1,
            loss_type="dr_grpo",
            scale_rewards="none",
            learning_rate=LR,
            lr_scheduler_type="constant",
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            weight_decay=0.0,
            max_grad_norm=1.0,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=clock.reward,
            args=config,
            train_dataset=datasets.Dataset(InMemoryTable.from_pydict(prompts), fingerprint="planned"),
            processing_class=workload.tokenizer,
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)  # it prints to stdout
        trainer.train()
    _check_trained("TRL", before, model)
    return clock.times


def _cache_blocks(shape: Shape) -> dict[str, int]:
    """A cache for all completions; the default is a share of the machine's memory, which is cleared in every step."""
    page = 32
    per_row = math.ceil((shape.prompt_tokens + shape.max_tokens) / page)
    return {"page_size": page, "num_blocks": shape.rows * per_row + 8, "max_batch_tokens": 2048}


class _TrlClock(TrainerCallback):
    """Times TRL's steps, forces its completion lengths and gives its rewards."""

    def __init__(
        self,
        model: PreTrainedModel,
        plans: Sequence[StepPlan],
        stop_id: int,
        before_first: Callable[[], None],
        after_step: Callable[[int, StepTime], None],
    ) -> None:
        self.plans, self.stop_id, self.before_first, self.after_step = plans, stop_id, before_first, after_step
        self.times: list[StepTime] = []
        self._generate, self._generate_batch = model.generate, model.generate_batch
        model.generate, model.generate_batch = self.generate, self.generate_batch

    @property
    def plan(self) -> StepPlan:
        """Of the step in hand."""
        return self.plans[len(self.times)]

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.times:
            self.before_first()
        self._generating, self._rewarding, self._checked = 0.0, 0.0, False
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        total = time.perf_counter() - self._start
        assert self._checked, "TRL asked for no rewards in this step"
        self.times.append(StepTime(total, self._generating, self._rewarding))
        self.after_step(len(self.times) - 1, self.times[-1])

    def generate(self, **inputs: Any) -> Tensor:
        """`model.generate` with planned lengths."""
        start = time.perf_counter()
        forced = _ForcedLengths(torch.from_numpy(self.plan.lengths.ravel()), inputs["input_ids"].shape[1], self.stop_id)
        out: Tensor = self._generate(**inputs, logits_processor=LogitsProcessorList([forced]))
        self._generating += time.perf_counter() - start
        return out

    def generate_batch(self, inputs: list[list[int]], **settings: Any) -> dict[str, Any]:
        """`model.generate_batch` with planned lengths as limits; the stop token replaces each last one."""
        start = time.perf_counter()
        lengths = self.plan.lengths.ravel().tolist()
        with _limited_requests(lengths):
            out: dict[str, Any] = self._generate_batch(inputs, **settings)
        for one in out.values():
            one.generated_tokens[-1] = self.stop_id
        self._generating += time.perf_counter() - start
        return out

    def reward(self, prompts: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
        """Planned rewards, after a check that the batch is the planned one."""
        start = time.perf_counter()
        plan = self.plan
        assert prompts == [text for text in plan.prompts for _ in range(plan.lengths.shape[1])]
        _check("TRL", [len(ids) for ids in completion_ids], plan)
        self._checked = True
        rewards: list[float] = plan.rewards.ravel().tolist()
        self._rewarding += time.perf_counter() - start
        return rewards


class _ForcedLengths(LogitsProcessor):
    """The stop token at each row's planned length and nowhere else."""

    def __init__(self, lengths: Tensor, prompt_tokens: int, stop_id: int) -> None:
        self.lengths, self.prompt_tokens, self.stop_id = lengths, prompt_tokens, stop_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ends = self.lengths == input_ids.shape[1] - self.prompt_tokens + 1
        scores[:, self.stop_id] = -torch.inf
        scores[ends] = -torch.inf
        scores[ends, self.stop_id] = 0.0
        return scores


@contextlib.contextmanager
def _limited_requests(lengths: Sequence[int]) -> Iterator[None]:
    """Give each request of continuous batching its own limit, and no stop token."""
    from transformers.generation.continuous_batching import ContinuousBatchingManager

    add_request = ContinuousBatchingManager.add_request

    def limited(self: Any, input_ids: list[int], request_id: str, **settings: Any) -> Any:
        own = {"max_new_tokens": lengths[int(request_id.removeprefix("req_"))], "eos_token_id": -1}
        return add_request(self, input_ids, request_id, **(settings | own))

    with mock.patch.object(ContinuousBatchingManager, "add_request", limited):
        yield


def _check(name: str, lengths: Sequence[int], plan: StepPlan) -> None:
    if list(lengths) != plan.lengths.ravel().tolist():
        raise RuntimeError(
            f"{name} sampled {sum(lengths)} tokens, not the {plan.lengths.sum()} planned, or in another order"
        )


def _copy(model: PreTrainedModel) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def _check_trained(name: str, before: Sequence[Tensor], model: PreTrainedModel) -> None:
    if not any((old != new).any() for old, new in zip(before, model.parameters(), strict=True)):
        raise RuntimeError(f"{name} did not change the weights")
