"""CUDA graphs for decode: a step is recorded once per padded shape and replayed with one launch.

Launching a step's thousands of small kernels from Python takes longer than running them. A graph runs them on the
addresses that were recorded: every step is padded to one of few shapes (`round_up`), inputs are copied into a buffer,
keys and values live in one cache, and weights are updated in place; converted copies of them keep their addresses.
Graphs are made again when the cache, an address or the dtype changes, and stay between calls until `release`;
`sampling.cuda_graphs = false` does without them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from groupwise.errors import ModelError
from groupwise.models.policy import Policy
from groupwise.models.rounded import Rounded
from groupwise.rollout.decode import KvCache, Shape, Step, model_inputs

MAX_GRAPHS = 64
"""Graphs kept; the one longest unused goes first."""
SHORTEST_SUFFIX = 64
"""Shorter completions are padded to this many tokens: more graphs would not pay."""

Work = Callable[[], Tensor]
Record = Callable[[Work], Work]
"""Record some work; what it gives back does the work again, on the same addresses."""


def round_up(size: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ...: at most half as much again, two sizes per doubling."""
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and power * 3 // 4 >= size else power


def padded(shape: Shape, largest: Shape) -> Shape:
    """Pad a step's shape in a call that needs at most `largest`: only rows and suffix follow the step."""
    rows = round_up(shape.rows)
    suffix = round_up(max(shape.suffix, SHORTEST_SUFFIX))
    return Shape(rows, min(rows, largest.slots), min(rows, largest.members), largest.prompt, suffix)


@dataclass(frozen=True, slots=True)
class _Recorded:
    packed: Tensor
    replay: Work


class GraphDecoder:
    """Decode steps of one model, recorded. It holds no reference to the model, so it can be kept beside it."""

    def __init__(self, make_recorder: Callable[[], Record]) -> None:
        self.make_recorder = make_recorder
        self.cache = KvCache(Shape(0, 0, 0, 0, 0))
        self.largest = self.cache.room
        self.steps: dict[Shape, _Recorded] = {}
        self.rounded = Rounded(None, torch.float32)
        self.addresses: tuple[object, ...] = ()

    def begin(self, policy: Policy, largest: Shape) -> None:
        self.largest = Shape(*map(round_up, largest))._replace(suffix=round_up(max(largest.suffix, SHORTEST_SUFFIX)))
        room = Shape(*map(max, self.largest, self.cache.room))
        addresses = policy.addresses()
        if room != self.cache.room or addresses != self.addresses:
            self.steps.clear()
            self.record = self.make_recorder()
            self.cache = KvCache(room)
            self.rounded, self.addresses = policy.rounded(in_place=True), addresses
        self.rounded.refresh()

    def hidden(self, policy: Policy, step: Step) -> Tensor:
        """(n, d) final hidden states; the memory belongs to the graph and is overwritten by its next replay."""
        shape = padded(step.shape, self.largest)
        packed = torch.from_numpy(step.packed(shape))
        recorded = self.steps.pop(shape, None)
        if recorded is None:
            recorded = self._recorded(policy, shape, packed.to(policy.device, copy=True))
        recorded.packed.copy_(packed)
        self.steps[shape] = recorded  # at the end: used last
        if len(self.steps) > MAX_GRAPHS:
            del self.steps[next(iter(self.steps))]
        return recorded.replay()[: len(step.tokens)]

    def _recorded(self, policy: Policy, shape: Shape, packed: Tensor) -> _Recorded:
        cache = self.cache

        def work() -> Tensor:
            inputs = model_inputs(cache, packed, shape, masked=True)
            with policy.precision(keep=False):  # what is kept would hand memory of this graph to work outside of it
                return policy.hidden(*inputs)

        return _Recorded(packed, self.record(work))


class CudaRecorder:
    """Records work as CUDA graphs, all on one stream and from one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Do the work once, so that libraries set themselves up, and then record it."""
        present = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(present)
        with torch.cuda.stream(self.stream):
            work()
        present.wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # other threads may use the device meanwhile
            with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                out = work()
        except RuntimeError as error:
            raise ModelError(
                f"the decode step of this model cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}): "
                "set sampling.cuda_graphs = false"
            ) from error

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay


_DECODERS: WeakKeyDictionary[object, GraphDecoder] = WeakKeyDictionary()
"""By model, as long as the model lives."""


@contextmanager
def graph_decoder(policy: Policy, largest: Shape) -> Iterator[GraphDecoder]:
    """The model's decoder. While it is in use nobody else gets it, and after an error nobody does."""
    decoder = _DECODERS.pop(policy.identity, None) or GraphDecoder(partial(CudaRecorder, policy.device))
    decoder.begin(policy, largest)
    yield decoder
    _DECODERS[policy.identity] = decoder


def release(policy: Policy) -> None:
    """Free what is kept for the policy's model: graphs, keys and values, copies of weights."""
    _DECODERS.pop(policy.identity, None)
