"""What every trainer shares around its step: the run directory, resume, checkpoints, and stopping between two steps."""

import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from pydantic import Field

from groupwise.config import Section, dump_toml
from groupwise.errors import CheckpointError
from groupwise.kinds import user_files
from groupwise.models.backbone import Backbone
from groupwise.models.checkpoint import TrainerState, load_trainer_state, save_checkpoint
from groupwise.models.critic import Critic
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory, begin_run, hold_run, open_run
from groupwise.training.optimizer import Optimizer

CRITIC = "critic:"
"""Prefix of the critic's weights among a checkpoint's tensors."""


class RunConfig(Section):
    """Where a run is kept, how long it is and what makes it repeatable."""

    directory: str
    """Run directory; the same command resumes an interrupted run in it."""
    seed: int = 0
    """Seed of every random draw of the run."""
    num_steps: int = Field(ge=1)
    """Steps to do."""
    checkpoint_every: int = Field(20, ge=1)
    """Steps between two checkpoints; what came after the last one is done again on a resume."""
    keep_checkpoints: int = Field(2, ge=1)
    """Newest checkpoints to keep; the best by dev and the last are always kept."""


def restore(state: TrainerState, optimizer: Optimizer, critic: Critic | None) -> None:
    """Bring optimizer and critic back to where a checkpoint's state left them."""
    moments = {name: tensor for name, tensor in state.tensors.items() if not name.startswith(CRITIC)}
    optimizer.load_state(moments, state.facts["updates_done"])
    if critic:
        weights = {n.removeprefix(CRITIC): tensor for n, tensor in state.tensors.items() if n.startswith(CRITIC)}
        critic.load_state(weights)


def peak_memory_mb() -> float:
    """Most memory this process has held so far, in MiB: on the GPU if there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


class Session:
    """One process's work on a run.

    Create it, load the model from `model_path`, `attach` model and optimizer, loop over `steps`, `finish`.
    """

    def __init__(self, recipe: Section, config: RunConfig, restart: bool = False) -> None:
        self.config = config
        self._hold = hold_run(Path(config.directory))
        self._restart_with = dump_toml(recipe) if restart else None
        self._sources = user_files(recipe)
        if restart:  # an earlier run is deleted by `attach`, when everything could be loaded
            self.directory, self._checkpoint = RunDirectory(Path(config.directory)), None
        else:
            self.directory, self._checkpoint = open_run(Path(config.directory), dump_toml(recipe), self._sources)
            self._refuse_finished()
        state = load_trainer_state(self._checkpoint) if self._checkpoint else None
        self._tensors = state.tensors if state else {}
        self.facts: dict[str, Any] = state.facts if state else {"step": 0, "updates_done": 0, "ledger": 0, "metrics": 0}
        """JSON facts kept in every checkpoint; trainers add their own."""
        self.stopping = False
        """Set by Ctrl-C: the step in hand is finished, a checkpoint written, then the loop ends."""

    @property
    def ending(self) -> bool:
        """Whether the run was told to end before its last step."""
        return bool(self.facts.get("ending"))

    def end(self) -> None:
        """End the run after the step in hand, as if it were the last one."""
        self.facts["ending"] = True

    def _refuse_finished(self) -> None:
        if self.directory.finished.exists():
            raise CheckpointError(
                f"{self.directory.path} is finished ({self.config.num_steps} steps): there is nothing left to do. "
                "Evaluate it with `groupwise eval`, or use --restart to delete it and run anew"
            )

    @property
    def resumed_at(self) -> int:
        """Number of steps that were finished before."""
        return int(self.facts["step"])

    def model_path(self, path: str) -> str:
        """Where to load the policy from: the checkpoint when resuming, else the recipe's path."""
        return str(self._checkpoint) if self._checkpoint else path

    def attach(self, policy: Backbone, optimizer: Optimizer, critic: Critic | None = None) -> None:
        """Name what checkpoints save, restore optimizer and critic, and cut off what came after the checkpoint."""
        self.policy, self.optimizer, self.critic = policy, optimizer, critic
        if self._restart_with is not None:
            begin_run(self.directory.path, self._restart_with, self._sources)
        self.directory.ledger.truncate(self.facts["ledger"])
        self.directory.metrics.truncate(self.facts["metrics"])
        if self._checkpoint:
            self._check_weights(self._checkpoint)
            restore(TrainerState(self.facts, self._tensors), optimizer, critic)
        self._tensors = {}

    def _check_weights(self, checkpoint: Path) -> None:
        """The policy that was loaded must be the one that the ledger's last step left behind."""
        recorded = [line["weights"] for line in self.directory.ledger.lines() if "weights" in line]
        found = self.policy.fingerprint()
        if recorded and found != recorded[-1]:
            raise CheckpointError(
                f"the policy loaded to go on from {checkpoint} has the weights {found}, but the ledger's last step "
                f"left {recorded[-1]}: other weights were saved or loaded than those that were trained"
            )

    def steps(self) -> Iterator[int]:
        """The steps left to do (0-based); writes checkpoints between them and ends early when stopping."""
        with self._finish_step_on_interrupt():
            for step in range(self.resumed_at, self.config.num_steps):
                if self.stopping or self.ending:
                    return
                yield step
                done = step + 1
                last = done == self.config.num_steps or self.stopping or self.ending
                if last or done % self.config.checkpoint_every == 0:
                    self.checkpoint(done)

    def record(self, ledger: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Append one line each to the ledger (must repeat exactly) and to the metrics (may differ)."""
        self.directory.ledger.append(ledger)
        self.directory.metrics.append({**metrics, "peak_memory_mb": peak_memory_mb(), "time": time.time()})

    def checkpoint(self, step: int) -> Path:
        """Save policy, optimizer and counters after `step` finished steps; returns the checkpoint's path.

        What is already saved after this step stays as it is: nothing can have changed.
        """
        path = self.directory.checkpoint(step)
        if path.exists() and self.facts["ledger"] == self.directory.ledger.size:
            return path
        self.facts |= {
            "step": step,
            "updates_done": self.optimizer.updates_done,
            "ledger": self.directory.ledger.size,
            "metrics": self.directory.metrics.size,
        }
        critic = {CRITIC + name: tensor for name, tensor in self.critic.state()} if self.critic else {}
        save_checkpoint(path, self.policy, TrainerState(dict(self.facts), self.optimizer.state() | critic))
        self.directory.drop_old_checkpoints(self.config.keep_checkpoints)
        return path

    def finish(self) -> None:
        """Mark the run as finished, unless it was stopped before its end, and let other processes work on it."""
        if not self.stopping:
            write_file(self.directory.finished, b"{}\n")
        self._hold.release()

    @contextmanager
    def _finish_step_on_interrupt(self) -> Iterator[None]:
        """First Ctrl-C: stop after this step. Second: stop at once."""

        def stop(number: int, frame: FrameType | None) -> None:
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True

        try:
            previous: Callable[..., Any] | int | None = signal.signal(signal.SIGINT, stop)
        except ValueError:  # not the main thread: Ctrl-C is the caller's affair
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
