"""A worker process: reads requests from standard input, answers on standard output, one at a time, until end of file.

Run as `python -m groupwise.verifiers._worker package.module:function memory_bytes`. A frame is four bytes of length
(big endian) and that many bytes of JSON. The first frame out is `{"ready": true}`, sent after the imports. Memory is
bounded by RLIMIT_AS; RLIMIT_CPU is a second line should the parent, which keeps the deadline, be gone.
"""

import importlib
import json
import math
import os
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

HEADER = struct.Struct(">I")
_SPARE_CPU_S = 5


def read_frame(stream: BinaryIO) -> Any:
    """The next message, or None at end of file."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return json.loads(stream.read(HEADER.unpack(header)[0]))


def write_frame(stream: BinaryIO, message: Any) -> None:
    """Send one message and flush it."""
    stream.write(encode(message))
    stream.flush()


def encode(message: Any) -> bytes:
    """A message as a frame."""
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def serve(function: Callable[[Any], Any], requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests `{"timeout_s": float, "request": ...}` until end of file."""
    write_frame(replies, {"ready": True})
    while (message := read_frame(requests)) is not None:
        _allow_cpu(message["timeout_s"])
        write_frame(replies, _attempt(function, message["request"]))


def _attempt(function: Callable[[Any], Any], request: Any) -> dict[str, Any]:
    try:
        return {"reply": function(request)}
    except Exception as error:  # reported as CRASHED with this text; the worker lives on
        return {"failed": f"{type(error).__name__}: {error}"[:400]}


def _allow_cpu(seconds: float) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(usage.ru_utime + usage.ru_stime + seconds + _SPARE_CPU_S)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _main(target: str, memory_bytes: int) -> None:
    # what libraries print must not reach the protocol: keep the pipe, point standard output at standard error
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    serve(function, sys.stdin.buffer, replies)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
