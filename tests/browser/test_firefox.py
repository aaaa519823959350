"""The pages in Firefox: the same numbers, by keyboard, at 360 pixels, with nothing asked of anybody else."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from firefox import ENTER, HOME, RIGHT, Firefox
from parity_cases import all_cases
from written_run import write_hostile, write_run

from groupwise.explorer.export import write_export

pytestmark = pytest.mark.browser
HERE = Path(__file__).parents[1] / "unit" / "explorer"
COMMAND = shutil.which("firefox-esr") or shutil.which("firefox")


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    socket = pytest.importorskip("websocket", reason="websocket-client is not installed")
    if COMMAND is None:
        pytest.skip("no Firefox is installed")
    browser = Firefox(COMMAND, tmp_path_factory.mktemp("profile"), socket.create_connection)
    yield browser
    browser.close()


@pytest.fixture
def firefox(started: Firefox) -> Iterator[Firefox]:
    """A window; no page of a test may have logged an error."""
    yield started
    assert started.errors == []


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "first")


def test_the_seeds_group_is_there_with_its_numbers(firefox: Firefox, tmp_path: Path) -> None:
    firefox.open(write_export([], tmp_path / "page.html").as_uri(), "#mean")
    assert (firefox.text("#mean"), firefox.text("#std"), firefox.text("#total")) == ("0.625", "0.484", "100 %")
    texts = firefox.js("[...Array(8).keys()].map((i) => document.getElementById(`advantage-${i}`).innerText)")
    assert (texts.count("+0.77"), texts.count("−1.29")) == (5, 3)
    assert [url for url in firefox.requests if not url.startswith(("file://", "data:"))] == []


def test_the_arithmetic_is_that_of_the_algorithms(firefox: Firefox, served: Callable[..., Any], a_run: Path) -> None:
    firefox.open(served(a_run).address, "h1")
    source = (HERE / "differences.mjs").read_text(encoding="utf-8").replace("export function", "function")
    work = f"const page = await import('/arithmetic.js'); {source}; return differences(page, cases);"
    worst = firefox.js(f"(async (cases) => {{ {work} }})({json.dumps(all_cases())})")
    assert worst.pop("count") > 10_000
    assert "names" not in worst
    assert worst.pop("clipped") == 0
    assert max(worst.values()) <= 1e-12, worst


def test_clicks_and_keys_lead_to_the_token_of_the_file(
    firefox: Firefox, served: Callable[..., Any], a_run: Path
) -> None:
    address = served(a_run).address
    firefox.open(address + "run/0", "[data-metric=reward] .plot")
    firefox.js("document.querySelector('[data-metric=reward] .plot').focus()")
    firefox.press(HOME, RIGHT, ENTER)
    firefox.wait_for(".virtual .row[data-row]")
    assert firefox.js("location.hash") == "#/run/0/at/s1"
    firefox.js("document.querySelector(\".virtual .row[data-row='1']\").focus()")
    firefox.press(ENTER)
    firefox.wait_for("#tokens .tok")
    recorded = pq.read_table(a_run / "rollouts" / "step-000001.parquet").to_pylist()[1]
    assert (
        "".join(firefox.js("[...document.querySelectorAll('#tokens .tok')].map((e) => e.textContent)"))
        == recorded["text"]
    )
    assert firefox.text("[data-fact=reward]") == f"{recorded['reward']:g}"
    own = address.partition("/#")[0]
    assert [url for url in firefox.requests if not url.startswith((own, "data:"))] == []


@pytest.mark.parametrize("page", ["run/0", "run/0/at/s0", "compare", "overlay", "learn"])
def test_hostile_texts_do_nothing_and_no_page_is_wider_than_a_phone(
    firefox: Firefox, served: Callable[..., Any], tmp_path: Path, page: str
) -> None:
    address = served(write_hostile(tmp_path / "hostile")).address
    size = {"width": 360, "height": 740}
    firefox.call("browsingContext.setViewport", context=firefox.window, viewport=size)
    try:
        firefox.open(address + page, "main h1")
        assert firefox.js("window.hacked ?? null") is None
        assert firefox.js("document.documentElement.scrollWidth") <= 360
    finally:
        firefox.call("browsingContext.setViewport", context=firefox.window, viewport=None)
