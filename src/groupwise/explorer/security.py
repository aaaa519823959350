"""What stands between the browser and the pages: a page that another site opened reads nothing and starts nothing.

A server on 127.0.0.1 is within reach of every page in the same browser. So: one exact Host (against DNS rebinding), no
foreign Origin, no request that another site made, GET alone, and a token that only the command's printed address holds.
"""

import hmac
import json
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_PATH = 300
TOKEN_HEADER = "x-groupwise-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(NamedTuple):
    """A request that is not answered."""

    status: int
    why: str


class Guard:
    """Refuses before any page is asked, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str) -> None:
        self._app, self._hosts, self._token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *ours]}
            await send(message)

        if refusal := self.refusal(scope):
            await _refuse(refusal, guarded)
        else:
            await self._app(scope, receive, guarded)

    def refusal(self, scope: Scope) -> Refusal | None:
        """Why a request is not answered; None where it is."""
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return Refusal(400, "the Host is not that of the explorer")
        if scope["method"] != "GET":
            return Refusal(405, "only GET is allowed")
        if origins and origins != [f"http://{hosts[0]}"]:
            return Refusal(403, "the Origin is not the explorer")
        if any(site not in ("same-origin", "none") for site in _values(scope, b"sec-fetch-site")):
            return Refusal(403, "another site made the request")
        if len(scope.get("raw_path") or b"") > MOST_PATH:
            return Refusal(414, "the address is too long")
        if not scope["path"].startswith("/api/"):
            return None
        if scope.get("query_string"):
            return Refusal(400, "the facts take no query")
        tokens = _values(scope, TOKEN_HEADER.encode())
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0].encode(), self._token.encode()):
            return Refusal(403, "the token is missing or wrong: open the address that the command printed")
        return None


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = json.dumps({"error": refusal.why}).encode()
    headers: list[tuple[bytes, Any]] = [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
