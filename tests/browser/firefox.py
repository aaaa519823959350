"""Firefox by WebDriver BiDi, which it speaks itself: no driver, a WebSocket alone."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any


class Firefox:
    """One window of a Firefox without a screen; remembers what it logged and whom it asked."""

    def __init__(self, command: str, profile: Path, connect: Any) -> None:
        options = ["--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
        self.process = subprocess.Popen(
            [command, *options, "data:,"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        said = (re.search(r"BiDi listening on (ws://\S+)", line) for line in self.process.stderr)
        address = next(match[1] for match in said if match)
        self.socket = connect(f"{address}/session", timeout=60, suppress_origin=True)
        self.calls = 0
        self.events: list[dict[str, Any]] = []
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self.window = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != self.calls:
            self.events.append(answer)
        assert answer["type"] == "success", answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str, wait_for: str) -> None:
        """Open an address in a page of its own, and wait for an element."""
        self.call("browsingContext.navigate", context=self.window, url="about:blank", wait="complete")
        self.events.clear()
        self.call("browsingContext.navigate", context=self.window, url=address, wait="complete")
        self.wait_for(wait_for)

    def wait_for(self, selector: str) -> None:
        """Wait until there is such an element; at most half a minute."""
        there = f"document.querySelector({json.dumps(selector)})"
        look = f"new Promise((done) => {{ let left = 600; const look = () => {there} ? done(true) : left-- ? "
        assert self.js(look + "setTimeout(look, 50) : done(false); look(); })"), selector

    def js(self, expression: str) -> Any:
        """The value of an expression in the page, by JSON."""
        source = f"Promise.resolve({expression}).then((value) => JSON.stringify(value ?? null))"
        answer = self.call(
            "script.evaluate", expression=source, target={"context": self.window}, awaitPromise=True
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def text(self, selector: str) -> str:
        """What an element shows."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, *keys: str) -> None:
        """Keys on the element that has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self.call("input.performActions", context=self.window, actions=[source])

    @property
    def errors(self) -> list[str]:
        """What the page logged as an error."""
        entries = [one["params"] for one in self.events if one.get("method") == "log.entryAdded"]
        return [str(one["text"]) for one in entries if one["level"] == "error"]

    @property
    def requests(self) -> list[str]:
        """Whom the page asked."""
        sent = [one["params"] for one in self.events if one.get("method") == "network.beforeRequestSent"]
        return [str(one["request"]["url"]) for one in sent]

    def close(self) -> None:
        """End the browser."""
        self.call("browser.close")
        self.socket.close()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.process.wait(20)


LEFT, RIGHT, HOME, ENTER = "\ue012", "\ue014", "\ue011", "\ue007"
"""Keys as the protocol names them."""
