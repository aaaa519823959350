"""The preflight of a recipe: `CHECKS` is the one table of checks.

Those that cost nothing are done by every `groupwise train`; `groupwise preflight` does them all.
"""

import time
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.preflight.bench import Bench, Check, Checked, Cost, Preflight, PreflightOptions
from groupwise.checks.preflight.data import DATA, PROMPTS
from groupwise.checks.preflight.judging import JUDGING
from groupwise.checks.preflight.machine import MACHINE, SETTINGS
from groupwise.checks.preflight.rehearsal import REHEARSAL
from groupwise.checks.preflight.sample import SAMPLE
from groupwise.errors import ConfigError, GroupwiseError, ModelError
from groupwise.runs.progress import counted
from groupwise.trainers.base import Recipe, with_chat, with_precision
from groupwise.trainers.rl_recipe import RlRecipe

OnCheck = Callable[[str, Preflight], None]
CHECKS: dict[str, Check] = {
    check.name: check for check in (SETTINGS, DATA, MACHINE, JUDGING, PROMPTS, SAMPLE, REHEARSAL)
}
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
    findings: list[Finding] = []
    figures: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    not_done = dict.fromkeys(leave_out, "left out")
    wanted = [check for check in CHECKS.values() if check.name not in leave_out and check.cost in costs]

    def result() -> Preflight:
        ordered = tuple(sorted(findings, key=lambda finding: -finding.severity.rank))
        return Preflight(findings=ordered, figures=figures, not_done=not_done, seconds=seconds)

    with Bench(recipe, options) as bench:
        for check in counted("checks", wanted, len(wanted)):
            critical = {finding.check for finding in findings if finding.severity is Severity.CRITICAL}
            if MACHINE.name in critical and check.cost in NEEDS_MEMORY:
                not_done[check.name] = "the machine would not bear it"
                continue
            if SAMPLE.name in critical and check.cost == "step":
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


__all__ = ["CHECKS", "Check", "Cost", "Finding", "Preflight", "PreflightOptions", "Severity", "preflight"]
