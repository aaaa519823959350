"""Every route is attacked; the list of routes is the server's own, so a new one is attacked, too."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from written_results import write_budget

pytest.importorskip("starlette", reason="the explorer's server is an extra")
pytest.importorskip("uvicorn", reason="the explorer's server is an extra")

from written_run import write_run

from groupwise.explorer.server import MOST_PATH, make_app, make_routes
from groupwise.explorer.views import Views
from groupwise.explorer.wire import pages, short_hash

PORT, TOKEN = 8017, "a-token"
HOST = f"127.0.0.1:{PORT}"
ROUTES = [route.path for route in make_routes(Views([]))]
Header = tuple[str, str]


def ask(
    app: Any, path: str, headers: list[Header], method: str = "GET", query: str = ""
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer; the request goes to the application as a server would hand it over."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


def good(*more: Header) -> list[Header]:
    return [("host", HOST), ("x-groupwise-token", TOKEN), *more]


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with every column, for all tests: no route writes."""
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def app(a_run: Path) -> Any:
    return make_app([a_run, write_budget(a_run.parent / "budget")], PORT, TOKEN)


@pytest.fixture(scope="module")
def addresses(a_run: Path) -> dict[str, str]:
    """An address that every route answers."""
    problem = short_hash("23×17")
    parts = {"{index:int}": "0", "{identifier}": "s0", "{problem}": problem, "{sample:int}": "0", "{name}": "app.js"}
    parts |= {"{number:int}": "0", "{vendored}": "uPlot.min.css"}
    found = {}
    for route in ROUTES:
        address = route
        for name, value in parts.items():
            address = address.replace(name, value)
        assert "{" not in address, f"the test has no value for a part of {route}"
        found[route] = address
    return found


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_answers_its_own_page(app: Any, addresses: dict[str, str], route: str) -> None:
    for more in ([], [("origin", f"http://{HOST}")], [("sec-fetch-site", "same-origin")], [("sec-fetch-site", "none")]):
        status, headers, body = ask(app, addresses[route], good(*more))
        assert (status, bool(body)) == (200, True), body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


ATTACKS: dict[str, tuple[list[Header], int]] = {
    "a foreign Host": ([("host", "evil.example"), ("x-groupwise-token", TOKEN)], 400),
    "another port": ([("host", "127.0.0.1:1"), ("x-groupwise-token", TOKEN)], 400),
    "no port": ([("host", "127.0.0.1"), ("x-groupwise-token", TOKEN)], 400),
    "a Host that begins right": ([("host", f"{HOST}.evil.example"), ("x-groupwise-token", TOKEN)], 400),
    "no Host": ([("x-groupwise-token", TOKEN)], 400),
    "two Hosts": (good(("host", "evil.example")), 400),
    "the same Host twice": (good(("host", HOST)), 400),
    "a foreign Origin": (good(("origin", "http://evil.example")), 403),
    "the Origin of a file": (good(("origin", "null")), 403),
    "an Origin with another scheme": (good(("origin", f"https://{HOST}")), 403),
    "an Origin with another port": (good(("origin", "http://127.0.0.1:1")), 403),
    "two Origins": (good(("origin", f"http://{HOST}"), ("origin", "http://evil.example")), 403),
    "another site": (good(("sec-fetch-site", "cross-site")), 403),
    "the same site, another origin": (good(("sec-fetch-site", "same-site")), 403),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_route_refuses(app: Any, addresses: dict[str, str], route: str, attack: str) -> None:
    headers, expected = ATTACKS[attack]
    status, answered, body = ask(app, addresses[route], headers)
    assert status == expected
    assert "error" in json.loads(body)
    assert "default-src 'none'" in answered["content-security-policy"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_every_route_takes_get_alone(app: Any, addresses: dict[str, str], route: str, method: str) -> None:
    assert ask(app, addresses[route], good(), method)[0] == 405


@pytest.mark.parametrize("route", [route for route in ROUTES if route.startswith("/api/")])
@pytest.mark.parametrize("tokens", [[], [""], ["wrong"], [TOKEN[:-1]], [TOKEN + "x"], [TOKEN, "wrong"], ["ä"]])
def test_facts_need_the_token(app: Any, addresses: dict[str, str], route: str, tokens: list[str]) -> None:
    headers = [("host", HOST), *(("x-groupwise-token", token) for token in tokens)]
    assert ask(app, addresses[route], headers)[0] == 403


BAD_PARTS = (
    "..", "../..", "%2e%2e", "..%2f..", "....//", "/etc/passwd", "C:\\", "a\x00b", "s0%00", "-1", "99", "1e9", "s-1",
    "config.toml", "S0", "e" + "0" * 64, "9" * 200, "<script>", "s0;rm", "*", "~",
)  # fmt: skip


@pytest.mark.parametrize("route", [route for route in ROUTES if "{" in route])
@pytest.mark.parametrize("bad", BAD_PARTS)
def test_no_part_of_an_address_is_a_path(app: Any, addresses: dict[str, str], route: str, bad: str) -> None:
    names = [part for part in route.split("/") if "{" in part]
    pattern, address = route.split("/"), addresses[route].split("/")
    for name in names:
        attacked = [bad if part == name else own for part, own in zip(pattern, address, strict=True)]
        status, _, body = ask(app, "/".join(attacked), good())
        assert status == 404, (attacked, body)
        assert b"root:" not in body


@pytest.mark.parametrize("route", ROUTES)
def test_a_long_address_is_refused(app: Any, addresses: dict[str, str], route: str) -> None:
    assert ask(app, addresses[route] + "a" * MOST_PATH, good())[0] == 414


@pytest.mark.parametrize("route", [route for route in ROUTES if route.startswith("/api/")])
def test_facts_take_no_query(app: Any, addresses: dict[str, str], route: str) -> None:
    assert ask(app, addresses[route], good(), query="path=/etc/passwd")[0] == 400


def test_what_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    a_run = write_run(tmp_path / "first")
    app = make_app([a_run], PORT, TOKEN)
    _, headers, _ = ask(app, "/api/runs/0", good())
    status, _, body = ask(app, "/api/runs/0", good(("if-none-match", headers["etag"])))
    assert (status, body) == (304, b"")
    with (a_run / "metrics.jsonl").open("a") as file:
        file.write('{"kind":"step","step":3,"reward":0.9}\n')
    assert ask(app, "/api/runs/0", good(("if-none-match", headers["etag"])))[0] == 200


def test_a_websocket_is_closed(app: Any) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app({"type": "websocket", "headers": [], "path": "/"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_hostile_runs_are_answered(hostile: Path) -> None:
    app = make_app([hostile], PORT, TOKEN)
    place = json.loads(ask(app, "/api/runs/0/places/s0", good())[2])
    problem = place["groups"][0]["id"]
    for address in ("/api/runs", "/api/runs/0", f"/api/runs/0/places/s0/groups/{problem}"):
        status, headers, body = ask(app, address, good())
        assert (status, headers["content-type"]) == (200, "application/json")
        json.loads(body)


def test_the_pages_hold_no_inline_script_and_make_no_markup_of_text() -> None:
    for name, (_, content) in pages().items():
        text = content.decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), name
        assert "https://" not in re.sub(r"^/\*! https://\S+ ", "", text), name  # the heading of a vendored library
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ):
            assert way not in text, f"{name} uses {way}"
        if name.endswith(".html"):
            assert "<script>" not in text
            assert "style=" not in text
