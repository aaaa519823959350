"""A run around its steps: started or resumed, recorded, checkpointed, and stopped between two steps."""

import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import nn

from groupwise.config import Section, dump_toml, parse, read_toml
from groupwise.config.recipes import dump_tables
from groupwise.config.schema import walk
from groupwise.errors import CheckpointError, ConfigError
from groupwise.models.activations import available_memory, return_freed_memory
from groupwise.models.backbone import Backbone
from groupwise.models.checkpoint import TrainerState, load_trainer_state, save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import settle, sharded_like, whole_tensor
from groupwise.runs.atomic import Hold, write_file
from groupwise.runs.directory import RunDirectory, begin_run, hold_run, open_run
from groupwise.runs.inputs import keep, recorded, references
from groupwise.runs.processes import ENDING, Stopped, handled
from groupwise.runs.progress import counted
from groupwise.runs.sinks import Sinks
from groupwise.training.config import Recipe, RunConfig
from groupwise.training.optimizer import Optimizer, OptimizerConfig


@dataclass(frozen=True, slots=True)
class Best:
    """The best dev evaluation so far."""

    step: int  # Steps finished before it
    pass_at_1: float  # NaN where the verifier had no verdict on any completion


@dataclass(slots=True)
class Progress:
    """Progress of a run. The fields' names are the keys of `trainer_state.json`; a missing one is 0 or empty."""

    step: int = 0  # Finished steps
    updates_done: int = 0
    ledger: int = 0  # Bytes of the ledger at the checkpoint; what came after is done again
    metrics: int = 0  # Bytes of the metrics, likewise
    tokens: int = 0
    sampled_tokens: int = 0  # Completion tokens sampled for training
    best: Best | None = None
    pass_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Memory of the curriculum (`trainers.rl_run.PassRates.state`)."""
    ending: bool = False  # True where the run was stopped before its last step

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        names = [item.name for item in fields(cls)]
        if unknown := sorted(facts.keys() - set(names)):
            raise CheckpointError(
                f"the checkpoint's trainer state has {', '.join(unknown)}, which this version does not know; known are "
                f"{', '.join(names)}"
            )
        best = facts.get("best")
        return cls(**{**facts, "best": best and Best(**best)})


BESIDE, MOMENT = "critic:", "moment:"
"""Prefixes, among a checkpoint's tensors, of what is trained beside the policy, and among those of its own moments."""


class Beside(Protocol):
    """A part that is trained beside the policy, as a checkpoint keeps it: a critic, for example."""

    @property
    def optimizer(self) -> Optimizer | None: ...  # Its own; None: the policy's trains it

    def trainable(self) -> list[tuple[str, nn.Parameter]]: ...


def peak_memory_mb() -> float:
    """Return the most memory this process has held so far, in MiB: on the GPU if there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def return_memory() -> None:
    """Return to the system the memory of freed tensors that glibc keeps for the next ones, where that is a lot.

    Packs differ in size, so its heaps grow over steps to several times what is in use. The next step pays for pages
    anew, so nothing happens while others could still take twice what this process holds.
    """
    if sys.platform == "linux":
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        if 2 * resident > available_memory(torch.device("cpu")):
            return_freed_memory()


@dataclass(slots=True)
class Session:
    """One process's work on a run: loop over `steps`, `record` each, `finish`."""

    config: RunConfig
    directory: RunDirectory
    hold: Hold | None  # Of the directory; the first rank has it
    progress: Progress
    policy: Backbone
    optimizer: Optimizer
    beside: Beside | None = None
    sinks: Sinks = field(default_factory=Sinks)
    stopping: bool = False
    """Set by Ctrl-C and signals alike: the step in hand is finished, a checkpoint written, then the loop ends."""
    told: int = 0
    """The signal that came, also to another rank."""

    def steps(self) -> Iterator[int]:
        """Yield the remaining steps (0-based); write checkpoints between them and end early when stopping.

        A signal reaches ranks at different moments, or one alone, so they agree on `stopping` before each of them acts
        on it: between two steps, and when the last one is done.
        """
        with handled(self._stop_after_step, (signal.SIGINT, *ENDING)):
            left = range(self.progress.step, self.config.num_steps)
            for step in counted("steps", left, self.config.num_steps, self.progress.step):
                if self.progress.ending or self._agree_to_stop():
                    break
                yield step
                return_memory()
                done = step + 1
                last = self._agree_to_stop() or done == self.config.num_steps or self.progress.ending
                if last or done % self.config.checkpoint_every == 0:
                    self.checkpoint(done)
        self._agree_to_stop()

    def _agree_to_stop(self) -> bool:
        agreed = RANKS.most(1 + self.told if self.told else int(self.stopping))
        self.stopping, self.told = agreed > 0, max(agreed - 1, 0)
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
        weights, state = self.policy.gathered(), self.optimizer.state()
        if self.beside:
            settle()
            state |= {BESIDE + name: whole_tensor(weight.detach()) for name, weight in self.beside.trainable()}
            moments = self.beside.optimizer.state() if self.beside.optimizer else {}
            state |= {BESIDE + MOMENT + name: moment for name, moment in moments.items()}

        def write() -> None:
            save_checkpoint(path, self.policy, TrainerState(asdict(progress), state), weights)
            directory.drop_old_checkpoints(self.config.keep_checkpoints)

        RANKS.by_first(write)
        return path

    def finish(self) -> None:
        """Mark the run as finished, unless it was stopped before its end, and let other processes work on it.

        Raises:
            Stopped: a signal other than Ctrl-C's asked this process to end.
        """
        if not self.stopping and RANKS.is_first:
            write_file(self.directory.finished, b"{}\n")
        self.sinks.finish()
        if self.hold:
            self.hold.release()
        if self.told in ENDING:
            raise Stopped(self.told, f" after step {self.progress.step}, with a checkpoint")

    def _stop_after_step(self, number: int, frame: object) -> None:
        """Handle a signal: stop after this step at the first, at once at the second."""
        if self.stopping:
            raise KeyboardInterrupt if number == signal.SIGINT else Stopped(number)
        self.stopping, self.told = True, number


class Start:
    """A run before its first step, new or resumed: it names the model to load and becomes a `Session`.

    From here on no other process works in the run's directory.
    """

    def __init__(self, recipe: Recipe, config: RunConfig, restart: bool = False) -> None:
        self._config, self._sinks = config, recipe.sinks
        self._directory = RunDirectory(Path(config.directory))
        self._hold: Hold | None = None
        self._is_other_length = False
        self._restart_with = dump_toml(recipe) if restart else None
        self._inputs = references(recipe)
        self._checkpoint = RANKS.by_first(lambda: self._open(recipe, restart))
        self._state = load_trainer_state(self._checkpoint, RANKS.is_first) if self._checkpoint else None

    def _open(self, recipe: Recipe, restart: bool) -> Path | None:
        """Hold the directory for this process alone; return the checkpoint where the run resumes, if it does."""
        path = self._directory.path
        self._hold = hold_run(path)
        if restart or not self._directory.has_begun:
            self._inputs = [item.taken() for item in self._inputs]
        if restart:  # an earlier run is deleted by `begin`, when everything could be loaded
            return None
        run, checkpoint = open_run(path, dump_toml(recipe), self._inputs, partial(resolved, type(recipe)))
        if (before := read_toml(run.config)["run"]["num_steps"]) != self._config.num_steps:
            self._refuse_other_length(recipe, before, run.steps()[-1] if checkpoint else 0)
            self._is_other_length = True
        elif run.finished.exists():
            raise CheckpointError(
                f"{path} is finished ({self._config.num_steps} steps): there is nothing left to do. Evaluate "
                "it with `groupwise eval`, make it longer with another run.num_steps, or delete it and start over with "
                "--restart (`restart=True`)"
            )
        return checkpoint

    def _refuse_other_length(self, recipe: Recipe, before: int, done: int) -> None:
        """Raise CheckpointError where the steps that are done are not those of a run of the recipe's length."""
        begun, now = f"{self._directory.path} was begun with run.num_steps = {before}", self._config.num_steps
        if now < done:
            raise CheckpointError(
                f"{begun} and has done {done}: it cannot have {now}. A checkpoint of fewer steps, where it is kept, is "
                f"in {self._directory.checkpoints}"
            )
        for key, section, _ in walk(recipe):
            if isinstance(section, OptimizerConfig) and section.schedule != "constant":
                raise CheckpointError(
                    f"{begun}, and {key}.schedule = {section.schedule!r} spreads the learning rate over that number, "
                    f"so the steps until now are not those of a run of {now}. Resume with {before}; begin a run of its "
                    f"own, of {now} steps or from this one's checkpoint (model.path); only a run with schedule = "
                    "'constant' can be made longer or shorter"
                )

    @property
    def resumes(self) -> bool:
        return self._checkpoint is not None

    def model_to_load(self, model: ModelConfig) -> ModelConfig:
        return model.at(self._checkpoint) if self._checkpoint else model

    def begin(self, policy: Backbone, optimizer: Optimizer, beside: Beside | None = None) -> Session:
        """Restore the optimizer and what is trained beside the policy, and cut off what came after the checkpoint.

        Raises:
            CheckpointError: the policy does not have the weights that the ledger's last step left.
        """
        progress = Progress.read(self._state.facts) if self._state else Progress()

        def cut() -> None:
            if self._restart_with is not None:
                begin_run(self._directory.path, self._restart_with)
            if self._restart_with is not None or not self._directory.has_begun:
                keep(self._directory.path, self._inputs)
            if self._is_other_length:
                self._directory.finished.unlink(missing_ok=True)  # first: a run of the new length is not finished
                tables = read_toml(self._directory.config)
                tables["run"]["num_steps"] = self._config.num_steps
                write_file(self._directory.config, dump_tables(tables).encode())
            self._directory.ledger.truncate(progress.ledger)
            self._directory.metrics.truncate(progress.metrics)
            self._say_accepted(progress.step)

        RANKS.by_first(cut)
        if self._state:
            self._check_weights(policy)
            restore(self._state, optimizer, beside)
        self._state = None  # the moments are the optimizer's now
        sinks = Sinks.start(self._directory.path, self._sinks) if RANKS.is_first else Sinks()
        return Session(self._config, self._directory, self._hold, progress, policy, optimizer, beside, sinks)

    def _say_accepted(self, step: int) -> None:
        """Write every accepted change of an input that the ledger lacks, also where a kill has cut it off."""
        if accepted := recorded(self._directory.path)[1]:
            said = [line["accepted"] for line in self._directory.ledger.lines() if "accepted" in line]
            for change in accepted:
                if change not in said:
                    self._directory.ledger.append({"accepted": change, "step": step})

    def _check_weights(self, policy: Backbone) -> None:
        loaded, lines = policy.fingerprint(), self._directory.ledger.lines
        recorded = RANKS.by_first(lambda: [line["weights"] for line in lines() if "weights" in line][-1:])
        if recorded and loaded != recorded[-1]:
            raise CheckpointError(
                f"the policy loaded to resume from {self._checkpoint} has the weights {loaded}, but the ledger's last "
                f"step left {recorded[-1]}: other weights were saved or loaded than those that were trained"
            )


def resolved(kind: type[Section], tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recorded recipe with every value that it does not name, so that one without newer keys is resumed, too."""
    try:
        return tomllib.loads(dump_toml(parse(kind, tables)))
    except ConfigError:  # it can no longer be used: the differences from today's recipe will be named
        return tables


def restore(state: TrainerState, optimizer: Optimizer, beside: Beside | None) -> None:
    """Restore the optimizer, and what is trained beside the policy, from a checkpoint's state."""
    if beside:  # first: the optimizer compares weights in bf16 with its masters
        tensors = {n.removeprefix(BESIDE): tensor for n, tensor in state.tensors.items() if n.startswith(BESIDE)}
        with torch.no_grad():
            for name, weight in beside.trainable():
                weight.copy_(sharded_like(tensors[name], weight))
        if beside.optimizer:
            own = {n.removeprefix(MOMENT): tensor for n, tensor in tensors.items() if n.startswith(MOMENT)}
            updates = max((int(tensor) for name, tensor in own.items() if name.endswith(".step")), default=0)
            beside.optimizer.load_state(own, updates)
    moments = {name: tensor for name, tensor in state.tensors.items() if not name.startswith(BESIDE)}
    optimizer.load_state(moments, state.facts["updates_done"])
