"""Runs of which there are scalars alone: what W&B and TensorBoard keep of any trainer.

The names are those of the trainers that write there: TRL's, verl's, prime-rl's, and our own sinks'. Others are told
with `--scalar OURS=THEIRS`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from groupwise.errors import ConfigError, DataError
from groupwise.runs.imports import trl, verl
from groupwise.runs.imports.foreign import Foreign, Scalars
from groupwise.runs.imports.tensorboard import read_events
from groupwise.runs.imports.wandb import read_history

READERS: Mapping[str, Callable[[Path, Scalars], None]] = {"tensorboard": read_events, "wandb": read_history}
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


def read_scalars(system: str, source: Path, own: Sequence[str] = ()) -> Foreign:
    """Return a run of scalars. Raises ConfigError and DataError."""
    names: dict[str, str] = {}
    for pair in own:
        ours, _, theirs = pair.partition("=")
        if ours not in OURS:
            raise ConfigError(f"--scalar {pair}: {ours!r} is no scalar of a step; allowed are {', '.join(OURS)}")
        names[theirs] = ours
    for known in (trl.SCALARS, verl.SCALARS, PRIME, {name: name for name in OURS if name != "dev"}):
        for theirs, ours in known.items():
            for spelled in (theirs, f"train/{theirs}", f"step/{theirs}"):
                names.setdefault(spelled, ours)
    logged = Scalars(names)
    READERS[system](source, logged)
    there = sorted({name for values in logged.steps.values() for name in values})
    for pair in own:
        if (theirs := pair.partition("=")[2]) not in there:
            raise ConfigError(f"--scalar {pair}: {theirs!r} was not recorded; there are {', '.join(there[:30])}")
    foreign = logged.foreign({})
    if not foreign.scalars:
        raise DataError(
            f"{source} has no scalar whose name is known; name one with --scalar OURS=THEIRS, for example "
            f"--scalar reward={there[0] if there else 'NAME'}; there are {', '.join(there[:30]) or 'none'}"
        )
    return foreign
