"""The explorer's server: the pages' files, and their facts as JSON. It reads; nothing can be changed through it.

A server on 127.0.0.1 is within reach of every page in the same browser. So: one exact Host (against DNS rebinding), no
foreign Origin, no request that another site made, GET alone, and a token that only the command's printed address holds.
"""

import hashlib
import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded, pages

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
        raise
    raise ConfigError(
        f"the explorer's server needs {error.name}, which is not installed: `pip install 'groupwise[explorer]'`; "
        "`groupwise explore RUN --export page.html` needs nothing more"
    ) from None

ADDRESS = "127.0.0.1"
MOST_PATH = 300
TOKEN_HEADER = "x-groupwise-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff", "x-frame-options": "DENY",
    "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin", "cache-control": "no-store",
}  # fmt: skip


class Guard:
    """Refuse before any page is asked, and give every answer its headers."""

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

        refusal = self.refusal(scope)
        answer = self._app if refusal is None else JSONResponse({"error": refusal[1]}, refusal[0])
        await answer(scope, receive, guarded)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        def values(name: str) -> list[str]:
            return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name.encode()]

        hosts, origins = values("host"), values("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 400, "the Host is not that of the explorer"
        if scope["method"] != "GET":
            return 405, "only GET is allowed"
        if origins and origins != [f"http://{hosts[0]}"]:
            return 403, "the Origin is not the explorer"
        if any(site not in ("same-origin", "none") for site in values("sec-fetch-site")):
            return 403, "another site made the request"
        if len(scope.get("raw_path") or b"") > MOST_PATH:
            return 414, "the address is too long"
        if not scope["path"].startswith("/api/"):
            return None
        if scope.get("query_string"):
            return 400, "the facts take no query"
        tokens = values(TOKEN_HEADER)
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0].encode(), self._token.encode()):
            return 403, "the token is missing or wrong: open the address that the command printed"
        return None


def make_app(paths: Sequence[Path], port: int, token: str) -> Guard:
    """The application: its routes behind its guard."""
    hosts = frozenset({f"{ADDRESS}:{port}", f"localhost:{port}"})
    app = Starlette(routes=make_routes(Views(paths)))
    app.router.redirect_slashes = False  # an address is right or wrong
    return Guard(app, hosts, token)


def make_routes(views: Views) -> list[Route]:
    """All routes. Runs are asked for by index, problems by a hash, samples by number: no address holds a path."""
    lock = threading.Lock()  # the readers remember what they read, and several threads ask

    def fact(answer: Callable[..., Any]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            try:
                with lock:
                    body = encoded(answer(**request.path_params))
            except GroupwiseError as error:
                return JSONResponse({"error": str(error)}, 404)
            except Exception as error:  # whatever a damaged or hostile file causes, the server lives and says so
                return JSONResponse({"error": f"this cannot be shown: {error!r}"[:500]}, 500)
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            headers = {"etag": etag}
            if request.headers.get("if-none-match") == etag:
                return Response(status_code=304, headers=headers)
            return Response(body, media_type="application/json", headers=headers)

        return endpoint

    group = "/api/runs/{index:int}/places/{identifier}/groups/{problem}"
    run = "/api/runs/{index:int}"
    facts: dict[str, Callable[..., Any]] = {
        "/api/start": views.start, "/api/results": views.results, "/api/results/{number:int}": views.result,
        "/api/runs": views.runs, run: views.run, f"{run}/report": views.report, f"{run}/findings": views.findings,
        f"{run}/places/{{identifier}}": views.place, group: views.group,
        f"{group}/samples/{{sample:int}}": views.completion,
    }  # fmt: skip
    of_facts = [Route(address, fact(answer), methods=["GET"]) for address, answer in facts.items()]
    return [*of_facts, *(Route(file, page, methods=["GET"]) for file in ("/", "/{name}", "/vendor/{vendored}"))]


def page(request: Request) -> Response:
    """A file of the pages."""
    name, vendored = request.path_params.get("name", "index.html"), request.path_params.get("vendored")
    kind, content = pages().get(f"vendor/{vendored}" if vendored else name, (None, b""))
    if kind is None:
        return JSONResponse({"error": "there is no such page"}, 404)
    return Response(content, media_type=kind)


def serve(paths: Sequence[Path], port: int, on_address: Callable[[str], None]) -> None:
    """Serve until interrupted; `on_address` is told the address to open, which holds the token."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise ConfigError(f"--port {port} cannot be used: {error.strerror}; choose another, or 0 for any") from None
        listening.listen(128)
        number = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        config = uvicorn.Config(make_app(paths, number, token), log_level="warning", access_log=False, ws="none")
        on_address(f"http://{ADDRESS}:{number}/#token={token}/")
        uvicorn.Server(config).run([listening])
