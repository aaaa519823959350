"""`measure_budget`: accuracy and cost of every method at every budget. `groupwise budget` is it with a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import Changes
from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.checkpoints import context_of
from groupwise.evaluation.test_time.chained import measure_chains
from groupwise.evaluation.test_time.cuts import measure_cuts
from groupwise.evaluation.test_time.methods import CONTROLS, Measured, Pools, Sizes, measure_greedy, measure_pools
from groupwise.evaluation.test_time.optimal import Optimal, choose, difficulties
from groupwise.evaluation.test_time.pool import Progress, Sampler, check_budgets, enough
from groupwise.evaluation.test_time.result import BudgetResult, Point, point
from groupwise.evaluation.test_time.scores import Role, Scorer
from groupwise.evaluation.test_time.searched import measure_search
from groupwise.evaluation.test_time.settings import CHAINS, CUT, GREEDY, OF_POOLS, SEARCHES, BudgetConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import Draws, Purpose, key
from groupwise.rollout.sample_and_score import Actors
from groupwise.tasks.base import Template
from groupwise.types import SPLITS, Problem, Split
from groupwise.verifiers import VerifierConfig, make_verifier


def measure_budget(
    checkpoint: str | Path,
    *,
    prm: str | Path | None = None,
    orm: str | Path | None = None,
    reference: str | Path = "",
    config: BudgetConfig | None = None,
    task: str | None = None,
    split: Split | None = None,
    problems: int | None = None,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    directory: str | Path = "runs/budget",
    changes: Changes = (),
    progress: Progress = lambda what, done, total: None,
) -> BudgetResult:
    """Measure what test-time compute is worth, and write it into a directory; the same call goes on after a kill.

    Args:
        checkpoint: whose samples: a checkpoint directory, a hub name, or `base` for the shipped model.
        prm: directory of a process reward model; None: no method by it.
        orm: directory of an outcome reward model, trained with `supervision = "outcome"`; None: no method by it.
        reference: the model that an implicit process reward model was trained from; empty: `prm` has a head.
        config: methods, budgets and dials.
        task: a task's name, or `file.py:Class`; None: the task of the run that the checkpoint lies in.
        split: `train`, `dev` or `test`; None: `test`, or all rows of a plain file that no run divided into splits.
        problems: at most this many, from the first; None: 200 of a split, all rows of a plain file.
        temperature: of the samples; above 0.
        max_tokens: most tokens of a completion; None: as many as in the run, else the default.
        directory: where samples, scores and figures are kept; those of other settings stay as they are.
        changes: of the sections task, verifier and sampling, as for `load_recipe`.
        progress: called now and then.

    Raises:
        ConfigError: a name or a value is unknown, a pool is smaller than a budget, or a method needs what is not there.
        DataError: a reward model cannot read a completion, or too few samples were judged.
        ModelError: a model cannot be loaded, or gives a score that is not a number.
        VerifierError: the verifier failed on too many completions.
    """
    config = config or BudgetConfig()
    if split not in (None, *SPLITS):
        raise ConfigError(f"split {split!r}: allowed are {', '.join(SPLITS)}")
    _check(config, prm is not None, orm is not None, temperature)
    context = context_of(str(checkpoint), task, {"temperature": temperature, "max_tokens": max_tokens}, changes)
    if context.task.template.chat and (prm or orm):
        raise ConfigError("task.template.chat = true: a reward model of steps reads plain prompts, so false is allowed")
    _check_tools(methods, tuple(context.sampling.tools))
    _, selection = context.problems(split, problems)
    scorers = reward_models(prm, orm, config.step, reference)
    with make_verifier(context.verifier) as verifier:
        verifier.check(selection, context.task.template)
        policy = load_policy(str(checkpoint))
        actors = Actors.of(policy, context.task.template, verifier)
        draws, folder = Draws(config.seed, Purpose(split or "test")), Path(directory)
        whole = identity(policy, context.task.template, context.verifier, selection)
        sampler = Sampler(actors, context.sampling, draws, folder, whole, progress)
        asked = {"checkpoint": str(checkpoint), "prm": _name(prm), "orm": _name(orm), "task": context.task.name}
        return measure_pooled(sampler, scorers, config, selection, asked)


def measure_pooled(
    sampler: Sampler, scorers: Mapping[Role, Scorer], config: BudgetConfig, problems: Sequence[Problem],
    asked: Mapping[str, Any],
) -> BudgetResult:  # fmt: skip
    """What `measure_budget` does once models, verifier and problems are there.

    `asked`: what was asked for, kept with the figures.

    Raises:
        ConfigError: a pool is smaller than a budget, or a method needs what is not there.
    """
    methods, budgets = _check(config, "prm" in scorers, "orm" in scorers, sampler.sampling.temperature)
    return _Measurement(config, methods, budgets, sampler, scorers, problems).result(asked)


def _check_tools(methods: Sequence[str], tools: Sequence[str]) -> None:
    """Refuse methods that look into completions and put tokens in themselves, where tools do so too."""
    whole = (GREEDY, *OF_POOLS)
    if tools and (in_pieces := [method for method in methods if method not in whole]):
        raise ConfigError(
            f"{in_pieces[0]} samples completions in pieces, and sampling.tools has {', '.join(tools)}: methods with "
            f"tools are {', '.join(whole)}"
        )


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
        result = BudgetResult(
            {**asked, **self._settings()}, measured, labels, [problem.id for problem in problems], left_out,
            _points(measured, labels), self._optimal(measured, problems), flips, self.sampler.directory,
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

    def _optimal(self, measured: Sequence[Measured], problems: Sequence[Problem]) -> list[Optimal]:
        own = self._difficulty(problems)
        found = [
            choose(
                [one for one in measured if one.budget == k and one.method not in CONTROLS],
                difficulty,
                self.config.seed,
            )
            for difficulty in difficulties([problem.difficulty for problem in problems], own)
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


def _check(
    config: BudgetConfig, has_prm: bool, has_orm: bool, temperature: float
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if not temperature > 0:
        raise ConfigError(f"temperature = {temperature}: equal samples are no pool; above 0 is allowed")
    try:
        return config.chosen(has_prm, has_orm), check_budgets(config.budgets, config.samples)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def reward_models(
    prm: str | Path | None, orm: str | Path | None, step: str, reference: str | Path = ""
) -> dict[Role, Scorer]:
    """Load those that are named.

    Raises:
        ModelError: one cannot be loaded, or is no reward model.
    """
    found: dict[Role, Scorer] = {}
    if prm is not None:
        found["prm"] = Scorer.load(str(prm), "prm", step, str(reference))
    if orm is not None:
        found["orm"] = Scorer.load(str(orm), "orm", step)
    return found


def identity(
    policy: Policy, template: Template, verifier: VerifierConfig, problems: Sequence[Problem]
) -> dict[str, Any]:
    """What completions and verdicts follow from, beside sampling, draws and their number."""
    return {
        "weights": policy.fingerprint(),
        "template": template.model_dump(mode="json"),
        "verifier": verifier.model_dump(mode="json"),
        "problems": key(*(part for problem in problems for part in _said(problem))),
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


def _name(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
