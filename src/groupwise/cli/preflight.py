"""`groupwise preflight`: GO, GO WITH WARNINGS or NO-GO, and why; the memory a recipe needs; checks before training."""

import json as json_module
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from groupwise.checks import Severity, visible
from groupwise.cli.app import Json, Overrides, app, console, refuse, table_of

if TYPE_CHECKING:
    from groupwise.checks.preflight import Preflight, PreflightOptions
    from groupwise.trainers.base import Recipe

VERDICTS = {"GO": "bold green", "GO WITH WARNINGS": "bold yellow", "NO-GO": "bold red"}
STAGES = "stages"
"""The table that makes a recipe a pipeline."""
REFUSED = 2
"""Exit status of NO-GO, as of a recipe that cannot be read."""


@app.command("preflight")
def check_recipe(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe of reinforcement learning, or of a pipeline.")],
    overrides: Overrides = None,
    leave_out: Annotated[list[str] | None, typer.Option(metavar="CHECK",
        help="Leave a check out, e.g. `rehearsal`. Repeatable.")] = None,
    problems: Annotated[int, typer.Option(min=2, help="Training problems that are sampled.")] = 32,
    samples: Annotated[int, typer.Option(min=2, help="Completions of each; a larger group size counts.")] = 16,
    seconds: Annotated[int, typer.Option(min=0,
        help="Time for all checks; what it leaves out is said. 0: as long as they take.")] = 120,
    price_per_hour: Annotated[float | None, typer.Option(min=0,
        help="Price of an hour of this machine; the cost of the run is then printed.")] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Predict the memory, part by part, without loading the model.")] = False,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="With --memory: tokens of a prompt.")] = 64,
    ranks: Annotated[int, typer.Option(min=1,
        help="With --memory: processes that train the model together; one of them is shown.")] = 1,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON to a file, too.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Check a recipe before a run: GO, GO WITH WARNINGS or NO-GO (exit status 2), with reasons.

    Settings, problems, memory and disk; reference answers and shortcuts through the verifier; prompts as tokens; what
    the model can learn; and two whole steps on a copy, with their resume. All within `--seconds`: a slow model has
    fewer completions and smaller steps, and the end says what was left out.
    Of a pipeline every stage is checked as far as it can be before the stages in front of it have run.

    Examples:

        groupwise preflight recipes/arithmetic.toml

        groupwise preflight recipes/gsm8k.toml --leave-out rehearsal --price-per-hour 2.5

        groupwise preflight recipes/r1.toml --leave-out sample --leave-out rehearsal

        groupwise preflight recipes/gsm8k.toml --memory --set model.path=Qwen/Qwen3-8B --ranks 8
    """
    from groupwise.config import named, read_recipe, read_toml

    read_toml(Path(named(recipe)[0]))  # a missing or malformed file is reported before torch is loaded
    from groupwise.checks.preflight import PreflightOptions
    from groupwise.models.loading import quiet_transformers
    from groupwise.runs.atomic import write_file

    quiet_transformers()
    changes = overrides or []
    if memory:
        refuse("with --memory", leave_out=leave_out, price_per_hour=price_per_hour, problems=problems != 32,
               samples=samples != 16, seconds=seconds != 120, write=write, json=json)  # fmt: skip
        show_memory(recipe, changes, prompt_tokens, ranks)
        return
    refuse("without --memory", prompt_tokens=prompt_tokens != 64, ranks=ranks > 1)
    check = check_stages if STAGES in read_recipe(recipe, changes) else check_run
    options = PreflightOptions(problems, samples, price_per_hour, seconds)
    facts = check(recipe, changes, options, leave_out or [], json)
    text = json_module.dumps({"recipe": str(recipe), **facts}, ensure_ascii=False, indent=1)
    if write:
        write_file(write, text.encode() + b"\n")
    if json:
        print(text)
    if facts["verdict"] == "NO-GO":
        raise typer.Exit(REFUSED)


def check_run(
    path: Path, changes: Sequence[str], options: "PreflightOptions", leave_out: Sequence[str], quiet: bool
) -> dict[str, Any]:
    """Check a recipe of reinforcement learning, and print what a check found when it is done, unless `quiet`."""
    from groupwise.checks.preflight import preflight
    from groupwise.trainers import load_recipe

    on_check = (lambda check, result: None) if quiet else show_check
    result = preflight(load_recipe(path, changes), options, leave_out, on_check=on_check)
    if not quiet:
        console.print(_headline(result.verdict, path, result.seconds.values()))
    if result.not_done and not quiet:
        text = "; ".join(f"{name} ({why})" for name, why in result.not_done.items())
        console.print(Text(f"Not done: {text}", style="dim"), soft_wrap=True)
    return result.facts()


def check_stages(
    path: Path, changes: Sequence[str], options: "PreflightOptions", leave_out: Sequence[str], quiet: bool
) -> dict[str, Any]:
    """Check a pipeline, stage by stage, and print what was found; the verdict is that of the worst stage."""
    from groupwise.checks.preflight import preflight_stages
    from groupwise.checks.preflight.bench import verdict_of
    from groupwise.pipeline import load_pipeline
    from groupwise.runs.row import grouped

    recipe, stages = load_pipeline(path, changes)
    own = [(stage.name, stage.kind, stage.config) for stage in stages]
    checked = preflight_stages(own, Path(recipe.pipeline.directory), recipe.model.path, options, leave_out)
    worst = verdict_of(finding for stage in checked for finding in stage.found.findings)
    if not quiet:
        console.print(_headline(worst, path, (spent for one in checked for spent in one.found.seconds.values())))
    for stage in () if quiet else checked:
        head = f"\n{stage.name}  ({stage.does})  "
        console.print(Text.assemble((head, "bold"), (stage.found.verdict, VERDICTS[stage.found.verdict])))
        for finding in stage.found.findings:
            console.print(finding.text(), soft_wrap=True)
        for why, names in grouped(stage.found.not_done, stage.found.not_done.__getitem__).items():
            console.print(Text(f"  not done: {', '.join(names)} ({why})", style="dim"), soft_wrap=True)
    return {"verdict": worst, "stages": {stage.name: stage.found.facts() for stage in checked}}


def _headline(verdict: str, path: Path, seconds: Iterable[float]) -> Text:
    return Text.assemble((verdict, VERDICTS[verdict]), f"  {path}, {sum(seconds):.0f} s")


def show_check(check: str, result: "Preflight") -> None:
    """Print the verdict of one check, its findings and its figures."""
    verdict, figures = result.verdict_by(check), result.figures[check]
    console.print(
        Text.assemble((check, "bold"), "  ", (verdict, VERDICTS[verdict]), f"  {result.seconds[check]:.1f} s")
    )
    for finding in result.findings:
        if finding.check == check:
            console.print(finding.text(), soft_wrap=True)
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        parts = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, Mapping) else value
        text = ", ".join(map(str, parts)) if isinstance(parts, list) else str(parts)
        console.print(Text(f"  {name:{width}}  {visible(text)}"), soft_wrap=True)
    console.print()


def before_training(recipe: "Recipe", anyway: bool) -> None:
    """Do the checks that cost nothing, before a run; notes are left to `groupwise preflight`.

    Raises ConfigError: one of them refuses the run, and `anyway` is not set.
    """
    from groupwise.checks.preflight import preflight
    from groupwise.errors import ConfigError
    from groupwise.trainers.rl_recipe import RlRecipe

    if not isinstance(recipe, RlRecipe):
        return
    findings = [found for found in preflight(recipe, costs=["free"]).findings if not found.is_error]  # the run's own
    for finding in findings:
        if finding.severity is not Severity.NOTE:
            console.print(finding.text(), soft_wrap=True)
    refused = [finding for finding in findings if finding.severity is Severity.CRITICAL]
    if refused and not anyway:
        raise ConfigError(
            f"this run must not begin: {refused[0].evidence}; mend it, or train in spite of it with --anyway"
        )


def show_memory(path: Path, overrides: Sequence[str], prompt_tokens: int, ranks: int) -> None:
    """Print what stays, what sampling and training add, and the peak."""
    from groupwise.checks.memory import MIB, plan_of_rank
    from groupwise.errors import ConfigError
    from groupwise.trainers import load_recipe
    from groupwise.trainers.rl_recipe import RlRecipe

    recipe = load_recipe(path, overrides)
    if not isinstance(recipe, RlRecipe):
        raise ConfigError(f"{path}: memory is predicted for reinforcement learning, not for {recipe.algorithm}")
    plan = plan_of_rank(recipe, prompt_tokens, ranks)
    table = table_of("part", right=["MiB"], box=None)
    phases = {"always": plan.weights, "sampling": plan.sampling, "training": plan.training}
    for title, parts in ((title, parts) for title, parts in phases.items() if parts):
        table.add_row(f"[dim]{title}[/]", "")
        for name, size in parts.items():
            table.add_row(f"  {name}", f"{size / MIB:,.1f}")
    table.add_row("[bold]peak[/]", f"[bold]{plan.peak / MIB:,.1f}[/]")
    if plan.offloaded:
        table.add_row("[dim]in the processor's memory[/]", "")
        for name, size in plan.offloaded.items():
            table.add_row(f"  {name}", f"{size / MIB:,.1f}")
        table.add_row("[bold]of the processor[/]", f"[bold]{sum(plan.offloaded.values()) / MIB:,.1f}[/]")
    console.print(table)
    if plan.checkpointing:
        console.print("Activation checkpointing: layers compute themselves again in the backward.", style="dim")
    console.print("The libraries themselves need about 500 MiB more.", style="dim")
