"""Everything around the step of a reinforcement-learning trainer: the recipe, the loop, evaluation, the record."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from groupwise.audit.quick import quick_audit
from groupwise.config import FOLDER, Section
from groupwise.doctor.finding import Severity
from groupwise.doctor.live import DoctorConfig, Watch, check_rules
from groupwise.errors import ConfigError, InvariantError
from groupwise.evaluation.evaluate import Evaluation, EvaluationConfig, evaluate
from groupwise.evaluation.held_out import HeldOutCheck, look_again, open_second, second_section
from groupwise.evaluation.metrics import by_family, estimate
from groupwise.models.config import ModelConfig
from groupwise.models.lora_config import LoraConfig
from groupwise.models.policy import Policy, load_policy, start_policy
from groupwise.models.reward_model import RewardModel
from groupwise.models.sharded import sharded
from groupwise.randomness import Draws, Purpose
from groupwise.ranks.group import RANKS
from groupwise.rollout.engine import AnyEngine, EngineConfig
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig, refuse_for_training
from groupwise.tasks import TaskOptions, make_task, with_verifier
from groupwise.tasks.base import Task, split_problems
from groupwise.trainers.base import OnReport, Recipe, Trainer
from groupwise.trainers.curriculum import PassRates, problem_order
from groupwise.trainers.distributions import distributions
from groupwise.trainers.record import RecordConfig, Recorder
from groupwise.trainers.reference import load_reference
from groupwise.trainers.report import (
    SILENT,
    DevReport,
    Observer,
    StepResult,
    hash_tokens,
    ledger_group,
    step_report,
)
from groupwise.trainers.reward_part import (
    RewardModelPartConfig,
    check_problems,
    check_reward_models,
    with_reward_model_parts,
)
from groupwise.trainers.tool_results import with_results
from groupwise.training.loss_config import LossConfig
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.training.session import Best, Session, Start
from groupwise.training.update import CriticLoss, Updater
from groupwise.types import Problem, ScoredGroup
from groupwise.verifiers import VERIFIERS, Verifier, VerifierConfig, make_verifier
from groupwise.verifiers.parts import PartName, check_lengths
from groupwise.verifiers.style.calls import check_price
from groupwise.verifiers.style.phrases import BehaviourConfig


class BatchConfig(Section):
    """Numbers of problems and completions that a step samples."""

    prompts_per_step: int = Field(16, ge=1)
    """Problems per step (DeepSeek-R1-Zero: 32)."""
    group_size: int = Field(16, ge=1)
    """Completions per problem, G (DeepSeekMath: 64; DeepSeek-R1-Zero: 16)."""
    curriculum: bool = False
    """Draw problems by how much they can still teach: with a weight of p(1 - p) for a pass rate p remembered from
    earlier steps (of the problem, else of its difficulty), instead of shuffled epochs."""


class RlRecipe(Recipe):
    """Base of all reinforcement-learning recipes."""

    model: ModelConfig = ModelConfig()
    """The model to start from; also the KL reference."""
    lora: LoraConfig | None = None
    """Adapters to train beside the model's weights (LoRA); without the section all weights are trained."""
    task: TaskOptions
    """Source of the problems."""
    verifier: Annotated[VerifierConfig, VERIFIERS]
    """How completions are judged; where it names no kind, by the task's own verifier."""
    reward_models: dict[PartName, RewardModelPartConfig] = Field(default_factory=dict)
    """Reward models whose scores are further parts of the reward, by names that you choose."""
    sampling: SamplingConfig = SamplingConfig()
    """How completions are drawn, in training and in evaluation."""
    engine: AnyEngine = EngineConfig()
    """The engine that samples completions."""
    loss: LossConfig = LossConfig()
    """The policy loss."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Dev and test."""
    record: RecordConfig = RecordConfig()
    """How much is recorded of the completions that are trained on."""
    behaviour: BehaviourConfig = BehaviourConfig()
    """What the run's report looks for in completions."""
    doctor: DoctorConfig = DoctorConfig()
    """Rules that look for what goes wrong while the run goes on."""
    token_budget: int = Field(0, ge=0)
    """The run also ends after the step in which this many completion tokens were sampled; 0: no budget. For comparisons
    at equal cost."""

    @model_validator(mode="before")
    @classmethod
    def _judged(cls, values: Any, info: ValidationInfo) -> Any:
        """Every recipe says in full who judges, and who judges again."""
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
        return refuse_for_training(sampling)

    @property
    def batch(self) -> BatchConfig:
        """The section of the algorithm, which says how much a step samples."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse settings that contradict each other across sections.

        Raises:
            ValueError: says which, and what is allowed.
        """
        if self.loss.mini_batches > self.batch.prompts_per_step:
            raise ValueError(
                f"loss.mini_batches = {self.loss.mini_batches} is more than {self.algorithm}.prompts_per_step = "
                f"{self.batch.prompts_per_step}: every update needs at least one group"
            )
        if self.lora and self.engine.kind == "vllm":
            raise ValueError(
                "lora with engine.kind = 'vllm' is not supported: servers get whole weights; allowed is 'in_process', "
                "or training without [lora]"
            )
        check_rules(self.doctor.ignore)
        check_lengths(self.verifier.parts, self.sampling.max_tokens)
        tools = self.sampling.tools
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


@dataclass(frozen=True, slots=True)
class Learner(ABC):
    """What a run works with; an algorithm adds what is its own, and its step."""

    actors: Actors
    reference: Policy | None
    """The frozen model of the KL term, if there is one."""
    reward_models: Mapping[str, RewardModel]
    optimizer: Optimizer
    recipe: RlRecipe

    @property
    def policy(self) -> Policy:
        return self.actors.policy

    @property
    def critic_loss(self) -> CriticLoss | None:
        """The critic that is trained together with the policy, if there is one."""
        return None

    @property
    def updater(self) -> Updater:
        """What makes an update of groups with advantages."""
        sampling = self.recipe.sampling
        return Updater(
            self.policy, self.optimizer, self.recipe.loss, sampling.temperature, sampling.max_tokens, self.reference,
            self.critic_loss,
        )  # fmt: skip

    @abstractmethod
    def step(self, step: int, problems: Sequence[Problem], spare: Sequence[Problem] = ()) -> StepResult:
        """One step on these problems; `spare` ones may replace those whose groups have no signal."""

    def rewarded(self, scored: Sequence[ScoredGroup], step: int) -> list[ScoredGroup]:
        """The groups with the parts of the reward that reward models give."""
        recipe = self.recipe
        if not self.reward_models:
            return list(scored)
        return with_reward_model_parts(scored, self.reward_models, recipe.reward_models, recipe.task.template, step)

    def publish(self) -> None:
        """Let the engine sample from the weights as they are now."""
        self.actors.engine.publish(self.policy, self.optimizer.updates_done)


def reference_of(recipe: RlRecipe, policy: Policy) -> Policy | None:
    """The frozen reference, if the recipe has a KL term."""
    return load_reference(recipe.model, recipe.lora, policy) if recipe.loss.kl_coef > 0 else None


MakeLearner = Callable[[Any, Policy, Verifier], Learner]
"""(recipe, policy, verifier) -> learner."""


def train_rl(
    recipe: RlRecipe, make_learner: MakeLearner, restart: bool = False, observer: Observer = SILENT
) -> Session:
    """Run a recipe, or resume an interrupted run; returns the session, whose policy is the trained one."""
    task = make_task(recipe.task)
    with (
        make_verifier(recipe.verifier) as verifier,
        open_second(recipe.evaluation.second_verifier, task, recipe.verifier) as second,
    ):
        problems = split_problems(task, "train", None)
        verifier.check([*problems, *split_problems(task, "dev", None)], task.template)
        task.validate(verifier.verify, must_accept=verifier.accepts_references)
        quick_audit(task, verifier)
        check_problems(recipe.reward_models, problems)
        if recipe.batch.prompts_per_step > len(problems):
            raise ConfigError(
                f"{recipe.algorithm}.prompts_per_step = {recipe.batch.prompts_per_step} is more than the "
                f"{len(problems)} training problems"
            )
        _check_ranks(recipe)
        start = Start(recipe, recipe.run, restart)
        policy = sharded(start_policy(start.model_to_load(recipe.model), recipe.lora, recipe.run.seed))
        learner = make_learner(recipe, policy, verifier)
        session = start.begin(policy, learner.optimizer, learner.critic_loss and learner.critic_loss.critic)
        learner.publish()
        run = _Run(recipe, task, learner.actors, second, session, observer)
        run.evaluate_start()
        for step in session.steps():
            chosen, spare = run.choose(problems, step)
            run.record(step, with_results(learner, session.directory, step).step(step, chosen, spare))
            if (step + 1) % recipe.evaluation.every == 0 or run.is_last(step):
                run.evaluate_dev(step + 1)
            run.examine()
        if not session.stopping and recipe.evaluation.test_problems:
            run.evaluate_test()
        session.finish()
    return session


def _check_ranks(recipe: RlRecipe) -> None:
    """What several ranks cannot do."""
    if RANKS.size > recipe.batch.prompts_per_step:
        raise ConfigError(
            f"{RANKS.size} ranks are more than {recipe.algorithm}.prompts_per_step = "
            f"{recipe.batch.prompts_per_step}: every rank samples at least one problem of a step"
        )
    if RANKS.size > 1 and recipe.engine.kind == "vllm":
        raise ConfigError("engine.kind = 'vllm' takes the weights of one process; several ranks need 'in_process'")
    if RANKS.size > 1 and recipe.sampling.tools:
        raise ConfigError(
            "sampling.tools is for one process: completions with tools on several ranks are not supported"
        )


class _Run:
    """Choosing problems, recording and evaluation around the step."""

    def __init__(
        self,
        recipe: RlRecipe,
        task: Task,
        actors: Actors,
        second: Verifier | None,
        session: Session,
        observer: Observer,
    ) -> None:
        self.recipe, self.task, self.actors, self.second = recipe, task, actors, second
        self.session, self.observer = session, observer
        self.recorder = Recorder(
            recipe.record, session.directory, actors.policy, recipe.sampling, session.progress.step
        )
        self.pass_rates = PassRates(session.progress.pass_rates)
        self.test_is_open = False
        self.watch = Watch(session.directory.path, recipe.doctor.ignore) if RANKS.is_first else None

    def choose(self, problems: Sequence[Problem], step: int) -> tuple[Sequence[Problem], Sequence[Problem]]:
        """The step's problems, and those that may replace them."""
        size, seed = self.recipe.batch.prompts_per_step, self.recipe.run.seed
        if self.recipe.batch.curriculum:
            order = self.pass_rates.draw(problems, seed, step)
        else:
            order = problem_order(len(problems), size, seed, step)
        chosen = [problems[index] for index in order]
        return chosen[:size], chosen[size:]

    def is_last(self, step: int) -> bool:
        """Whether the run ends with this step."""
        return self.session.progress.ending or step + 1 == self.recipe.run.num_steps

    def record(self, step: int, result: StepResult) -> None:
        """Rollouts first, then ledger and metrics, then the display."""
        began = time.perf_counter()
        after = self.recorder.step(step, result, self.recipe.loss.tokens_per_micro_batch)
        spreads = distributions(result, after)
        record_s = time.perf_counter() - began
        report = step_report(step, self.recipe.run.num_steps, result, self.session.optimizer.lr(step))
        facts = {
            "step": step,
            "problems": [list(ids) for ids in result.problems],
            "groups": [ledger_group(group) for group in result.groups],
            "surrogate": result.update.surrogate,
            "grad_norm": result.update.grad_norm,
            "updates": self.session.optimizer.updates_done,
            "weights": self.actors.policy.fingerprint(),
        }
        more = {"record_s": record_s, "distributions": spreads}
        if engine_facts := getattr(
            self.actors.engine, "facts", None
        ):  # servers have states and proofs; others have none
            more["engine"] = engine_facts
        self.session.record(facts, {"kind": "step", **report._asdict(), **more})
        self.pass_rates.learn([group.scored for group in result.groups])
        progress = self.session.progress
        progress.pass_rates = self.pass_rates.state()
        progress.sampled_tokens += report.sampled_tokens
        if self.recipe.token_budget and progress.sampled_tokens >= self.recipe.token_budget:
            progress.ending = True
        self.observer.on_step(report)

    def examine(self) -> None:
        """Tell what the doctor finds; a critical finding ends the run where the recipe says so."""
        findings = self.watch.look() if self.watch else []
        for finding in findings:
            self.observer.on_finding(finding)
        is_critical = any(finding.severity is Severity.CRITICAL for finding in findings)
        if self.recipe.doctor.stop_at_critical and RANKS.most(int(is_critical)):
            self.session.stopping = True

    def evaluate_start(self) -> None:
        """Evaluate the starting point, or restore the best result of an interrupted run."""
        best = self.session.progress.best
        if best is None:
            self.evaluate_dev(0)
        else:  # the process may have been killed between a checkpoint and its mark
            self._mark_best(best.step)

    def evaluate_dev(self, done: int) -> None:
        """Evaluate on dev; a new best is checkpointed and marked."""
        config = self.recipe.evaluation
        name, size = f"dev-step-{done:06d}", (config.num_problems, config.num_samples)
        evaluation = self._evaluate(Purpose.DEV, self.actors, size, name)
        solved = estimate("pass_at_1", evaluation.rows)
        best = self.session.progress.best
        is_best = best is None or solved.value > best.pass_at_1
        if is_best:
            self.session.progress.best = Best(done, solved.value)
        second = self._look_again(evaluation)
        self._record_evaluation(
            "dev", done, evaluation, {"best": is_best} | ({"second": second.record()} if second else {})
        )
        if is_best:
            self.session.checkpoint(done)
            self._mark_best(done)
        self.observer.on_dev(DevReport(done, solved, is_best, second))

    def _mark_best(self, step: int) -> None:
        RANKS.by_first(lambda: self.session.directory.mark_best(step))

    def _look_again(self, evaluation: Evaluation) -> HeldOutCheck | None:
        """What the second verifier says of a sample of what training pays."""
        config = self.recipe.evaluation
        if self.second is None or config.second_verifier is None:
            return None
        return look_again(
            evaluation.scored, config.second_verifier.kind, self.second, size=config.second_sample, alarm=config.alarm,
            max_tokens=self.recipe.sampling.max_tokens, seed=self.recipe.run.seed,
        )  # fmt: skip

    def evaluate_test(self) -> None:
        """Open the test split once: the start and the best checkpoint, on the same random numbers."""
        config = self.recipe.evaluation
        self.test_is_open = True
        paths = {"test-before": self.recipe.model.path, "test-after": str(self.session.directory.best.resolve())}
        for name, path in paths.items():
            policy = load_policy(self.recipe.model.at(path))
            actors = Actors.of(policy, self.actors.template, self.actors.verifier, self.recipe.engine)
            evaluation = self._evaluate(Purpose.TEST, actors, (config.test_problems, config.test_samples), name)
            self._record_evaluation(name, self.recipe.run.num_steps, evaluation, {})

    def _evaluate(self, purpose: Purpose, actors: Actors, size: tuple[int, int], name: str) -> Evaluation:
        """Measure on a split of the purpose's name; `size`: problems, and completions of each."""
        if purpose is Purpose.TEST and not self.test_is_open:
            raise InvariantError(f"{name} would open the test split, which nothing may see before training has ended")
        num_problems, num_samples = size
        problems = split_problems(self.task, "test" if purpose is Purpose.TEST else "dev", num_problems)
        draws = Draws(self.recipe.run.seed, purpose)
        evaluation = evaluate(actors, problems, num_samples, self.recipe.sampling, draws)
        self.recorder.evaluation(name, evaluation.scored)
        return evaluation

    def _record_evaluation(self, kind: str, done: int, evaluation: Evaluation, more: dict[str, Any]) -> None:
        rows = evaluation.rows
        facts = {
            "evaluation": kind,
            "step": done,
            "pass_at_1": list(estimate("pass_at_1", rows)),
            "length": estimate("length", rows).value,
            "truncated": estimate("truncated", rows).value,
            "tokens": hash_tokens(evaluation.scored),
            **more,
        }
        families = {name: list(solved) for name, solved in by_family(rows).items()}
        shown = {key: value for key, value in facts.items() if key != "tokens"}
        self.session.record(facts, {"kind": kind, **shown, **({"families": families} if len(families) > 1 else {})})


@dataclass(frozen=True, slots=True)
class RlTrainer(Trainer):
    """A trainer whose algorithm brings a step, and whose loop, evaluation and record are `train_rl`."""

    learner: MakeLearner = field(kw_only=True)
    """What it brings to the loop; a replay repeats steps with it."""


def rl_trainer(
    recipe: type[RlRecipe],
    learner: MakeLearner,
    trained_beside: Callable[[Any], tuple[str, ...]] = lambda recipe: (),
) -> RlTrainer:
    """The trainer of an algorithm that learns by reinforcement."""

    def run(settings: Any, restart: bool, on_report: OnReport) -> Session:
        return train_rl(settings, learner, restart, Observer(on_report, on_report, on_report))

    return RlTrainer(
        recipe, run, epochs=lambda settings: int(settings.loss.epochs), trained_beside=trained_beside, learner=learner
    )
