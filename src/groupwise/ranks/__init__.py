"""The processes that train one model together: who they are, what they agree on, and which weights lie where.

Nothing outside this package imports `torch.distributed`. One process is the ordinary case and takes the same path.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence

from pydantic import Field

from groupwise.config import Section
from groupwise.errors import RankError
from groupwise.runs.processes import ENDING


class RanksConfig(Section):
    """Several processes that train one model together (docs/do/cards.md); the command line sets their number."""

    partial_sums: int = Field(0, ge=0)
    """Number of partial sums of gradients, which are then added pairwise, and of shares in which problems are sampled.
    Runs with the same number give the same bits in one process, on half as many ranks and on as many; 0: as many as
    there are ranks. In one process a number above 1 samples more slowly, and holds some gradients more."""
    deadline_s: float = Field(1800.0, gt=0)
    """Seconds that a rank waits for the others before it gives them up and ends."""
    offload: bool = False
    """Keep every rank's rows of weights, gradients and moments in the processor's memory, and update them there: a card
    holds what it computes with, and no more (FSDP2's CPU offload). Every layer's weights travel to the card for each
    forward and backward. For several ranks; where they compute on processors nothing is elsewhere, nor any bit."""


def launch(ranks: int, arguments: Sequence[str]) -> None:
    """Run `groupwise --ranks`: start processes of these arguments on this machine, as torchrun does, and wait for them.

    Raises:
        RankError: one was killed.
        SystemExit: one ended with an error, which it named itself; or this process was told to end.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does: the ranks share the cores
    ending = [number.name for number in (signal.SIGINT, *ENDING) if signal.getsignal(number) is not signal.SIG_IGN]
    os.environ.setdefault("TORCHELASTIC_SIGNALS_TO_HANDLE", ",".join(ending))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=ranks, run_id=uuid.uuid4().hex, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-u", "-m", "groupwise", *arguments)
    except SignalException as ended:  # its ranks were told and have ended
        raise SystemExit(128 + ended.sigval) from None
    except ChildFailedError as error:
        killed = {rank: -failure.exitcode for rank, failure in error.failures.items() if failure.exitcode < 0}
        first = {rank: number for rank, number in killed.items() if number != signal.SIGTERM}
        if not first:  # each named its error, or was stopped by a signal
            raise SystemExit(max(2, *(failure.exitcode for failure in error.failures.values()))) from None
        rank, number = next(iter(first.items()))
        raise RankError(
            f"rank {rank} of {ranks} was killed by {signal.Signals(number).name}, so the others were ended. What was "
            "finished is in the run directory; the same command resumes from the last checkpoint"
        ) from None
