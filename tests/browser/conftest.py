"""A real browser, and the explorer's server beside it."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Served(NamedTuple):
    """A running explorer."""

    address: str
    """With the token, as the command prints it."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A tab that remembers what went wrong in it and whom it asked."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def foreign(self, own: str) -> list[str]:
        """Requests to another origin."""
        return [url for url in self.requests if not url.startswith((own, "data:"))]


@pytest.fixture
def tab(chromium: Any) -> Iterator[Callable[..., Watched]]:
    """tab(**options) -> a new tab; no tab of a test may have logged an error."""
    contexts, tabs = [], []

    def make(**options: Any) -> Watched:
        context = chromium.new_context(**options)
        contexts.append(context)
        tabs.append(Watched(context.new_page()))
        return tabs[-1]

    yield make
    errors = [error for one in tabs for error in one.errors]
    for context in contexts:
        context.close()
    assert errors == [], errors


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """served(*runs) -> an explorer of these runs, in a process of its own, as people start it."""
    pytest.importorskip("starlette", reason="the explorer's server is an extra")
    processes = []

    def start(*runs: Path) -> Served:
        command = [sys.executable, "-m", "groupwise", "explore", *map(str, runs)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        timer = threading.Timer(60, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        assert line.startswith("Open http://127.0.0.1:"), line
        return Served(line.removeprefix("Open ").strip())

    yield start
    for process in processes:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, which finds what keeps people out; fetched from the npm registry, not kept."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "pack", "axe-core@4.10.3", "--silent"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        pytest.skip(f"axe-core cannot be fetched: {result.stderr[-200:]}")
    shutil.unpack_archive(folder / result.stdout.strip(), folder, "gztar")
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")
