"""Pipelines: stages of training and data, run in order from one recipe; resumable, with recorded lineage.

To add a kind of stage: a file with its class, and a line in `STAGES`. A stage in your file needs no line:
`kind = "my_stage.py:MyStage"`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from groupwise import config
from groupwise.config.kinds import Allowed, Choices
from groupwise.config.places import beside
from groupwise.config.schema import named, stage_of
from groupwise.errors import ConfigError, GroupwiseError, told_as
from groupwise.pipeline.base import Source, Stage
from groupwise.pipeline.plan import Action, Planned, plan
from groupwise.pipeline.recipe import BASE, PipelineRecipe
from groupwise.pipeline.runner import Display, run_pipeline
from groupwise.runs.directory import seed_directory
from groupwise.runs.processes import many

AnyStage = Stage[Any]
STAGES = Choices(
    "stage",
    {
        "train": "groupwise.pipeline.train:Train",
        "cold_start": "groupwise.pipeline.cold_start:ColdStart",
        "rejection_sampling": "groupwise.pipeline.rejection_sampling:RejectionSampling",
        "tool_integrated": "groupwise.pipeline.tool_integrated:ToolIntegrated",
        "play": "groupwise.pipeline.play:Play",
        "step_labels": "groupwise.pipeline.step_labels:StepLabels",
        "recall": "groupwise.pipeline.recall:RecallStage",
        "step_evaluation": "groupwise.pipeline.step_evaluation:StepEvaluation",
        "budget": "groupwise.pipeline.budget:BudgetStage",
    },
    allowed=Allowed(lambda part: isinstance(part, type) and issubclass(part, Stage), "a class that is a Stage"),
)


def load_pipeline(source: config.Source, changes: config.Changes = ()) -> tuple[PipelineRecipe, list[AnyStage]]:
    """Read a pipeline's recipe, apply changes and check every stage before the first one runs.

    >>> run_pipeline(*load_pipeline("recipes/r1.toml", {"pipeline.directory": "runs/mine"}))  # doctest: +SKIP
    True

    Args:
        source: a TOML file with [stages], or its tables as nested dictionaries.
        changes: values by dotted key, or `a.b=c` texts as after `--set`.

    Returns:
        The recipe and its stages in order, for `run_pipeline` and `plan`.

    Raises:
        ConfigError: the file, a key, a value, or a reference to a stage cannot be used.
    """
    recipe = config.load(PipelineRecipe, source, changes)
    folder = config.named(source)[1]
    stages: list[AnyStage] = []
    for name, table in recipe.stages.items():
        place = Source(name, {key: value for key, value in table.items() if key != "kind"}, recipe, folder)
        kind, where = table.get("kind", "train"), place.where
        if not isinstance(kind, str):
            raise ConfigError(f"{where}.kind = {kind!r}; allowed are {', '.join(STAGES.table)}, file.py:name")
        with told_as(ConfigError, f"{where}.kind", ConfigError):
            kind = beside(kind, folder)
            stage_class: type[AnyStage] = STAGES.find(kind)
        stage = stage_class.read(kind, place)
        if name == BASE:
            raise ConfigError(f"stages.{BASE}: this name means the base model; any other is allowed")
        makes = {earlier.name: earlier.makes for earlier in stages}
        for reference in named(stage.config):
            read, at = stage_of(reference.value), f"stages.{name}.{reference.key} = {reference.value!r}"
            if read is not None and read not in makes:
                is_later = read in recipe.stages
                fault = f"the stage {read} does not come before it" if is_later else f"there is no stage {read!r}"
                raise ConfigError(f"{at}: {fault}; before it come {', '.join((BASE, *makes))}")
            if read is not None and makes[read] != reference.makes:
                needed, actual = (kind.replace("_", " ") for kind in (str(reference.makes), makes[read]))
                raise ConfigError(f"{at}: {needed} is read here, but the stage {read} makes {actual}")
        stages.append(stage)
    return recipe, stages


RunSeed = Callable[[int, PipelineRecipe, Sequence[AnyStage]], bool]
OnLine = Callable[[str, str], None]


def run_seeds(
    source: config.Source,
    changes: config.Changes = (),
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
        seeds: number of seeds.
        jobs: seeds that run at one time, in a process each that is `groupwise pipeline` and also writes the report of
            its seed; 1: in this process, one after the other.
        only: run nothing but the stage of this name.
        start: run the stage of this name again, and all that depends on it, finished or not.
        run_seed: with one job, runs a seed; None: `run_pipeline`, which shows nothing.
        on_line: called with every line that the processes print.

    Returns:
        False after an interrupt (Ctrl-C), after which the same call resumes.

    Raises:
        ConfigError: the recipe cannot be used, there are more jobs than seeds, or several jobs and no file.
        GroupwiseError: a seed failed. With several jobs the other seeds are finished first.
    """
    check_jobs(seeds, jobs)
    directory = config.load(PipelineRecipe, source, changes).pipeline.directory
    overrides = []
    for seed in range(seeds):
        place = {"pipeline.seed": seed, "pipeline.directory": str(seed_directory(directory, seed))}
        overrides.append((*config.as_overrides(changes), *config.as_overrides(place)))
    if jobs == 1:
        run = run_seed or (lambda seed, recipe, stages: run_pipeline(recipe, stages, only=only, start=start))
        return all(run(seed, *load_pipeline(source, of_seed)) for seed, of_seed in enumerate(overrides))
    if isinstance(source, Mapping):
        raise ConfigError(f"jobs = {jobs}: each process reads the recipe from its file, and these are tables")
    options = [(option, value) for option, value in (("--only", only), ("--from", start)) if value]
    commands = {}
    for seed, of_seed in enumerate(overrides):
        settings = chain(*(("--set", text) for text in of_seed))
        commands[f"seed {seed}"] = ["pipeline", config.named(source)[0], *chain(*options), *settings]
    return run_at_once(commands, jobs, on_line)


def check_jobs(seeds: int, jobs: int) -> None:
    """Refuse more jobs than there are seeds."""
    if jobs > seeds:
        raise ConfigError(f"jobs = {jobs} with seeds = {seeds}: at most as many jobs as seeds are allowed")


def run_at_once(commands: Mapping[str, Sequence[str]], jobs: int, on_line: OnLine) -> bool:
    """Run `groupwise` with each of these arguments, `jobs` at a time; return False after Ctrl-C."""
    try:
        faults = many(list(commands), jobs, lambda name, children: children.run(commands[name], partial(on_line, name)))
    except KeyboardInterrupt:
        return False
    if failures := [f"{name}: {fault}" for name, fault in zip(commands, faults, strict=True) if fault]:
        raise GroupwiseError("; ".join(failures))
    return True


__all__ = [
    "STAGES", "Action", "AnyStage", "Display", "PipelineRecipe", "Planned", "Stage", "load_pipeline", "plan",
    "run_pipeline", "run_seeds",
]  # fmt: skip
