"""`--ranks N`: what `torchrun --nproc-per-node N -m groupwise ...` does, and one sentence where a rank was lost."""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence

from groupwise.errors import RankError


def launch(ranks: int, arguments: Sequence[str]) -> None:
    """Run `groupwise` with these arguments in so many processes of this machine, until the last one ends.

    Raises:
        RankError: one was killed.
        SystemExit: one ended with an error, which it named itself; or this process was told to end.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does: the ranks share the cores
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
        if not first:
            raise SystemExit(2) from None
        rank, number = next(iter(first.items()))
        raise RankError(
            f"rank {rank} of {ranks} was killed by {signal.Signals(number).name}, so the others were ended. What was "
            "finished is in the run directory; the same command resumes from the last checkpoint"
        ) from None
