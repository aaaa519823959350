"""`groupwise import`: a run directory of a run of another system."""

from pathlib import Path

from rich.console import Console

from groupwise.errors import ConfigError
from groupwise.runs.imports import read_trl, read_verl, write_imported


def run_import(
    system: str, source: Path, target: Path, correct: str | None, scalars: Path | None, dev: Path | None,
    console: Console,
) -> None:  # fmt: skip
    """Read, write, and say what there is and what is missing."""
    if system not in ("trl", "verl"):
        raise ConfigError(f"there is no import from {system!r}; allowed are trl and verl")
    if system == "trl" and (scalars or dev):
        raise ConfigError("--scalars and --dev are for verl: TRL's trainer_state.json has its scalars")
    foreign = read_trl(source) if system == "trl" else read_verl(source, scalars, dev)
    made = write_imported(foreign, system, source, target, correct)
    console.print(
        f"{target}: {made.num_steps} steps, {made.num_completions:,} completions, {made.num_evaluations} evaluations",
        highlight=False, markup=False,
    )  # fmt: skip
    if made.lacks:
        console.print(f"Not recorded there: {', '.join(made.lacks)}", style="dim", markup=False)
    console.print(f"Next: groupwise doctor {target}; groupwise explore {target}", markup=False, highlight=False)
