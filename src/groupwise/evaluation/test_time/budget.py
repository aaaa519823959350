"""`measure_budget`: accuracy and cost of every method at every budget. `groupwise budget` prints its table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.config import Changes
from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.checkpoints import context_of, refuse_unread
from groupwise.evaluation.test_time.chains import measure_chains, measure_cuts
from groupwise.evaluation.test_time.methods import (
    CHAINS,
    CONTROLS,
    CUT,
    GREEDY,
    SEARCHES,
    BudgetConfig,
    Pools,
    Sizes,
    measure_greedy,
    measure_pools,
)
from groupwise.evaluation.test_time.pool import Role, Sampler, Scorer, check_budgets, enough
from groupwise.evaluation.test_time.result import BudgetResult, Optimal, Point, at_equal_tokens, difficulties
from groupwise.evaluation.test_time.search import measure_search
from groupwise.models.config import ModelConfig
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose, key
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.atomic import Hold
from groupwise.runs.inputs import references
from groupwise.runs.processes import resuming
from groupwise.tasks.base import Task
from groupwise.types import Problem, Split
from groupwise.verifiers import make_verifier
from groupwise.verifiers.base import VerifierConfig


class Subject(NamedTuple):
    """The model and the problems that are measured, and how its answers are drawn and judged."""

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
    beta: float = 0.05


def measure_budget(
    checkpoint: str | Path,
    *,
    prm: str | Path | None = None,
    orm: str | Path | None = None,
    reference: str | Path = "",
    beta: float = 0.05,
    config: BudgetConfig | None = None,
    task: str | None = None,
    split: Split | None = None,
    problems: int | None = None,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    directory: str | Path = "runs/budget",
    changes: Changes = (),
) -> BudgetResult:
    """Measure test-time compute, and write the result into a directory; the same call resumes after a kill.

    Args:
        checkpoint: the model that answers: a checkpoint directory, a hub name, or `base` for the shipped model.
        prm: directory of a process reward model; None: no method by it.
        orm: directory of an outcome reward model, trained with `supervision = "outcome"`; None: no method by it.
        reference: the model that an implicit process reward model was trained from; empty: `prm` has a head.
        beta: β of an implicit one.
        config: methods, budgets and their parameters.
        task: a task's name, or `file.py:Class`; None: the task of the run that the checkpoint lies in.
        split: `train`, `dev` or `test`; None: `test`, or all rows of a plain file that no run divided into splits.
        problems: at most this many, from the first; None: 200 of a split, all rows of a plain file.
        temperature: sampling temperature, above 0.
        max_tokens: most tokens of a completion; None: as many as in the run, else the default.
        directory: folder of samples, scores and figures; those of other settings stay as they are.
        changes: changes of the sections task, verifier and sampling, as for `load_recipe`.

    Raises:
        ConfigError: a name or a value is unknown, a pool is smaller than a budget, or a method needs what is missing.
        DataError: a reward model cannot read a completion, or too few samples were judged.
        ModelError: a model cannot be loaded, or gives a score that is not a number.
        VerifierError: the verifier failed on too many completions.
    """
    config = config or BudgetConfig()
    prm_model, orm_model = (None if path is None else ModelConfig(path=str(path)) for path in (prm, orm))
    rewards = RewardModels(prm_model, orm_model, str(reference), beta)
    _checked(config, rewards, temperature)  # before a model is loaded
    refuse_unread(changes, ("task", "verifier", "sampling"))
    context = context_of(str(checkpoint), task, {"temperature": temperature, "max_tokens": max_tokens}, changes)
    _, selection = context.problems(split, problems)
    policy = ModelConfig(path=str(checkpoint))
    subject = Subject(policy, context.task, context.verifier, context.sampling, split or "test", selection)
    return measure(subject, rewards, config, Path(directory))


def measure(subject: Subject, rewards: RewardModels, config: BudgetConfig, directory: Path) -> BudgetResult:
    """Measure a subject; otherwise as `measure_budget`."""
    methods, budgets = _checked(config, rewards, subject.sampling.temperature)
    roles = [role for role, model in (("prm", rewards.prm), ("orm", rewards.orm)) if model]
    played = next((problem.id for problem in subject.problems if problem.environment), None)
    if played and (of_one := [name for name in (*roles, *methods) if name not in (GREEDY, "majority")]):
        raise ConfigError(
            f"problem {played} is played in an environment, and {of_one[0]} reads or continues a single completion: "
            f"allowed are {GREEDY} and majority, without a reward model"
        )
    scorers, chat = dict[Role, Scorer](), bool(subject.task.template.chat)
    if rewards.prm is not None:
        scorers["prm"] = Scorer.load(rewards.prm, "prm", config.step, chat, rewards.reference, rewards.beta)
    if rewards.orm is not None:
        scorers["orm"] = Scorer.load(rewards.orm, "orm", config.step, chat, "", 0.0)
    with make_verifier(subject.verifier) as verifier:
        verifier.check(subject.problems, subject.task.template)
        policy = load_policy(subject.policy)
        texts = [
            (problem.id, problem.question, problem.reference, repr(sorted(problem.data.items())))
            for problem in subject.problems
        ]
        identity = {
            "weights": policy.fingerprint(),
            "template": subject.task.template.model_dump(mode="json"),
            "verifier": subject.verifier.model_dump(mode="json"),
            "problems": key(*(text for of_problem in texts for text in of_problem)),
        }
        identity |= _judges(subject)
        actors = Actors.of(policy, subject.task.template, verifier)
        draws = Draws(config.seed, Purpose(subject.split))
        sampler = Sampler(actors, subject.sampling, draws, directory, identity)
        models = {
            "checkpoint": subject.policy.path, "prm": rewards.prm and rewards.prm.path,
            "orm": rewards.orm and rewards.orm.path, "task": subject.task.name,
        }  # fmt: skip
        with Hold(directory, "directory"), resuming(directory):
            return _result(config, methods, budgets, sampler, scorers, subject.problems, models)


def _judges(subject: Subject) -> dict[str, Any]:
    """Return what makes and judges the samples beside settings: environments, and Python of the user's own."""
    played = {p.environment.model_dump_json(): p.environment for p in subject.problems if p.environment}
    python = {
        item.taken().sha256
        for section in (subject.verifier, subject.task.template, subject.sampling, *played.values())
        for item in references(section)
        if item.makes == "python"
    }
    found = {"environments": sorted(played), "python": sorted(python)}
    return {name: value for name, value in found.items() if value}


def _checked(
    config: BudgetConfig, rewards: RewardModels, temperature: float
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if not temperature > 0:
        raise ConfigError(f"temperature = {temperature}: equal samples are no pool; above 0 is allowed")
    try:
        methods = config.chosen(rewards.prm is not None, rewards.orm is not None)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return methods, check_budgets(config.budgets, config.samples)


def _result(
    config: BudgetConfig, methods: Sequence[str], budgets: Sequence[int], sampler: Sampler,
    scorers: Mapping[Role, Scorer], problems: Sequence[Problem], models: Mapping[str, Any],
) -> BudgetResult:  # fmt: skip
    pools = _pools(config, sampler, scorers, problems, config.samples)
    kept, left_out = enough(pools.pools, max(budgets))
    problems, pools = [problems[index] for index in kept], pools.only(kept)
    measured, flips = [*measure_pools(pools, budgets, methods)], list[Mapping[str, Any]]()
    for method in methods:
        if method == GREEDY:
            measured.append(measure_greedy(sampler.greedy(problems), pools.sizes))
        elif method in SEARCHES:
            measured += measure_search(method, sampler, scorers["prm"], problems, config, pools.sizes)
        elif method in CHAINS:
            of_chains, changed = measure_chains(method, sampler, scorers.get("prm"), problems, config, pools.sizes)
            measured += of_chains
            flips += changed
        elif method == CUT:
            measured += measure_cuts(sampler, problems, config, pools.sizes)
    labels = [problem.difficulty for problem in problems]
    others = None
    if config.difficulty_samples:
        others = _pools(config, sampler.drawing("difficulty"), scorers, problems, config.difficulty_samples)
        if empty := [pool.problem.id for pool in others.pools if not pool.samples]:
            raise DataError(f"the verifier judged no sample that tells the difficulty of {empty[0]}: ask for more")
    ways = difficulties(labels, others)
    choices = [
        Optimal.of([m for m in measured if m.budget == k and m.method not in CONTROLS], way, config.seed)
        for way in ways
        for k in budgets
    ]
    named = {(method.method, method.budget): method for method in measured}
    points = [
        Point.of(method, labels, named.get(("majority", method.budget)), named.get((CONTROLS[0], method.budget)))
        for method in measured
    ]
    settings = {
        **models, **config.model_dump(mode="json"), "methods": list(methods),
        "weights": sampler.actors.policy.fingerprint(),
        **{f"{role}_weights": scorer.fingerprint for role, scorer in scorers.items()},
    }  # fmt: skip
    result = BudgetResult(
        settings, measured, labels, [problem.id for problem in problems], left_out, points,
        [choice for choice in choices if choice is not None], flips, sampler.directory,
        at_equal_tokens(measured, pools, config.aggregate, ways),
    )  # fmt: skip
    result.write()
    return result


def _pools(
    config: BudgetConfig, sampler: Sampler, scorers: Mapping[Role, Scorer], problems: Sequence[Problem], number: int
) -> Pools:
    pools, sampled = sampler.pools(problems, number), sampler.identity_of(number)
    scored = {role: scorer.pools(pools, sampler.directory, sampled) for role, scorer in scorers.items()}
    rewards = {role: scorer.num_parameters for role, scorer in scorers.items()}
    return Pools(pools, scored, Sizes(sampler.actors.policy.num_parameters, rewards), config.seed)
