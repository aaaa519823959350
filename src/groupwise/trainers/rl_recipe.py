"""The recipe that all trainers of reinforcement learning share, and what its sections allow together."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from groupwise.checks.doctor import DoctorConfig, check_rules
from groupwise.config import FOLDER, Section
from groupwise.evaluation.evaluate import EvaluationConfig, second_section
from groupwise.rollout.engine import NO_TOOLS, AnyEngine, EngineConfig
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TaskOptions, with_verifier
from groupwise.tasks.episodes import environments
from groupwise.trainers.base import ModelRecipe
from groupwise.trainers.record import RecordConfig
from groupwise.trainers.reward_part import RewardModelPartConfig, check_reward_models
from groupwise.training.config import LossConfig
from groupwise.training.optimizer import OptimizerConfig
from groupwise.verifiers import VERIFIERS, VerifierConfig
from groupwise.verifiers.base import PartName, check_lengths
from groupwise.verifiers.style import BehaviourConfig, check_price


class BatchConfig(Section):
    """Numbers of problems and completions that a step samples."""

    prompts_per_step: int = Field(16, ge=1)
    """Problems per step (DeepSeek-R1-Zero: 32)."""
    group_size: int = Field(16, ge=1)
    """Completions per problem, G (DeepSeekMath: 64; DeepSeek-R1-Zero: 16)."""
    curriculum: bool = False
    """Draw problems by how much they can still teach: with a weight of p(1 - p) for a pass rate p remembered from
    earlier steps (of the problem, else of its difficulty), instead of shuffled epochs."""


class RlRecipe(ModelRecipe):
    """Base of all reinforcement-learning recipes."""

    task: TaskOptions
    """Source of the problems."""
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """The verifier; without a kind, the task's own."""
    reward_models: dict[PartName, RewardModelPartConfig] = Field(default_factory=dict)
    """Reward models whose scores are further parts of the reward, by names that you choose."""
    sampling: SamplingConfig = SamplingConfig()
    """The draws of completions, in training and in evaluation."""
    engine: AnyEngine = EngineConfig()
    """The engine that samples completions."""
    loss: LossConfig = LossConfig()
    """The policy loss."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Dev and test."""
    record: RecordConfig = RecordConfig()
    """The record of the completions that are trained on."""
    behaviour: BehaviourConfig = BehaviourConfig()
    """Words and phrases that the run's report counts in completions."""
    doctor: DoctorConfig = DoctorConfig()
    """Rules that look for faults while the run trains."""
    token_budget: int = Field(0, ge=0)
    """The run also ends after the step in which this many completion tokens were sampled; 0: no budget. For comparisons
    at equal cost."""

    @model_validator(mode="before")
    @classmethod
    def _judged(cls, values: Any, info: ValidationInfo) -> Any:
        folder = (info.context or {}).get(FOLDER)
        tables = with_verifier(values, folder)
        judge, evaluation = (tables.get(name) for name in ("verifier", "evaluation"))
        if isinstance(judge, Mapping) and isinstance(evaluation, Mapping) and "second_verifier" in evaluation:
            second = second_section(evaluation["second_verifier"], judge, folder)
            return {**tables, "evaluation": {**evaluation, "second_verifier": second}}
        return tables

    @field_validator("sampling")
    @classmethod
    def _whole_distribution(cls, sampling: SamplingConfig) -> SamplingConfig:
        if sampling.top_k or sampling.top_p < 1:
            raise ValueError(
                f"top_k = {sampling.top_k}, top_p = {sampling.top_p}: training must sample from the whole distribution "
                "(top_k = 0, top_p = 1), because the gradient is that of the full softmax and truncated samples do not "
                "come from it; both are for evaluation only"
            )
        if sampling.stop:
            raise ValueError(
                f"stop = {list(sampling.stop)}: a policy learns to end by its stop token; texts that end a completion "
                "are for evaluation only"
            )
        if sampling.temperature == 0:
            raise ValueError(
                "temperature = 0 draws G equal completions, which teach nothing; training needs temperature > 0"
            )
        return sampling

    @property
    def batch(self) -> BatchConfig:
        raise NotImplementedError

    @property
    def needs_records(self) -> bool:
        """True where a step can only be made again with what it recorded."""
        return bool(self.sampling.tools) or any(not environment.repeatable for environment in environments(self.task))

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.loss.mini_batches > self.batch.prompts_per_step:
            raise ValueError(
                f"loss.mini_batches = {self.loss.mini_batches} is more than {self.algorithm}.prompts_per_step = "
                f"{self.batch.prompts_per_step}: every update needs at least one group"
            )
        self._check_ahead()
        if getattr(self.engine, "adapters", "merged") == "native" and self.lora is None:
            raise ValueError("engine.adapters = 'native' has no effect without [lora]; allowed is 'merged'")
        check_rules(self.doctor.ignore)
        check_lengths(self.verifier.parts, self.sampling.max_tokens)
        tools = self.sampling.tools
        if tools and environments(self.task):
            raise ValueError(
                f"sampling.tools has {', '.join(tools)}, and the task is played in an environment, which answers calls "
                "itself; allowed is one of the two"
            )
        if tools and not self.engine.continues:
            raise ValueError(NO_TOOLS.format(kind=self.engine.kind, tools=", ".join(tools)))
        max_calls = sum(tool.max_calls for tool in tools.values()) if tools else None
        check_price(self.verifier.parts, self.verifier.correct_reward, max_calls)
        if self.loss.void_turns == "drop" and not tools:
            raise ValueError("loss.void_turns = 'drop' has no effect here: sampling.tools names no tool")
        check_reward_models(self.reward_models, self.verifier, self.run.num_steps)
        if self.token_budget and self.optimizer.schedule != "constant":
            raise ValueError(
                f"optimizer.schedule = '{self.optimizer.schedule}' falls to its end at run.num_steps, but token_budget "
                "may end the run before; allowed with a budget is 'constant'"
            )
        return self

    def _check_ahead(self) -> None:
        if not self.engine.looks_ahead:
            return
        if self.loss.correction.bound == "none":
            raise ValueError(
                "engine.steps_ahead = 1 trains on completions of older weights, and loss.correction.bound = 'none' "
                "takes them for the policy's own; allowed are 'truncate' and 'mask'"
            )
        refills = int(getattr(self.batch, "refill_rounds", 0))
        if self.batch.curriculum or refills:
            why = "curriculum = true" if self.batch.curriculum else f"refill_rounds = {refills}"
            raise ValueError(
                f"{self.algorithm}.{why} chooses problems by what this step finds, and engine.steps_ahead = 1 samples "
                "the next ones before; drop one of the two"
            )
        if self.needs_records:
            raise ValueError(
                "engine.steps_ahead = 1 samples a step before it begins, so after a kill its tools or its environment "
                "would be asked again and might answer otherwise; allowed with them is 0"
            )
