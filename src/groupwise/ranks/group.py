"""The processes that train one model together, of which this is one; the only place that knows how many there are.

All ranks run the same program on the same problems and hold the same groups, advantages and micro-batches; only what
takes long is divided: sampling, verifying, forwards and backwards, and the storage of weights. The results of each go
to all of them before anything is decided, so a decision needs no message: every rank comes to the same one.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from groupwise.errors import ConfigError, GroupwiseError, InvariantError, RankError
from groupwise.ranks import RanksConfig
from groupwise.runs.processes import handled, stop

T = TypeVar("T")
CONNECT_WAITS = 5
"""Timeouts that gloo waits for the first connection to a rank, which may have been lost since it came."""
CONNECT_S = 5.0  # The shortest of them, in seconds


class Ranks:
    """This process's place among the ranks; alone until `joined`, and then every method returns at once."""

    def __init__(self) -> None:
        self.rank, self.size, self.partial_sums = 0, 1, 1
        self._store: Any = None
        self._meetings = 0
        self._board: Any = None
        """Store in which ranks leave words for each other; one process uses `_words`."""
        self._words: dict[str, bytes] = {}
        self.deadline_s = math.inf
        self.offloads = False
        """True where the weights in shares lie in the processor's memory, wherever ranks compute."""

    @property
    def is_first(self) -> bool:
        """True for the process that writes ledger, metrics and checkpoints of the group."""
        return self.rank == 0

    @property
    def are_sums_fixed(self) -> bool:
        """True where sums of gradients do not depend on the number of ranks."""
        return self.partial_sums > 1

    @contextmanager
    def joined(self, config: RanksConfig) -> Iterator[None]:
        """Meet the other ranks where a launcher such as torchrun started several; leave them at the end.

        Raises:
            RankError: they did not come, or one was lost on the way.
            ConfigError: `partial_sums` or `offload` does not go with their number.
        """
        refuse_offload(config, ranks_started())
        self.partial_sums = _partial_sums(config.partial_sums, ranks_started())
        if ranks_started() == 1:
            try:
                yield
            finally:
                self.partial_sums = 1
            return
        with _lost_ranks_named(), handled(stop):
            self._meet(config.deadline_s)
            self.offloads = config.offload
            yield
            self._part()

    def _meet(self, deadline_s: float) -> None:
        import torch.distributed as dist
        from torch.distributed.rendezvous import rendezvous

        deadline = timedelta(seconds=deadline_s)
        if has_cuda := torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if self._store is None:
            self._store, *_ = next(rendezvous("env://", timeout=deadline))
        self.rank, self.size = rank_of_launcher(), ranks_started()
        self._meetings += 1  # a process may take part in several runs, one after the other
        store = torch._C._distributed_c10d.PrefixStore(f"groupwise/{self._meetings}", self._store)
        self._board = torch._C._distributed_c10d.PrefixStore(f"groupwise/{self._meetings}/said", self._store)
        self.deadline_s = deadline_s
        backend = "cpu:gloo,cuda:nccl" if has_cuda else "gloo"
        self._await_all(deadline)
        connect = timedelta(seconds=max(deadline_s / CONNECT_WAITS, CONNECT_S))
        dist.init_process_group(backend, timeout=connect, store=store, rank=self.rank, world_size=self.size)
        dist.distributed_c10d._set_pg_timeout(deadline)
        self._beside = dist.new_group(backend="gloo", timeout=deadline)

    def _await_all(self, deadline: timedelta) -> None:
        """Wait until every rank is there, so that coming and connecting are two waits, each with a deadline."""
        self._board.set(f"here/{self.rank}", "")
        self._board.wait([f"here/{rank}" for rank in range(self.size)], deadline)

    def _part(self) -> None:
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()
        self.rank, self.size, self.partial_sums = 0, 1, 1
        self._board, self.deadline_s, self.offloads = None, math.inf, False

    def is_first_to_say(self, sentence: str) -> bool:
        """Return True for the first rank that asks, so that all say an error once; before they meet, for each."""
        if self._store is None:
            return True
        with suppress(Exception):  # the store may be gone with its process
            return int(self._store.add(f"said/{hashlib.sha256(sentence.encode()).hexdigest()}", 1)) == 1
        return True

    def to_all(self, own: T, beside: bool = False) -> list[T]:
        """Return the objects of all ranks, in their order; `beside`: while other threads of theirs meet as well."""
        if self.size == 1:
            return [own]
        import torch.distributed as dist

        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, own, self._beside if beside else None)
        return everyone

    def by_first(self, work: Callable[[], T]) -> T:
        """Let the first rank do it, and return its result, or raise its `GroupwiseError`, on all."""
        if self.size == 1:
            return work()
        import torch.distributed as dist

        found: list[Any] = [None, None]
        if self.is_first:
            try:
                found[0] = work()
            except GroupwiseError as error:
                found[1] = error
        dist.broadcast_object_list(found)
        if found[1] is not None:
            raise found[1]
        result: T = found[0]
        return result

    def most(self, count: int, beside: bool = False) -> int:
        return max(self.to_all(count, beside))

    def total(self, numbers: Tensor) -> Tensor:
        """Return the sum of all ranks' numbers, added in their order; integers exactly, modulo 2^64."""
        if self.size == 1:
            return numbers
        parts = self.to_all(numbers.cpu())
        return torch.stack(parts).sum(0).to(numbers.device)

    def agree(self, what: str, fact: object) -> None:
        """Make sure that all ranks hold the same before they act on it."""
        facts = self.to_all(repr(fact)) if self.size > 1 else []
        if len(set(facts)) > 1:
            said = "; ".join(f"rank {rank}: {text[:80]}" for rank, text in enumerate(facts))
            raise InvariantError(f"the ranks do not agree about {what}: {said}")

    def post(self, name: str, word: str) -> None:
        """Leave a word where all ranks can read it, at once and from any thread; a later one replaces it."""
        if self._board is None:
            self._words[name] = word.encode()
        else:
            self._board.set(name, word)

    def posted(self, name: str) -> str:
        if self._board is None:
            return self._words.get(name, b"").decode()
        return self._board.get(name).decode() if self._board.check([name]) else ""

    def count(self, name: str, more: int = 0) -> int:
        if self._board is not None:
            return int(self._board.add(name, more))
        self._words[name] = str(total := int(self._words.get(name, b"0")) + more).encode()
        return total

    def shares(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Return this rank's shares of some items, of which there are `partial_sums` in all, as even as can be.

        The content of a share does not depend on the number of ranks.
        """
        count = self.partial_sums // self.size
        return [items[share :: self.partial_sums] for share in range(self.rank * count, (self.rank + 1) * count)]

    def collect(self, own: Sequence[Sequence[T]]) -> list[T]:
        """Return the results of all ranks' shares, in the order of the items."""
        return _interleaved([share for of_rank in self.to_all(list(own)) for share in of_rank])

    def portion(self, budget: int, num_tokens: int) -> int:
        """Return the most tokens in a micro-batch, so that `num_tokens` make one at least for each rank."""
        return budget if self.partial_sums == 1 else min(budget, max(1, -(-num_tokens // self.partial_sums)))

    def each(self, work: Callable[[T], Any], items: Sequence[T]) -> list[Any]:
        """Return `work` of every item, in order. Every rank does its share, with as many calls as the others.

        A rank whose share is smaller works on an item of another's and drops the result: what `work` needs of weights
        that lie on all ranks, all ranks have to ask for.
        """
        rounds = -(-len(items) // self.size)
        results = [portable(work(items[min(self.rank + i * self.size, len(items) - 1)])) for i in range(rounds)]
        return _interleaved(self.to_all(results))[: len(items)]


RANKS = Ranks()  # The group that this process belongs to


def ranks_started() -> int:
    """Return the number of processes that a launcher started; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def hosts_started() -> int:
    """Return the number of machines of those processes."""
    return ranks_started() // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", ranks_started())))


def rank_of_launcher() -> int:
    """Return this process's number among those that a launcher started; 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def refuse_offload(config: RanksConfig, ranks: int) -> None:
    """Refuse `ranks.offload` in one process, which has no shares to keep elsewhere."""
    if config.offload and ranks == 1:
        raise ConfigError(
            "ranks.offload = true is for several ranks, and this is one process: start more (--ranks N, torchrun), or "
            "set ranks.offload = false"
        )


def _partial_sums(wanted: int, ranks: int) -> int:
    if wanted and ranks > 1 and wanted not in (ranks, 2 * ranks):
        raise ConfigError(
            f"ranks.partial_sums = {wanted} does not go with {ranks} ranks: allowed are 0, {ranks} and {2 * ranks}, or "
            "any number in one process"
        )
    return wanted or ranks


def _interleaved(shares: Sequence[Sequence[T]]) -> list[T]:
    """The first of every share, then the second of every share, and so on."""
    return [shares[i % len(shares)][i // len(shares)] for i in range(sum(map(len, shares)))]


def portable(result: T) -> T:
    """Return the same with its tensors detached and on the processor, where every rank can read them."""
    moved: T = tree_map(lambda part: part.detach().cpu() if isinstance(part, Tensor) else part, result)
    return moved


def added(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of one shape, neighbours first: ((0 + 1) + (2 + 3)) + ...; it overwrites the parts."""
    terms = list(parts)
    while len(terms) > 1:
        pairs = [terms[i].add_(terms[i + 1]) for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


@contextmanager
def _lost_ranks_named() -> Iterator[None]:
    """Turn errors of the connections between ranks into one sentence."""
    import torch.distributed as dist

    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if "EADDRINUSE" in text or "address already in use" in text.lower():
            raise RankError(
                f"port {os.environ.get('MASTER_PORT')}, at which the ranks meet, is in use: choose another "
                "(torchrun --master-port, or MASTER_PORT)"
            ) from None
        if not isinstance(error, dist.DistError) and "gloo" not in text and "NCCL" not in text:
            raise
        why = "did not answer in time" if "imed out" in text or "imeout" in text else "ended"
        raise RankError(
            f"rank {rank_of_launcher()} gives up: another rank {why}. What was finished is in the run directory; "
            "the same command resumes from the last checkpoint, on any number of ranks"
        ) from None
