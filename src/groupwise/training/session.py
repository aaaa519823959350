"""Shared by all trainers, around their steps: the record, checkpoints, and stopping between two steps."""

import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from groupwise.models.backbone import Backbone, Saved
from groupwise.models.checkpoint import TrainerState, save_checkpoint
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import settle, whole_tensor
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.runs.lock import Hold
from groupwise.runs.sinks.process import Sinks
from groupwise.training.optimizer import Optimizer
from groupwise.training.progress import Progress
from groupwise.training.run_config import RunConfig

BESIDE = "critic:"
"""Prefix, among a checkpoint's tensors, of what is trained beside the policy."""


class Beside(Protocol):
    """What is trained beside the policy, as a checkpoint keeps it: a critic, for example."""

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Its weights, by name, always in the same order."""

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors for a checkpoint, its weights among them."""

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` gave."""


def peak_memory_mb() -> float:
    """Most memory this process has held so far, in MiB: on the GPU if there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


@dataclass(slots=True)
class Session:
    """One process's work on a run: loop over `steps`, `record` each, `finish`."""

    config: RunConfig
    directory: RunDirectory
    hold: Hold | None
    """Of the directory; the first rank has it."""
    progress: Progress
    policy: Backbone
    optimizer: Optimizer
    beside: Beside | None = None
    sinks: Sinks = field(default_factory=Sinks)
    stopping: bool = False
    """Set by Ctrl-C: the step in hand is finished, a checkpoint written, then the loop ends."""

    def steps(self) -> Iterator[int]:
        """The steps left to do (0-based); writes checkpoints between them and ends early when stopping.

        Ctrl-C reaches ranks at different moments, so they agree on `stopping` before each of them acts on it: between
        two steps, and when the last one is done.
        """
        with self._finish_step_on_interrupt():
            yield from self._steps()
        self._agree_to_stop()

    def _steps(self) -> Iterator[int]:
        for step in range(self.progress.step, self.config.num_steps):
            if self.progress.ending or self._agree_to_stop():
                return
            yield step
            done = step + 1
            last = self._agree_to_stop() or done == self.config.num_steps or self.progress.ending
            if last or done % self.config.checkpoint_every == 0:
                self.checkpoint(done)

    def _agree_to_stop(self) -> bool:
        """Whether any rank was told to stop."""
        self.stopping = bool(RANKS.most(int(self.stopping)))
        return self.stopping

    def record(self, ledger: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Append one line each to the ledger (must repeat exactly) and to the metrics (may differ)."""
        if not RANKS.is_first:
            return
        self.directory.ledger.append(ledger)
        self.directory.metrics.append({**metrics, "peak_memory_mb": peak_memory_mb(), "time": time.time()})
        self.sinks.check()

    def checkpoint(self, step: int) -> Path:
        """Save policy, optimizer and counters after `step` finished steps; returns the checkpoint's path.

        What is already saved after this step stays as it is: nothing can have changed.
        """
        path, progress, directory = self.directory.checkpoint(step), self.progress, self.directory
        is_there, ledger, metrics = RANKS.by_first(
            lambda: (path.exists(), directory.ledger.size, directory.metrics.size)
        )
        if is_there and progress.ledger == ledger:
            return path
        progress.step, progress.updates_done = step, self.optimizer.updates_done
        progress.ledger, progress.metrics = ledger, metrics
        policy, state = self.policy.gathered(), self.optimizer.state()
        if self.beside:
            settle()
            state |= {BESIDE + name: whole_tensor(tensor) for name, tensor in self.beside.state()}
        RANKS.by_first(lambda: self._write(path, policy, state))
        return path

    def _write(self, path: Path, policy: Saved, state: dict[str, Tensor]) -> None:
        save_checkpoint(path, policy, TrainerState(self.progress.facts(), state))
        self.directory.drop_old_checkpoints(self.config.keep_checkpoints)

    def finish(self) -> None:
        """Mark the run as finished, unless it was stopped before its end, and let other processes work on it."""
        if not self.stopping and RANKS.is_first:
            write_file(self.directory.finished, b"{}\n")
        self.sinks.finish()
        if self.hold:
            self.hold.release()

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
