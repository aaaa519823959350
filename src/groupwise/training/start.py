"""A run before its first step: new, or resumed from a checkpoint that is the one its ledger speaks of."""

import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.config import Section, dump_toml, parse
from groupwise.config.kinds import user_files
from groupwise.errors import CheckpointError, ConfigError
from groupwise.models.backbone import Backbone
from groupwise.models.checkpoint import TrainerState, load_trainer_state
from groupwise.models.config import ModelConfig
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import sharded_like
from groupwise.runs.directory import RunDirectory, begin_run, hold_run, open_run
from groupwise.runs.lock import Hold
from groupwise.runs.sinks.process import Sinks
from groupwise.training.optimizer import Optimizer
from groupwise.training.progress import Progress
from groupwise.training.run_config import Recipe, RunConfig
from groupwise.training.session import BESIDE, Beside, Session


class Start:
    """A run before its first step, new or resumed: it says where the model is and becomes a `Session`.

    From here on no other process works in the run's directory.
    """

    def __init__(self, recipe: Recipe, config: RunConfig, restart: bool = False) -> None:
        self._config, self._sinks = config, recipe.sinks
        self._directory = RunDirectory(Path(config.directory))
        self._hold: Hold | None = None
        self._restart_with = dump_toml(recipe) if restart else None
        self._sources = user_files(recipe)
        self._checkpoint = RANKS.by_first(lambda: self._open(recipe, restart))
        self._state = load_trainer_state(self._checkpoint, RANKS.is_first) if self._checkpoint else None

    def _open(self, recipe: Recipe, restart: bool) -> Path | None:
        """Hold the directory for this process alone; where the run resumes, if it does."""
        path = self._directory.path
        self._hold = hold_run(path)
        if restart:  # an earlier run is deleted by `begin`, when everything could be loaded
            return None
        _, checkpoint = open_run(path, dump_toml(recipe), self._sources, partial(_resolved, type(recipe)))
        if self._directory.finished.exists():
            raise CheckpointError(
                f"{path} is finished ({self._config.num_steps} steps): there is nothing left to do. Evaluate "
                "it with `groupwise eval`, or delete it and start over with --restart (`restart=True`)"
            )
        return checkpoint

    @property
    def resumes(self) -> bool:
        """Whether the model comes from a checkpoint of this run."""
        return self._checkpoint is not None

    def model_to_load(self, model: ModelConfig) -> ModelConfig:
        """The checkpoint's when resuming, else the recipe's."""
        return model.at(self._checkpoint) if self._checkpoint else model

    def begin(self, policy: Backbone, optimizer: Optimizer, beside: Beside | None = None) -> Session:
        """Restore the optimizer and what is trained beside the policy, and cut off what came after the checkpoint.

        Raises:
            CheckpointError: the policy does not have the weights that the ledger's last step left.
        """
        progress = Progress.read(self._state.facts) if self._state else Progress()
        RANKS.by_first(lambda: self._cut(progress))
        if self._state:
            self._check_weights(policy)
            restore(self._state, optimizer, beside)
        self._state = None  # the moments are the optimizer's now
        sinks = Sinks.start(self._directory.path, self._sinks) if RANKS.is_first else Sinks()
        return Session(self._config, self._directory, self._hold, progress, policy, optimizer, beside, sinks)

    def _cut(self, progress: Progress) -> None:
        """Begin anew where that is asked for, and cut off what came after the checkpoint."""
        if self._restart_with is not None:
            begin_run(self._directory.path, self._restart_with, self._sources)
        self._directory.ledger.truncate(progress.ledger)
        self._directory.metrics.truncate(progress.metrics)

    def _check_weights(self, policy: Backbone) -> None:
        """The policy that was loaded must be the one that the ledger's last step left behind."""
        loaded, lines = policy.fingerprint(), self._directory.ledger.lines
        recorded = RANKS.by_first(lambda: [line["weights"] for line in lines() if "weights" in line][-1:])
        if recorded and loaded != recorded[-1]:
            raise CheckpointError(
                f"the policy loaded to resume from {self._checkpoint} has the weights {loaded}, but the ledger's last "
                f"step left {recorded[-1]}: other weights were saved or loaded than those that were trained"
            )


def _resolved(kind: type[Section], tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recorded recipe with every value of today's, so that one of an earlier version is resumed, too."""
    try:
        return tomllib.loads(dump_toml(parse(kind, tables)))
    except ConfigError:  # it cannot be used any more: what differs from today's recipe will be named
        return tables


def restore(state: TrainerState, optimizer: Optimizer, beside: Beside | None) -> None:
    """Bring the optimizer and what is trained beside the policy back to where a checkpoint's state left them."""
    if beside:  # first: the optimizer compares weights in bf16 with its masters
        tensors = {n.removeprefix(BESIDE): tensor for n, tensor in state.tensors.items() if n.startswith(BESIDE)}
        named = dict(beside.trainable())
        whole = {name: tensor for name, tensor in tensors.items() if name not in named}
        beside.load_state(whole | {name: sharded_like(tensors[name], weight) for name, weight in named.items()})
    moments = {name: tensor for name, tensor in state.tensors.items() if not name.startswith(BESIDE)}
    optimizer.load_state(moments, state.facts["updates_done"])
