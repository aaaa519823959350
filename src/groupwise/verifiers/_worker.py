"""A fork server of trusted workers, and the life of a worker.

Run as `python -m groupwise.verifiers._worker package.module:function memory_bytes` with the control of the server
(`sandbox/zygote.py`) as standard input. The server imports the function once, and its module's `warm_up` runs, if there
is one, before the first fork. A worker reads requests from its channel and answers them there, one at a time, until
the end of file; a frame is four bytes of length (big endian) and that many bytes of JSON.
"""

import gc
import importlib
import json
import math
import os
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from groupwise.sandbox.zygote import Server

HEADER = struct.Struct(">I")
_SPARE_CPU_S = 5


def encode(message: Any) -> bytes:
    """Return a message as a frame."""
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def answer_requests(function: Callable[[Any], Any], requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests `{"timeout_s": float, "request": ...}` until the end of file."""
    while len(header := requests.read(HEADER.size)) == HEADER.size:
        message = json.loads(requests.read(HEADER.unpack(header)[0]))
        # a second bound, in case the parent, which keeps the deadline, is gone
        usage = resource.getrusage(resource.RUSAGE_SELF)
        seconds = math.ceil(usage.ru_utime + usage.ru_stime + message["timeout_s"] + _SPARE_CPU_S)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        try:
            reply = {"reply": function(message["request"])}
        except Exception as error:  # reported as CRASHED with this text; the worker lives on
            reply = {"failed": f"{type(error).__name__}: {error}"[:400]}
        replies.write(encode(reply))
        replies.flush()


def main(target: str, memory_bytes: int) -> NoReturn:
    """Serve until the parent is gone; a forked process works until the end of its channel."""
    control = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    module_name, _, name = target.partition(":")
    module = importlib.import_module(module_name)
    function = getattr(module, name)
    getattr(module, "warm_up", lambda: None)()
    gc.freeze()  # what is imported stays shared with the workers
    channel, output = Server(control).serve()
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for stream in (sys.stdout, sys.stderr):  # what a function prints cannot fail
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
        with os.fdopen(channel, "rb", closefd=False) as requests, os.fdopen(channel, "wb") as replies:
            answer_requests(function, requests, replies)
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
