"""One POST over HTTP or HTTPS, bounded in time and in bytes.

The standard library suffices: `http.client` follows no redirect (the key would travel with it), ignores proxy
variables, and lets a reader of ours stand under the response, which is what bounds a server that drips or floods. The
timeouts of the usual clients (httpx, requests) apply to one read, not to the whole reply.
"""

import contextlib
import functools
import io
import socket
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_tls = functools.cache(ssl.create_default_context)  # reading the certificates once saves milliseconds per request
MAX_BYTES = 4 << 20  # most bytes of a response, headers included, where no other bound is given
_PIECE = 1 << 16


class Response(NamedTuple):
    """Reply to a request."""

    status: int
    retry_after: str
    body: bytes


class OversizedError(Exception):
    """The response is longer than it may be."""


def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, most: int | None = None) -> Response:
    """Send, and receive at most so many bytes, within `timeout_s` seconds.

    Connecting and the TLS handshake may each take that long again.

    Raises TimeoutError, OversizedError, and OSError, HTTPException or ValueError where what comes is not HTTP.
    """
    parts = urlsplit(url)
    deadline = time.monotonic() + timeout_s
    connection: HTTPConnection
    if parts.scheme == "https":
        connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=_tls())
    else:
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.connect()
        connection.sock.settimeout(_remaining_s(deadline))
        target = parts._replace(scheme="", netloc="", fragment="").geturl()
        connection.request("POST", target, body, dict(headers) | {"Connection": "close"})
        source = _Source(connection.sock, deadline, most or MAX_BYTES)
        with contextlib.closing(HTTPResponse(source, method="POST")) as response:  # type: ignore[arg-type]
            response.begin()
            pieces: list[bytes] = []
            # never read() everything at once: it would allocate as much as the header claims
            while piece := response.read(_PIECE):
                pieces.append(piece)
            if response.length:
                raise IncompleteRead(b"", response.length)
            return Response(response.status, response.getheader("Retry-After", ""), b"".join(pieces))


class _Source(io.RawIOBase):
    """The bytes of a response. Every read keeps the deadline and the limit, from the status line to the last chunk."""

    def __init__(self, connection: socket.socket, deadline: float, most: int) -> None:
        self._socket, self._deadline, self._remaining = connection, deadline, most

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(_remaining_s(self._deadline))
        size = self._socket.recv_into(buffer)
        self._remaining -= size
        if self._remaining < 0:
            raise OversizedError
        return size


def _remaining_s(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
