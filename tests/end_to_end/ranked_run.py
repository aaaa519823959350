"""Runs as one of several ranks, without a launcher; imported by the processes that the tests of this folder start."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from processes import start

from groupwise.errors import GroupwiseError
from groupwise.trainers import train

FAILED = 3
"""Exit code of a rank that ended with a sentence, which is then in `rank-N.txt` beside the run."""
PATIENCE_S = 300.0


Harm = Callable[[int], None]
"""Something that a rank, whose number it gets, does to itself before it begins."""


def start_ranks(recipes: Sequence[Any], size: int, harm: Harm | None = None) -> list[Any]:
    """One process for each rank; every one runs the recipes one after the other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [start(be_rank, recipes, rank, size, port, harm) for rank in range(size)]


def be_rank(recipes: Sequence[Any], rank: int, size: int, port: int, harm: Harm | None = None) -> None:
    """Run recipes as one of several ranks."""
    import torch

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if harm:
        harm(rank)
    for one in recipes:
        try:
            train(one)
        except GroupwiseError as error:
            path = Path(one.run.directory)
            path.with_name(f"{path.name}-rank-{rank}.txt").write_text(f"{type(error).__name__}: {error}")
            sys.stdout.flush()
            os._exit(FAILED)


def run_on_ranks(recipes: Sequence[Any], size: int) -> None:
    """Run the recipes to their ends on so many ranks; in this process's child for one."""
    assert exit_codes(start_ranks(recipes, size)) == [0] * size


def exit_codes(ranks: Sequence[Any]) -> list[int]:
    """Wait for the end of all of them."""
    for process in ranks:
        process.join(PATIENCE_S)
    return [process.exitcode for process in ranks]


AT_UPDATE = 5
"""Which update a rank does not live to see; two updates are a step."""


def killed(rank: int) -> None:
    """The last of two ranks is killed in the middle of a run."""
    _at_update(rank, signal.SIGKILL)


def told(rank: int) -> None:
    """The last of two ranks is told to end; the other is not."""
    _at_update(rank, signal.SIGTERM)


def stuck(rank: int) -> None:
    """The last of two ranks stops without a word, and lives."""
    _at_update(rank, signal.SIGSTOP)


def _at_update(rank: int, number: signal.Signals) -> None:
    from groupwise.training.optimizer import Optimizer

    update, done = Optimizer.update, 0

    def change(self: Optimizer, step: int) -> float:
        nonlocal done
        done += 1
        if rank == 1 and done == AT_UPDATE:
            os.kill(os.getpid(), number)
        return update(self, step)

    Optimizer.update = change  # type: ignore[method-assign]


def lost_while_they_connect(rank: int) -> None:
    """The last of four has come and said where it listens, and is killed before the others connect."""
    from groupwise.ranks.group import Ranks

    plain = Ranks._await_all

    def wait(self: Any, deadline: Any) -> None:
        plain(self, deadline)
        if rank == 3:
            threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            time.sleep(4.0)

    Ranks._await_all = wait  # type: ignore[method-assign]


def averages(rank: int) -> None:
    """Ranks' gradients are averaged, as FSDP2 does unless it is told otherwise."""
    from torch.distributed.fsdp import FSDPModule

    FSDPModule.set_gradient_divide_factor = lambda self, factor: None  # type: ignore[method-assign]


def counts_alone(rank: int) -> None:
    """The denominator is that of a rank's share."""
    from groupwise.training import micro_batches

    whole: Any = micro_batches.BatchSize

    def halved(num_completions: int, num_tokens: int, max_tokens: int) -> Any:
        return whole(num_completions=num_completions / 2, num_tokens=num_tokens / 2, max_tokens=max_tokens)

    micro_batches.BatchSize = halved  # type: ignore[misc, assignment]
