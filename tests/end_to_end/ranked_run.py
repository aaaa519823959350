"""Runs as one of several ranks, without a launcher; imported by the processes that the tests of this folder start."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processes import start

from groupwise.errors import GroupwiseError
from groupwise.trainers import train

FAILED = 3
"""Exit code of a rank that ended with a sentence, which is then in `rank-N.txt` beside the run."""
PATIENCE_S = 300.0


def start_ranks(recipes: Sequence[Any], size: int) -> list[Any]:
    """One process for each rank; every one runs the recipes one after the other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [start(be_rank, recipes, rank, size, port) for rank in range(size)]


def be_rank(recipes: Sequence[Any], rank: int, size: int, port: int) -> None:
    """Run recipes as one of several ranks."""
    import torch

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
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
    ranks = start_ranks(recipes, size)
    for process in ranks:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in ranks] == [0] * size
