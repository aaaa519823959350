"""One pipeline with several seeds: one after the other, or some at a time, a process each with its share of the CPU."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

from groupwise.config import Changes, Source, as_overrides, load, named
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.pipeline import AnyStage, load_pipeline
from groupwise.pipeline.recipe import PipelineRecipe
from groupwise.pipeline.runner import run_pipeline
from groupwise.runs.directory import seed_directory
from groupwise.runs.many import many

RunSeed = Callable[[int, PipelineRecipe, Sequence[AnyStage]], bool]
"""Runs the pipeline of a seed; returns whether it came to its end."""
OnLine = Callable[[str, str], None]
"""Called with `seed N`, and a line that its process printed."""


def run_seeds(
    source: Source,
    changes: Changes = (),
    *,
    seeds: int,
    jobs: int = 1,
    only: str | None = None,
    start: str | None = None,
    run_seed: RunSeed | None = None,
    on_line: OnLine = lambda name, line: None,
) -> bool:
    """Run a pipeline with seeds 0, 1, ..., each in the folder `seed-N` of its directory. It is `groupwise pipeline`.

    >>> run_seeds("recipes/r1.toml", {"pipeline.directory": "runs/mine"}, seeds=4, jobs=2)  # doctest: +SKIP
    True

    Args:
        source: a TOML file with [stages]; where `jobs` is 1, its tables will do.
        changes: for all seeds, as for `load_pipeline`.
        seeds: how many.
        jobs: seeds that run at one time, in a process each that is `groupwise pipeline` and also writes the report of
            its seed; 1: in this process, one after the other.
        only: run nothing but the stage of this name.
        start: run the stage of this name again, and all that depends on it, finished or not.
        run_seed: where `jobs` is 1, what runs a seed; None: `run_pipeline`, which shows nothing.
        on_line: called with what the processes print.

    Returns:
        Whether all came to their end: False if they were interrupted (Ctrl-C), so that the same call resumes there.

    Raises:
        ConfigError: the recipe cannot be used, there are more jobs than seeds, or several jobs and no file.
        GroupwiseError: a seed failed. In processes of their own the other seeds are run to their end first.
    """
    check_jobs(seeds, jobs)
    directory = load(PipelineRecipe, source, changes).pipeline.directory
    overrides = [(*as_overrides(changes), *_own(directory, seed)) for seed in range(seeds)]
    if jobs == 1:
        run = run_seed or (lambda seed, recipe, stages: run_pipeline(recipe, stages, only=only, start=start))
        return all(run(seed, *load_pipeline(source, own)) for seed, own in enumerate(overrides))
    if isinstance(source, Mapping):
        raise ConfigError(f"jobs = {jobs}: each process reads the recipe from its file, and these are tables")
    options = [(option, value) for option, value in (("--only", only), ("--from", start)) if value]
    commands = {
        f"seed {seed}": ["pipeline", named(source)[0], *chain(*options), *chain(*(("--set", text) for text in own))]
        for seed, own in enumerate(overrides)
    }
    return run_at_once(commands, jobs, on_line)


def check_jobs(seeds: int, jobs: int) -> None:
    """Refuse more jobs than there are seeds.

    Raises:
        ConfigError: there are more.
    """
    if jobs > seeds:
        raise ConfigError(f"jobs = {jobs} with seeds = {seeds}: at most as many jobs as seeds are allowed")


def _own(directory: str, seed: int) -> tuple[str, str]:
    """What a seed changes in the recipe."""
    return f"pipeline.seed={seed}", f"pipeline.directory={json.dumps(str(seed_directory(directory, seed)))}"


def run_at_once(commands: Mapping[str, Sequence[str]], jobs: int, on_line: OnLine) -> bool:
    """Run `groupwise` with each of these arguments, `jobs` at a time; returns False if Ctrl-C stopped them.

    Raises:
        GroupwiseError: some failed; the others were run to their end before.
    """
    try:
        faults = many(list(commands), jobs, lambda name, children: children.run(commands[name], partial(on_line, name)))
    except KeyboardInterrupt:
        return False
    if failures := [f"{name}: {fault}" for name, fault in zip(commands, faults, strict=True) if fault]:
        raise GroupwiseError("; ".join(failures))
    return True
