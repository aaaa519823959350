"""`groupwise preflight`: GO, GO WITH WARNINGS or NO-GO, and why; and what `groupwise train` says before it begins."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from groupwise.checks.preflight import Cost, Finding, Level, Preflight, PreflightOptions, preflight
from groupwise.checks.preflight.stages import StageChecked, preflight_stages, verdict
from groupwise.config import read_recipe
from groupwise.errors import ConfigError
from groupwise.models.loading import quiet_transformers
from groupwise.pipeline import load_pipeline
from groupwise.runs.atomic import write_file
from groupwise.trainers import load_recipe
from groupwise.trainers.base import Recipe
from groupwise.trainers.rl_recipe import RlRecipe

STYLES = {Level.NOTE: "cyan", Level.WARNING: "yellow", Level.NO_GO: "bold red"}
VERDICTS = {"GO": "bold green", "GO WITH WARNINGS": "bold yellow", "NO-GO": "bold red"}
FREE: tuple[Cost, ...] = ("free",)
STAGES = "stages"
"""The table that makes a recipe a pipeline."""
REFUSED = 2
"""Exit status of NO-GO, as of a recipe that cannot be read."""


def run_preflight(
    path: Path, overrides: Sequence[str], options: PreflightOptions, leave_out: Sequence[str], write: Path | None,
    console: Console, as_json: bool,
) -> int:  # fmt: skip
    """Check a recipe and print what was found; returns the exit status."""
    quiet_transformers()
    if STAGES in read_recipe(path, overrides):
        return _run_stages(path, overrides, options, leave_out, write, console, as_json)
    recipe = load_recipe(path, overrides)
    result = preflight(recipe, options, leave_out)
    text = json.dumps({"recipe": str(path), **result.facts()}, ensure_ascii=False, indent=1)
    if write:
        write_file(write, text.encode() + b"\n")
    if as_json:
        print(text)
    else:
        show(path, result, console)
    return REFUSED if result.verdict == "NO-GO" else 0


def _run_stages(
    path: Path, overrides: Sequence[str], options: PreflightOptions, leave_out: Sequence[str], write: Path | None,
    console: Console, as_json: bool,
) -> int:  # fmt: skip
    """The same of a pipeline, stage by stage; the verdict is that of the worst stage."""
    recipe, stages = load_pipeline(path, overrides)
    base = recipe.model.path
    checked = preflight_stages(stages, Path(recipe.pipeline.directory), base, options, leave_out)
    facts = {
        "recipe": str(path),
        "verdict": verdict(checked),
        "stages": {one.name: one.found.facts() for one in checked},
    }
    text = json.dumps(facts, ensure_ascii=False, indent=1)
    if write:
        write_file(write, text.encode() + b"\n")
    if as_json:
        print(text)
    else:
        took = sum(sum(one.found.seconds.values()) for one in checked)
        console.print(Text.assemble((verdict(checked), VERDICTS[verdict(checked)]), f"  {path}, {took:.0f} s"))
        for one in checked:
            _show_stage(one, console)
    return REFUSED if verdict(checked) == "NO-GO" else 0


def _show_stage(checked: StageChecked, console: Console) -> None:
    found = checked.found
    head = f"\n{checked.name}  ({checked.does})  "
    console.print(Text.assemble((head, "bold"), (found.verdict, VERDICTS[found.verdict])))
    for finding in found.findings:
        console.print(block(finding), soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for name, why in found.not_done.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        console.print(Text(f"  not done: {', '.join(names)} ({why})", style="dim"), soft_wrap=True)


def show(path: Path, result: Preflight, console: Console) -> None:
    """The verdict, the findings, then the figures of every check."""
    took = f"{sum(result.seconds.values()):.0f} s"
    console.print(Text.assemble((result.verdict, VERDICTS[result.verdict]), f"  {path}, {took}"))
    for finding in result.findings:
        console.print()
        console.print(block(finding), soft_wrap=True)
    for name, figures in result.figures.items():
        if figures:
            console.print()
            console.print(Text.assemble((name, "bold"), (f"  {result.seconds[name]:.1f} s", "dim")))
            _print_figures(figures, console)
    if result.not_done:
        said = "; ".join(f"{name} ({why})" for name, why in result.not_done.items())
        console.print(Text(f"\nNot done: {said}", style="dim"), soft_wrap=True)


def _print_figures(figures: Mapping[str, Any], console: Console) -> None:
    width = max(map(len, figures))
    for name, value in figures.items():
        said = ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else value
        said = ", ".join(map(str, said)) if isinstance(said, list) else str(said)
        console.print(Text(f"  {name:{width}}  {visible(said)}"), soft_wrap=True)


def visible(text: str) -> str:
    """A text in one line: what is not printable is shown as its number."""
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else f"\\u{ord(c):04x}" for c in text)


def block(finding: Finding) -> Text:
    """A finding in a few lines. Text alone: what a model or a file wrote is never markup."""
    lines = Text.assemble((f"{finding.level}  ", STYLES[finding.level]), (visible(finding.evidence), "bold"),
                          (f"  {finding.check}", "dim"))  # fmt: skip
    lines.append(f"\n  {finding.means}")
    if finding.places:
        lines.append(f"\n  see  {visible(', '.join(finding.places))}", "dim")
    for one in finding.change:
        lines.append(f"\n  try  {one.key}: {one.change}" if one.key else f"\n  try  {one.change}")
    return lines


def before_training(recipe: Recipe, anyway: bool, console: Console) -> None:
    """The checks that cost nothing, before a run; notes are left to `groupwise preflight`.

    Raises:
        ConfigError: one of them says that the run must not begin, and `anyway` does not say otherwise.
    """
    if not isinstance(recipe, RlRecipe):
        return
    found = [one for one in preflight(recipe, costs=FREE).findings if not one.is_error]  # the run says errors itself
    for finding in found:
        if finding.level is not Level.NOTE:
            console.print(block(finding), soft_wrap=True)
    refused = [finding for finding in found if finding.level is Level.NO_GO]
    if refused and not anyway:
        raise ConfigError(
            f"this run must not begin: {refused[0].evidence}; mend it, or train in spite of it with --anyway"
        )
