"""One measurement of test-time compute, step by step: sample, score, compute, write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.test_time.chained import measure_chains
from groupwise.evaluation.test_time.cuts import measure_cuts
from groupwise.evaluation.test_time.equal_tokens import at_equal_tokens
from groupwise.evaluation.test_time.methods import CONTROLS, Measured, Pools, Sizes, measure_greedy, measure_pools
from groupwise.evaluation.test_time.optimal import Difficulty, Optimal, choose, difficulties
from groupwise.evaluation.test_time.pool import Progress, Sampler, check_budgets, enough
from groupwise.evaluation.test_time.result import BudgetResult, Point, point
from groupwise.evaluation.test_time.scores import Role, Scorer
from groupwise.evaluation.test_time.searched import measure_search
from groupwise.evaluation.test_time.settings import CHAINS, CUT, GREEDY, SEARCHES, BudgetConfig
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose, key
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Task
from groupwise.types import Problem, Split
from groupwise.verifiers import make_verifier
from groupwise.verifiers.base import VerifierConfig


class Subject(NamedTuple):
    """Whose answers to which problems are measured, and how they are drawn and judged."""

    policy: ModelConfig
    task: Task
    verifier: VerifierConfig
    sampling: SamplingConfig
    split: Split
    problems: Sequence[Problem]


class RewardModels(NamedTuple):
    """The models that score samples; None: no method by it."""

    prm: ModelConfig | None = None
    orm: ModelConfig | None = None
    reference: str = ""
    """The model that an implicit process reward model was trained from; empty: it has a head."""
    beta: float = 0.05
    """β of an implicit one."""

    def scorers(self, step: str) -> dict[Role, Scorer]:
        """Load them; `step` is what ends a step."""
        found: dict[Role, Scorer] = {}
        if self.prm is not None:
            found["prm"] = Scorer.load(self.prm, "prm", step, self.reference, self.beta)
        if self.orm is not None:
            found["orm"] = Scorer.load(self.orm, "orm", step)
        return found


def measure(
    subject: Subject,
    rewards: RewardModels,
    config: BudgetConfig,
    directory: Path,
    progress: Progress = lambda what, done, total: None,
) -> BudgetResult:
    """Measure what test-time compute is worth, and write it into a directory; the same call goes on after a kill.

    Raises:
        ConfigError: a pool is smaller than a budget, or a method needs a reward model that is not there.
        DataError: a reward model cannot read a completion, or too few samples were judged.
        ModelError: a model cannot be loaded, or gives a score that is not a number.
        VerifierError: the verifier failed on too many completions.
    """
    methods, budgets = checked(config, rewards, subject.sampling.temperature)
    if subject.task.template.chat and (rewards.prm or rewards.orm):
        raise ConfigError("task.template.chat = true: a reward model of steps reads plain prompts, so false is allowed")
    scorers = rewards.scorers(config.step)
    with make_verifier(subject.verifier) as verifier:
        verifier.check(subject.problems, subject.task.template)
        policy = load_policy(subject.policy)
        actors = Actors.of(policy, subject.task.template, verifier)
        draws, identity = Draws(config.seed, Purpose(subject.split)), _identity(policy, subject)
        sampler = Sampler(actors, subject.sampling, draws, directory, identity, progress)
        asked = {
            "checkpoint": subject.policy.path, "prm": rewards.prm and rewards.prm.path,
            "orm": rewards.orm and rewards.orm.path, "task": subject.task.name,
        }  # fmt: skip
        return _Measurement(config, methods, budgets, sampler, scorers, subject.problems).result(asked)


@dataclass(frozen=True, slots=True)
class _Measurement:
    """One call, step by step."""

    config: BudgetConfig
    methods: Sequence[str]
    budgets: Sequence[int]
    sampler: Sampler
    scorers: Mapping[Role, Scorer]
    problems: Sequence[Problem]

    def result(self, asked: Mapping[str, Any]) -> BudgetResult:
        """Sample, score, compute, write."""
        pools = self._pools(self.problems, self.config.samples, self.sampler)
        kept, left_out = enough(pools.pools, max(self.budgets))
        problems = [self.problems[index] for index in kept]
        pools = _only(pools, kept)
        measured, flips = [*measure_pools(pools, self.budgets, self.methods)], list[Mapping[str, Any]]()
        for method in self.methods:
            found, changed = self._others(method, problems, pools.sizes)
            measured += found
            flips += changed
        labels = [problem.difficulty for problem in problems]
        ways = difficulties(labels, self._difficulty(problems))
        result = BudgetResult(
            {**asked, **self._settings()}, measured, labels, [problem.id for problem in problems], left_out,
            _points(measured, labels), self._optimal(measured, ways), flips, self.sampler.directory,
            at_equal_tokens(measured, pools, self.config.aggregate, ways),
        )  # fmt: skip
        result.write()
        return result

    def _others(
        self, method: str, problems: Sequence[Problem], sizes: Sizes
    ) -> tuple[list[Measured], list[dict[str, Any]]]:
        """What a method without a pool makes of the problems, and which answers it changed."""
        if method == GREEDY:
            return [measure_greedy(self.sampler.greedy(problems), sizes)], []
        if method in SEARCHES:
            return list(measure_search(method, self.sampler, self.scorers["prm"], problems, self.config, sizes)), []
        if method in CHAINS:
            return measure_chains(method, self.sampler, self.scorers.get("prm"), problems, self.config, sizes)
        if method == CUT:
            return list(measure_cuts(self.sampler, problems, self.config, sizes)), []
        return [], []

    def _settings(self) -> dict[str, Any]:
        weights = {f"{role}_weights": scorer.fingerprint for role, scorer in self.scorers.items()}
        policy = self.sampler.actors.policy.fingerprint()
        dials = self.config.model_dump(mode="json")
        return {**dials, "methods": list(self.methods), "weights": policy, **weights}

    def _pools(self, problems: Sequence[Problem], num_samples: int, sampler: Sampler) -> Pools:
        """Sampled, and scored by every reward model."""
        pools = sampler.pools(problems, num_samples)
        of, folder = sampler.identity_of(num_samples), sampler.directory
        scored = {role: one.pools(pools, folder, of, sampler.progress) for role, one in self.scorers.items()}
        rewards = {role: one.num_parameters for role, one in self.scorers.items()}
        return Pools(pools, scored, Sizes(sampler.actors.policy.num_parameters, rewards), self.config.seed)

    def _optimal(self, measured: Sequence[Measured], ways: Sequence[Difficulty]) -> list[Optimal]:
        found = [
            choose(
                [one for one in measured if one.budget == k and one.method not in CONTROLS],
                difficulty,
                self.config.seed,
            )
            for difficulty in ways
            for k in self.budgets
        ]
        return [one for one in found if one is not None]

    def _difficulty(self, problems: Sequence[Problem]) -> Pools | None:
        """A pool that tells how difficult problems are; its draws are its own."""
        if not self.config.difficulty_samples:
            return None
        sampler = self.sampler.drawing("difficulty")
        own = self._pools(problems, self.config.difficulty_samples, sampler)
        if empty := [pool.problem.id for pool in own.pools if not pool.samples]:
            raise DataError(f"the verifier judged no sample that tells the difficulty of {empty[0]}: ask for more")
        return own


def checked(config: BudgetConfig, rewards: RewardModels, temperature: float) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Methods and budgets.

    Raises:
        ConfigError: they cannot be measured.
    """
    if not temperature > 0:
        raise ConfigError(f"temperature = {temperature}: equal samples are no pool; above 0 is allowed")
    try:
        return config.chosen(rewards.prm is not None, rewards.orm is not None), check_budgets(
            config.budgets, config.samples
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _identity(policy: Policy, subject: Subject) -> dict[str, Any]:
    """What completions and verdicts follow from, beside sampling, draws and their number."""
    return {
        "weights": policy.fingerprint(),
        "template": subject.task.template.model_dump(mode="json"),
        "verifier": subject.verifier.model_dump(mode="json"),
        "problems": key(*(part for problem in subject.problems for part in _said(problem))),
    }


def _said(problem: Problem) -> tuple[str, ...]:
    return problem.id, problem.question, problem.reference, repr(sorted(problem.data.items()))


def _only(pools: Pools, kept: Sequence[int]) -> Pools:
    scored = {role: [of[index] for index in kept] for role, of in pools.scored.items()}
    return Pools([pools.pools[index] for index in kept], scored, pools.sizes, pools.seed)


def _points(measured: Sequence[Measured], labels: Sequence[str]) -> list[Point]:
    named = {(one.method, one.budget): one for one in measured}
    return [
        point(one, labels, named.get(("majority", one.budget)), named.get((CONTROLS[0], one.budget)))
        for one in measured
    ]
