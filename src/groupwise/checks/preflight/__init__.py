"""The preflight of a recipe: `CHECKS` is the one table of checks.

Those that cost nothing are done by every `groupwise train`; `groupwise preflight` does them all.

The preflight of a pipeline: each stage as far as it can be judged before the stages in front of it have run.

A stage whose model an earlier stage makes is checked without it: sizes are those of the base model, and checks that
need the model are not done. Stages that are no reinforcement learning have checks of their settings and files.
"""

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.preflight import data, judging, machine, rehearsal, sample
from groupwise.checks.preflight.bench import Bench, Check, Checked, Cost, Preflight, PreflightOptions, finding
from groupwise.config.schema import SHIPPED, located, named, resolve, stage_of
from groupwise.errors import ConfigError, GroupwiseError, ModelError
from groupwise.runs.progress import counted
from groupwise.trainers.base import Recipe, with_chat, with_precision
from groupwise.trainers.rl_recipe import RlRecipe

OnCheck = Callable[[str, Preflight], None]
CHECKS: dict[str, Check] = {
    check.name: check
    for check in (machine.settings, data.data, machine.machine, judging.judging, data.prompts, sample.sample,
                  rehearsal.rehearsal)
}  # fmt: skip
NEEDS_MEMORY: frozenset[Cost] = frozenset({"model", "step"})


def preflight(
    recipe: Recipe,
    options: PreflightOptions = PreflightOptions(),  # noqa: B008  frozen
    leave_out: Collection[str] = (),
    costs: Collection[Cost] = ("free", "verifier", "model", "step"),
    on_check: OnCheck = lambda check, result: None,
) -> Preflight:
    """Check a recipe of reinforcement learning before it is trained. It is `groupwise preflight`.

    >>> preflight(load_recipe("recipes/arithmetic.toml")).verdict  # doctest: +SKIP
    'GO'

    Args:
        recipe: what `load_recipe` gives.
        options: how much is sampled, and what time costs.
        leave_out: names of checks that are not done.
        costs: kinds of checks that are done.
        on_check: called with the name of every check that is done, and the result so far.

    Raises:
        ConfigError: the recipe is none of reinforcement learning, or there is no such check.
    """
    if not isinstance(recipe, RlRecipe):
        raise ConfigError(f"a preflight is for reinforcement learning, not for algorithm = {recipe.algorithm!r}")
    if unknown := [name for name in leave_out if name not in CHECKS]:
        raise ConfigError(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    if not set(costs).isdisjoint(NEEDS_MEMORY):
        with suppress(ModelError):  # which the check that loads the model reports
            recipe = with_precision(with_chat(recipe))
    findings, figures, seconds = list[Finding](), dict[str, Any](), dict[str, float]()
    not_done = dict.fromkeys(leave_out, "left out")
    wanted = [check for check in CHECKS.values() if check.name not in leave_out and check.cost in costs]

    def result() -> Preflight:
        ordered = tuple(sorted(findings, key=lambda finding: -finding.severity.rank))
        return Preflight(findings=ordered, figures=figures, not_done=not_done, seconds=seconds)

    with Bench(recipe, options) as bench:
        for check in counted("checks", wanted, len(wanted)):
            critical = {finding.check for finding in findings if finding.severity is Severity.CRITICAL}
            if machine.machine.name in critical and check.cost in NEEDS_MEMORY:
                not_done[check.name] = "the machine would not bear it"
                continue
            if sample.sample.name in critical and check.cost == "step":
                not_done[check.name] = "there is nothing to learn"
                continue
            began = time.perf_counter()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what warnings say, findings say with numbers
                    checked = check.run(bench)
            except GroupwiseError as error:
                ending = Finding(
                    check=check.name, severity=Severity.CRITICAL, evidence=str(error), is_error=True,
                    means="The run would end with this error.", advice=(Advice("", "what the message says"),),
                )  # fmt: skip
                checked = Checked({}, (ending,))
            seconds[check.name] = time.perf_counter() - began
            known = {finding.evidence for finding in findings}
            findings += [replace(found, check=check.name) for found in checked.findings if found.evidence not in known]
            figures[check.name] = checked.figures
            if checked.not_done:
                not_done[check.name] = checked.not_done
            on_check(check.name, result())
    return result()


ALWAYS: tuple[Cost, ...] = ("free", "verifier")  # costs of the checks of a stage whose model does not exist yet
EVERYTHING: tuple[Cost, ...] = ("free", "verifier", "model", "step")


class StageChecked(NamedTuple):
    """Result of one stage."""

    name: str
    does: str  # its kind, or the algorithm that it trains with
    found: Preflight


def preflight_stages(
    stages: Sequence[tuple[str, str, BaseModel]],
    directory: Path,
    base: str = SHIPPED,
    options: PreflightOptions = PreflightOptions(),  # noqa: B008  frozen
    leave_out: Collection[str] = (),
) -> list[StageChecked]:
    """Check the stages of a pipeline, in order: the name, the kind and the settings of each.

    `directory` is the pipeline's, for the disk that is looked at; `base` the model that everything starts from: sizes
    of models that stages will make are taken for its.
    """
    stand_ins = {name: base for name, _, _ in stages}
    heavy = [name for name, check in CHECKS.items() if check.cost not in ALWAYS]
    results = []
    for stage, kind, config in stages:
        does = config.algorithm if isinstance(config, Recipe) else kind.replace("_", " ")
        missing = tuple(
            finding(
                Severity.CRITICAL, f"{key} = {value!r} is not there", "The stage ends with an error when it begins.",
                Advice(key, "a path that is there, or `{name}` of a stage that makes it"),
            )
            for key, value, makes in named(config)
            if value and not stage_of(value) and value != SHIPPED and not Path(resolve(value)).exists()
            # a name of the hub is left to the stage
            if makes == "data" or value.startswith((".", "/", "~")) or value.count("/") != 1
        )  # fmt: skip
        if not isinstance(config, RlRecipe):
            rates = list(machine.schedule(config)) if isinstance(config, Recipe) else []
            results.append(StageChecked(stage, does, Preflight(findings=(*missing, *rates), figures={})))
            continue
        makes = {reference.key: reference.makes for reference in named(config)}
        made = {reference.key: name for reference in named(config) if (name := stage_of(reference.value)) is not None}
        later = [f"{key} is made by the stage {name}" for key, name in made.items()]
        where = config.run.model_copy(update={"directory": str(directory / "stages" / stage / "run")})
        recipe = located(config, stand_ins).model_copy(update={"run": where})
        if unmade := [text for key, text in zip(made, later, strict=True) if makes[key] == "data"]:
            result = Preflight(findings=missing, figures={}, not_done=dict.fromkeys(CHECKS, unmade[0]))
        else:
            result = preflight(recipe, options, leave_out, ALWAYS if made else EVERYTHING)
            ranked = sorted((*missing, *result.findings), key=lambda finding: -finding.severity.rank)
            not_done = {**(dict.fromkeys(heavy, later[0]) if later else {}), **result.not_done}
            result = replace(result, findings=tuple(ranked), not_done=not_done)
        results.append(StageChecked(stage, does, result))
    return results


__all__ = ["CHECKS", "Check", "Cost", "Finding", "Preflight", "PreflightOptions", "Severity", "preflight"]
