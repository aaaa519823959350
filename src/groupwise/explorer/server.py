"""The explorer's server: the pages' files, and their facts as JSON. It reads; nothing can be changed through it."""

import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.explorer.pages import pages
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from groupwise.explorer.security import Guard
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
        raise
    raise ConfigError(
        f"the explorer's server needs {error.name}, which is not installed: `pip install 'groupwise[explorer]'`; "
        "`groupwise explore RUN --export page.html` needs nothing more"
    ) from None

ADDRESS = "127.0.0.1"


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
    return [
        Route("/", page, methods=["GET"]),
        Route("/{name}", page, methods=["GET"]),
        Route("/api/results", fact(views.results), methods=["GET"]),
        Route("/api/results/{number:int}", fact(views.result), methods=["GET"]),
        Route("/api/runs", fact(views.runs), methods=["GET"]),
        Route("/api/runs/{index:int}", fact(views.run), methods=["GET"]),
        Route("/api/runs/{index:int}/findings", fact(views.findings), methods=["GET"]),
        Route("/api/runs/{index:int}/places/{identifier}", fact(views.place), methods=["GET"]),
        Route(group, fact(views.group), methods=["GET"]),
        Route(group + "/samples/{sample:int}", fact(views.completion), methods=["GET"]),
    ]


def page(request: Request) -> Response:
    """A file of the pages."""
    kind, content = pages().get(request.path_params.get("name", "index.html"), (None, b""))
    if kind is None:
        return JSONResponse({"error": "there is no such page"}, 404)
    return Response(content, media_type=kind)


def serve(paths: Sequence[Path], port: int, on_address: Callable[[str], None]) -> None:
    """Serve until interrupted; `on_address` is told the address to open, which holds the token.

    Raises:
        ConfigError: the port is taken.
    """
    import socket

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise ConfigError(f"--port {port} cannot be used: {error.strerror}; choose another, or 0 for any") from None
        listening.listen(128)  # a browser that is quick finds somebody
        number = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        config = uvicorn.Config(make_app(paths, number, token), log_level="warning", access_log=False, ws="none")
        on_address(f"http://{ADDRESS}:{number}/#token={token}/")
        uvicorn.Server(config).run([listening])
