"""What programs read and write, seen from outside: files in memory, pipes, output up to a cap and a deadline."""

import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

_CHUNK = 1 << 16


class Outputs:
    """Standard output and error of one program, read as they come."""

    def __init__(self, max_kb: int) -> None:
        self._max_bytes = max_kb << 10
        self._stdout, self._stderr = bytearray(), bytearray()
        self._places: dict[int, bytearray] = {}

    def open_stdout(self, ours: ExitStack, theirs: ExitStack) -> int:
        """The write end of a new pipe for standard output; both ends are closed with their stacks."""
        return self._open(self._stdout, ours, theirs)

    def open_stderr(self, ours: ExitStack, theirs: ExitStack) -> int:
        """The same for standard error."""
        return self._open(self._stderr, ours, theirs)

    def _open(self, place: bytearray, ours: ExitStack, theirs: ExitStack) -> int:
        read, write = theirs.enter_context(pipe())
        ours.callback(os.close, kept := os.dup(read))
        self._places[kept] = place
        return write

    @property
    def readers(self) -> Mapping[int, Callable[[int], bool]]:
        """For `watch`."""
        return dict.fromkeys(self._places, self._read)

    def _read(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK)
        self._places[descriptor] += chunk
        return bool(chunk)

    @property
    def is_flooded(self) -> bool:
        return max(len(self._stdout), len(self._stderr)) > self._max_bytes

    @property
    def stdout(self) -> bytes:
        return bytes(self._stdout[: self._max_bytes])

    @property
    def stderr(self) -> bytes:
        return bytes(self._stderr[: self._max_bytes])


def watch(
    readers: Mapping[int, Callable[[int], bool]], deadline: Callable[[], float], is_flooded: Callable[[], bool]
) -> None:
    """Call readers of descriptors as these become ready, until each has returned False, a flood, or the deadline."""
    with selectors.DefaultSelector() as selector:
        for descriptor, read in readers.items():
            selector.register(descriptor, selectors.EVENT_READ, read)
        while selector.get_map() and not is_flooded():
            ready = selector.select(max(0.0, deadline() - time.monotonic()))
            if not ready:
                return
            for key, _ in ready:
                if not key.data(key.fd):
                    selector.unregister(key.fd)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Read and write end of a pipe, closed in the end; whoever was handed them keeps his own."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A file without a name that holds these bytes, open for reading only."""
    with open(os.memfd_create("groupwise"), "wb") as file:
        file.write(content)
        file.flush()
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
