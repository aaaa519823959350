"""Runs of which there are scalars alone: what W&B and TensorBoard keep of any trainer.

The names are those of the trainers that write there: TRL's, verl's, prime-rl's, and our own sinks'. Others are told
with `--scalar OURS=THEIRS`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from groupwise.errors import ConfigError, DataError
from groupwise.runs.imports import trl, verl
from groupwise.runs.imports.foreign import Foreign, renamed
from groupwise.runs.imports.tensorboard import read_events
from groupwise.runs.imports.wandb import read_history

READERS: Mapping[str, Callable[[Path], tuple[dict[int, dict[str, float]], list[str]]]] = {
    "tensorboard": read_events,
    "wandb": read_history,
}
OURS = (
    "reward", "signal", "sampled_correct", "entropy", "kl", "clipped", "grad_norm", "lr", "length", "truncated", "loss",
    "seconds", "explained_variance", "kl_after_updates", "effective_samples", "generate_s", "verify_s", "train_s",
    "dev",
)  # fmt: skip
"""Scalars of a step that rules and pages are about; `dev`: the pass rate of an evaluation before it."""
PRIME = {
    "train/agg/effective/reward/mean": "reward", "train/agg/all/reward/mean": "reward", "reward/all/mean": "reward",
    "train/agg/effective/is_truncated/mean": "truncated", "train/agg/all/is_truncated/mean": "truncated",
    "entropy/all/mean": "entropy", "entropy/mean": "entropy", "optim/grad_norm": "grad_norm", "optim/lr": "lr",
    "loss/mean": "loss", "time/step": "seconds",
}  # fmt: skip
"""Those of prime-rl's orchestrator and trainer. Its lengths have none: they count the prompt, too."""
FLAT = ("train/frac_reward_zero_std", "frac_reward_zero_std")  # the share of groups without a signal, as TRL counts it


def read_scalars(system: str, source: Path, own: Sequence[str] = ()) -> tuple[Foreign, list[str]]:
    """Return a run of scalars, and what could not be read. Raises ConfigError and DataError."""
    recorded, damage = READERS[system](source)
    names = _names(own, recorded)
    steps: dict[int, dict[str, float]] = {}
    for step, values in sorted(recorded.items()):
        steps[step] = renamed(values, names)
        flat = next((values[name] for name in FLAT if name in values), None)
        if flat is not None:
            steps[step].setdefault("signal", 1 - flat)
        for name, value in values.items():
            kind, _, rest = name.removeprefix("train/").partition("/")
            if kind == "rewards" and rest.endswith(("/mean", "/std")):  # TRL's
                steps[step][f"part/{rest}"] = value
    if not any(steps.values()):
        there = sorted({name for values in recorded.values() for name in values if not name.startswith("_")})
        raise DataError(
            f"{source} has no scalar whose name is known; name one with --scalar OURS=THEIRS, for example "
            f"--scalar reward={there[0] if there else 'NAME'}; there are {', '.join(there[:30]) or 'none'}"
        )
    return Foreign(scalars={step: values for step, values in steps.items() if values}, answers={}), damage


def _names(own: Sequence[str], recorded: Mapping[int, Mapping[str, float]]) -> dict[str, str]:
    there = {name for values in recorded.values() for name in values}
    names: dict[str, str] = {}
    for pair in own:
        ours, _, theirs = pair.partition("=")
        if ours not in OURS:
            raise ConfigError(f"--scalar {pair}: {ours!r} is no scalar of a step; allowed are {', '.join(OURS)}")
        if theirs not in there:
            raise ConfigError(
                f"--scalar {pair}: {theirs!r} was not recorded; there are {', '.join(sorted(there)[:30])}"
            )
        names[theirs] = ours
    for known in (trl.SCALARS, verl.SCALARS, PRIME, {name: name for name in OURS if name != "dev"}):
        for theirs, ours in known.items():
            for spelled in (theirs, f"train/{theirs}", f"step/{theirs}"):
                names.setdefault(spelled, ours)
    return names
