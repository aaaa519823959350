"""Runs what results are missing, in pieces that survive a kill: a run directory, then each evaluation, then its line.

Killed anywhere, the same call goes on: a training resumes at its last checkpoint, a pipeline in its stage, an
evaluation that was written is read, and a result that was kept is not measured again.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.pipeline import load_pipeline
from groupwise.pipeline.directory import PipelineDirectory
from groupwise.runs.directory import environment
from groupwise.runs.processes import Children, many
from groupwise.trainers import recorded_recipe
from groupwise_lab.claims.arms import ArmRun, Marks, code_mark, recipe_mark
from groupwise_lab.claims.config import Claim, Ledger
from groupwise_lab.claims.measure import evaluation_metrics, pipeline_metrics, training_metrics
from groupwise_lab.claims.results import Result, Results, keep_result, read_results

Measure = Callable[["Job"], dict[str, float]]
"""Runs a job, or goes on with it, and returns its metrics."""
OnJob = Callable[["Job", int, int], None]
"""Called with (job, jobs done, jobs in all) after each."""


@dataclass(frozen=True, slots=True)
class Job:
    """One result that is missing."""

    run: ArmRun
    marks: Marks
    """Of today."""
    wanted: tuple[str, ...]
    """Metrics that claims ask for."""
    finished: Path | None = None
    """A finished run or pipeline elsewhere, which is read and not run."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the command line."""

    ledger: Ledger
    claims: Mapping[str, Claim]
    seeds: int = 0
    """Of every claim; 0: as many as the ledger runs it with."""
    jobs: int = 1
    rerun: bool = False
    """Delete runs and results of these claims first."""
    arms: tuple[str, ...] = ()
    """Nothing but these arms; empty: all that the claims name."""
    finished: Mapping[str, str] = field(default_factory=dict)
    """By arm, where finished runs are that are read instead of run; `{seed}` stands for the seed."""

    @property
    def folder(self) -> Path:
        """Of the ledger."""
        return Path(self.ledger.folder)


def arm_run(ledger: Ledger, arm: str, seed: int) -> ArmRun:
    """An arm of a ledger with a seed."""
    home = Path(ledger.arms.directory) / arm / f"seed-{seed}"
    return ArmRun(arm, ledger.arms.arms[arm], seed, Path(ledger.folder), home)


def wanted(ledger: Ledger, arm: str) -> tuple[str, ...]:
    """All metrics of an arm that claims of the ledger name, in order."""
    names = [measured for claim in ledger.claims.values() for measured in claim.statistic.measured]
    return tuple(sorted({measured.metric for measured in names if measured.arm == arm}))


def missing(request: Request) -> list[Job]:
    """Return the runs to start or read, cheapest first, all arms of a seed before the next seed.

    Raises:
        ConfigError: an arm is unknown, or a recipe cannot be used.
    """
    ledger = request.ledger
    if unknown := [name for name in (*request.arms, *request.finished) if name not in ledger.arms.arms]:
        raise ConfigError(f"there is no arm {unknown[0]!r}; there are {', '.join(ledger.arms.arms)}")
    results = read_results(request.folder, ledger.arms.arms)
    seeds: dict[str, int] = {}
    for claim in request.claims.values():
        for arm in claim.arms:
            seeds[arm] = max(seeds.get(arm, 0), request.seeds or ledger.seeds_of(claim))
    jobs = []
    for arm, count in seeds.items():
        if request.arms and arm not in request.arms:
            continue
        marks = arm_run(ledger, arm, 0).marks()
        for seed in range(count):
            if request.rerun or not _is_there(results, arm, seed, marks, wanted(ledger, arm)):
                finished = request.finished.get(arm)
                place = Path(finished.format(seed=seed)) if finished else None
                if place is None or place.exists():
                    jobs.append(Job(arm_run(ledger, arm, seed), marks, wanted(ledger, arm), place))
    return sorted(jobs, key=lambda job: (job.run.seed, job.run.arm.minutes))


def _is_there(results: Results, arm: str, seed: int, marks: Marks, names: Iterable[str]) -> bool:
    result = results.get((arm, seed))
    return result is not None and not staleness(result, marks) and all(name in result.metrics for name in names)


def codes_of_today(ledger: Ledger, claims: Mapping[str, Claim]) -> dict[str, str]:
    """Today's mark of the code by arm, of every arm that the claims name."""
    arms = dict.fromkeys(arm for claim in claims.values() for arm in claim.arms)
    return {arm: code_mark(arm_run(ledger, arm, 0)) for arm in arms}


def staleness(result: Result, today: Marks) -> str:
    """Return the reason for which a result is stale; empty where it is not.

    Other code alone does not make it so, as most changes of code change no number; `claims --list` counts such results.
    """
    faults = [
        f"its {name} is {ours}, today's is {theirs}"
        for name, ours, theirs in (("recipe", result.recipe, today.recipe), ("base model", result.base, today.base))
        if ours != theirs
    ]
    return "; ".join(faults)


def run_missing(request: Request, on_job: OnJob = lambda job, done, total: None, measure: Measure | None = None) -> int:
    """Measure what is missing and keep each result; returns how many.

    Raises:
        ConfigError: a recipe cannot be used, or a finished run is of another one; said before anything runs.
        GroupwiseError: a run failed; the results before it are kept.
    """
    jobs = missing(request)
    if request.rerun:
        for job in jobs:
            shutil.rmtree(job.run.home, ignore_errors=True)
    for job in jobs:
        if job.finished is not None:
            check_finished(job)
    codes = {arm: code_mark(arm_run(request.ledger, arm, 0)) for arm in {job.run.name for job in jobs}}

    def work(job: Job, children: Children) -> None:
        keep_result(request.folder, result_of(job, measure or partial(measured, children), codes[job.run.name]))

    many(jobs, request.jobs, work, lambda job, done: on_job(job, done, len(jobs)))
    return len(jobs)


def result_of(job: Job, measure: Measure, code: str) -> Result:
    """Measure a job and say with what."""
    metrics, marks = measure(job), job.marks
    if absent := [name for name in job.wanted if name not in metrics]:
        raise GroupwiseError(
            f"arm {job.run.name!r}, seed {job.run.seed}, has no {absent[0]!r}, which a claim names; it has "
            f"{', '.join(sorted(metrics))}"
        )
    code = code if job.finished is None else _recorded_code(job.finished)
    return Result(
        arm=job.run.name, seed=job.run.seed, recipe=marks.recipe, base=marks.base, code=code,
        minutes=round(metrics.pop("minutes", 0.0), 2), machine=_machine(), metrics=dict(sorted(metrics.items())),
    )  # fmt: skip


def _recorded_code(place: Path) -> str:
    """The commit that a finished run elsewhere says it was made with."""
    path = place / "environment.json"
    facts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return f"commit {str(facts.get('commit') or 'unknown')[:10]}"


def _machine() -> str:
    return f"{environment()['processor']}, torch {metadata.version('torch')}"


def measured(children: Children, job: Job) -> dict[str, float]:
    """Run a job to its end, or go on with it, and measure it."""
    run, place = job.run, job.finished or job.run.directory
    if job.finished is None and run.arm.kind != "model":
        _run(children, job)
    if run.arm.kind == "pipeline":
        return pipeline_metrics(place, job.wanted)
    own = training_metrics(place) if run.arm.kind == "train" else {}
    for name, evaluation in run.arm.evaluations.items():
        own |= evaluation_metrics(run, place, name, evaluation)
    seconds = own.get("whole.processor_s", 0.0)
    return own | {"minutes": seconds / 60}


def _run(children: Children, job: Job) -> None:
    """A process of its own, so that a kill of this one loses nothing and its memory is its own."""
    finished = job.run.directory / "finished.json"
    if job.run.arm.kind == "train" and finished.exists():
        return
    job.run.home.mkdir(parents=True, exist_ok=True)
    with (job.run.home / "log.txt").open("a", encoding="utf-8", buffering=1) as log:
        fault = children.run(job.run.command, lambda line: print(line, file=log))
    if fault and not finished.exists():  # one that a killed call left behind may have finished it
        raise GroupwiseError(f"{job.run.directory} failed: {fault}")


def check_finished(job: Job) -> None:
    """A finished run elsewhere is of this arm's recipe.

    Raises:
        ConfigError: it is not.
    """
    recipe, place = job.run.recipe(), job.finished
    if place is None or recipe is None:
        raise ConfigError(f"arm {job.run.name!r} runs nothing, so there is no finished run to read")
    is_pipeline = job.run.arm.kind == "pipeline"
    found = load_pipeline(PipelineDirectory(place).recipe)[0] if is_pipeline else recorded_recipe(place / "config.toml")
    if recipe_mark(found, job.run.folder) != recipe_mark(recipe, job.run.folder):
        raise ConfigError(
            f"{place} was made by another recipe than arm {job.run.name!r} has today; run the arm instead"
        )


def stale(ledger: Ledger) -> list[str]:
    """Results that belong to another recipe or another base model, one sentence each, with what to run."""
    faults = []
    results = read_results(Path(ledger.folder), ledger.arms.arms)
    marks = {arm: arm_run(ledger, arm, 0).marks() for arm in {arm for arm, _ in results}}
    for (arm, seed), result in results.items():
        if why := staleness(result, marks[arm]):
            faults.append(f"arm {arm!r}, seed {seed}: {why}; run `groupwise claims --arm {arm}`")
    return faults
