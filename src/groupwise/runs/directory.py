"""The run directory: the only interface between training and everything that looks at it.

config.toml         resolved recipe: `groupwise train <run>/config.toml` repeats the run
inputs.json         what the recipe names by path, with hashes: compared whenever the run resumes
sources/            the user's own Python among it, as it was
environment.json    versions, commit, hardware, thread count
ledger.jsonl        facts that are identical on a repeat or a resume
metrics.jsonl       what may differ: timings, memory, throughput
rollouts/*.parquet  completions, a file for each step and evaluation; index.jsonl says what each file holds
checkpoints/step-N  Hugging Face directories with trainer state; `best` points at one of them
lock                held by the process that works in the directory
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from groupwise.config import read_toml
from groupwise.errors import CheckpointError, ConfigError
from groupwise.runs.atomic import LOCK, Hold, check_directory, replace_symlink, translated_disk_errors, write_file
from groupwise.runs.inputs import Input, with_paths
from groupwise.runs.inputs import recorded as recorded_inputs
from groupwise.runs.ledger import Ledger, LineFile

PROVENANCE = "provenance.json"
ENVIRONMENT = "environment.json"


def seed_directory(directory: str | Path, seed: int) -> Path:
    """Return the directory of one seed of a pipeline that runs with several."""
    return Path(directory) / f"seed-{seed}"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths and files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.path / "ledger.jsonl")

    @property
    def metrics(self) -> LineFile:
        return LineFile(self.path / "metrics.jsonl", numbers=True)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best"

    @property
    def finished(self) -> Path:
        """Exists when the run has nothing left to do."""
        return self.path / "finished.json"

    @property
    def index(self) -> LineFile:
        return LineFile(self.path / "rollouts" / "index.jsonl")

    def rollouts(self, at: int | str) -> Path:
        """Completions of a step, or of an evaluation, for example `dev-step-000040`."""
        return self.path / "rollouts" / f"{at if isinstance(at, str) else f'step-{at:06d}'}.parquet"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    def steps(self) -> list[int]:
        names = (path.name.removeprefix("step-") for path in self.checkpoints.glob("step-*"))
        return sorted(int(name) for name in names if name.isdecimal())  # somebody's copy beside them is none

    @property
    def has_begun(self) -> bool:
        return os.path.exists(self.config) and bool(self.steps() or self.ledger.size)

    def mark_best(self, step: int) -> None:
        replace_symlink(self.best, self.checkpoint(step).name)

    def drop_old_checkpoints(self, keep: int) -> None:
        best = self.best.resolve().name if self.best.exists() else None
        for step in self.steps()[:-keep]:
            if self.checkpoint(step).name != best:
                shutil.rmtree(self.checkpoint(step))


def begin_run(path: Path, config_toml: str) -> RunDirectory:
    """Create a run directory; an earlier run in it is deleted."""
    run = RunDirectory(path)
    _refuse_foreign(run)
    # what tells that it is a run goes last, but for its lock, which the process that deletes holds
    entries = path.iterdir() if path.exists() else ()
    for entry in sorted(entries, key=lambda entry: (entry == run.config, entry.name == ENVIRONMENT, entry.name)):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != LOCK:
            entry.unlink()
    surroundings = json.dumps(environment(), indent=1).encode()
    with translated_disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        # the recipe first: a directory that holds it is a run, however early the process is killed
        write_file(run.config, config_toml.encode())
        write_file(path / ENVIRONMENT, surroundings)
        run.checkpoints.mkdir(exist_ok=True)
    return run


def hold_run(path: Path) -> Hold:
    """Keep other processes out of a run directory, before anything in it is read or deleted. Raises CheckpointError."""
    with translated_disk_errors(path):
        _refuse_foreign(RunDirectory(path))
    return Hold(path, "run.directory")


def _refuse_foreign(run: RunDirectory) -> None:
    """Only a run may be resumed or deleted: a directory with a recipe, or what a kill at a run's beginning leaves."""
    if not run.path.exists():
        return
    if not run.path.is_dir():
        raise CheckpointError(f"{run.path} is a file, not a run directory: choose another run.directory")
    is_run = not run.config.exists() or "algorithm" in read_toml(run.config)
    if not (run.config.exists() and ((run.path / ENVIRONMENT).exists() or run.has_begun)):
        # a recipe of that name beside files of the user's own makes no run
        left = {run.config.name, f".{run.config.name}.tmp", f".{ENVIRONMENT}.tmp", LOCK}
        is_run = is_run and {entry.name for entry in run.path.iterdir()} <= left
    if not is_run:
        raise CheckpointError(f"{run.path} exists and is not a run directory: choose another run.directory")


Tables = Mapping[str, Any]


def open_run(
    path: Path, config_toml: str, inputs: Sequence[Input] = (), resolved: Callable[[Tables], Tables] = lambda it: it
) -> tuple[RunDirectory, Path | None]:
    """Create a run directory, or find where an interrupted run resumes.

    `inputs` are the references of the recipe: they may say the same paths in other words, from another working
    directory. `resolved` completes the recipe that the run recorded, which an earlier version may have written. Returns
    the directory and the checkpoint to resume from (None: from the start).

    Raises CheckpointError: the directory belongs to another recipe, or its newest checkpoint is damaged.
    """
    run = RunDirectory(path)
    _refuse_foreign(run)
    if not run.has_begun:
        return begin_run(path, config_toml), None
    taken = recorded_inputs(path)[0]
    if changed := differences(run, config_toml, taken, inputs, resolved):
        moved = [item.name for item in taken if item.name in changed]
        hint = f", or go on with --accept-changed {moved[0]} where an input was only moved" if moved else ""
        raise CheckpointError(
            f"{run.path} was begun with another recipe: {'; '.join(changed.values())}. "
            "Run the old recipe to resume, choose another run.directory, or delete the old run with --restart "
            f"(`restart=True`){hint}"
        )
    now = before = flattened(environment())
    with suppress(OSError, ValueError, AttributeError):
        before = flattened(json.loads((path / ENVIRONMENT).read_text(encoding="utf-8")))
    computes = [key for key in now if key.startswith("versions.") or key in ("processor", "gpu")]
    if others := [f"{key} {before[key]}, now {now[key]}" for key in computes if before.get(key, now[key]) != now[key]]:
        warnings.warn(
            f"{path} was begun with {'; '.join(others)}: what follows may differ in last bits from a run that never "
            "stopped",
            stacklevel=2,
        )
    if not run.steps():
        return run, None
    newest = run.checkpoint(run.steps()[-1])
    try:
        check_directory(newest)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; delete {newest} to resume from the checkpoint before it, or start over with --restart "
            "(`restart=True`)"
        ) from None
    return run, newest


def differences(
    run: RunDirectory, config_toml: str, taken: Sequence[Input], inputs: Sequence[Input],
    resolved: Callable[[Tables], Tables],
) -> dict[str, str]:  # fmt: skip
    """Return by key, in words, what a recipe says otherwise than the one that the run recorded, places left out.

    `taken` are the references of the run, and `inputs` those of the recipe.
    """
    recorded, wanted = read_toml(run.config), tomllib.loads(config_toml)
    if recorded == wanted:
        return {}
    before, now = flattened(with_paths(resolved(recorded), taken)), flattened(with_paths(wanted, inputs))
    places = [item.name for item in (*taken, *inputs) if item.makes == "place"]
    now |= {key: before.get(key) for key in (*PLACES, *places, LENGTH)}
    return {
        key: f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    }


PLACES = (
    "run.directory", "engine.addresses", "engine.launch", "engine.directory", "engine.environment", "ranks.offload",
)  # fmt: skip
"""Keys of places, which change nothing of what a run computes: a run, and its servers, may be moved."""
LENGTH = "run.num_steps"
"""Key that may change where the schedule allows it (`training.session`)."""


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def without_places(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables without `PLACES`."""
    return {
        name: without_places(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in table.items()
        if f"{prefix}{name}" not in PLACES
    }


def find_run(path: Path) -> RunDirectory:
    """Return an existing run directory. Raises ConfigError: there is none at this path."""
    run = RunDirectory(path.expanduser())
    if not os.path.exists(run.config):  # unlike pathlib's, it answers for names that are too long
        raise ConfigError(f"{path} is not a run directory: it has no config.toml; `groupwise runs` lists the runs")
    return run


MISSING = "not installed"


def version_of(package: str) -> str:
    """Return the version of an installed package, else `MISSING`."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return MISSING


def environment() -> dict[str, Any]:
    """Return the versions and the machine below a run. It works on any system."""
    packages = ("groupwise", "torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy")
    torch, cpuinfo, processor = sys.modules.get("torch"), Path("/proc/cpuinfo"), platform.processor()
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    commit = None  # of the package's checkout, with `+changes` where files differ; None outside a checkout
    with suppress(OSError, subprocess.SubprocessError):
        options: dict[str, Any] = {"cwd": Path(__file__).parent, "stderr": subprocess.DEVNULL, "timeout": 10}
        git = partial(subprocess.check_output, text=True, **options)
        head, changes = git(["git", "rev-parse", "HEAD"]), git(["git", "status", "--porcelain", "-uno"])
        commit = head.strip() + ("+changes" if changes.strip() else "")
    return {
        "versions": {name: version_of(name) for name in packages}, "python": platform.python_version(),
        "platform": platform.platform(), "processor": processor, "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads() if torch else None,
        "gpu": torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None, "commit": commit,
    }  # fmt: skip
