"""`groupwise import`: a run directory of a run of another system."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from groupwise.errors import ConfigError
from groupwise.runs.imports import read_trl, read_verl, write_imported
from groupwise.runs.imports.foreign import Foreign
from groupwise.runs.imports.prime_rl import read_prime_rl
from groupwise.runs.imports.scalars import READERS, read_scalars

PRIME_RL = "prime-rl"


def run_import(
    system: str, source: Path, target: Path, correct: str | None, scalars: Path | None, dev: Path | None,
    own: Sequence[str], console: Console,
) -> None:  # fmt: skip
    """Read, write, and say what there is and what is missing."""
    foreign, damage = _read(system, source, scalars, dev, own)
    made = write_imported(foreign, system, source, target, correct)
    console.print(
        f"{target}: {made.num_steps} steps, {made.num_completions:,} completions, {made.num_evaluations} evaluations",
        highlight=False, markup=False,
    )  # fmt: skip
    for one in damage:
        console.print(f"Could not be read: {one}", style="yellow", markup=False, soft_wrap=True)
    if made.lacks:
        console.print(f"Not recorded there: {', '.join(made.lacks)}", style="dim", markup=False)
    console.print(f"Next: groupwise doctor {target}; groupwise explore {target}", markup=False, highlight=False)


def _read(
    system: str, source: Path, scalars: Path | None, dev: Path | None, own: Sequence[str]
) -> tuple[Foreign, list[str]]:
    """The run, and what of it could not be read."""
    known = ("trl", "verl", PRIME_RL, *sorted(READERS))
    if system not in known:
        raise ConfigError(f"there is no import from {system!r}; allowed are {', '.join(known)}")
    if (dev and system != "verl") or (scalars and system not in ("verl", PRIME_RL)):
        raise ConfigError("--scalars and --dev are for verl: the others have both in one place")
    if system not in READERS and own:
        raise ConfigError("--scalar is for wandb and tensorboard: the names of the others are known")
    if system in READERS:
        return read_scalars(system, source, own)
    if system == PRIME_RL:
        return read_prime_rl(source, scalars)
    return (read_trl(source) if system == "trl" else read_verl(source, scalars, dev)), []
