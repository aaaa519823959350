"""The page Learn in a real browser: its numbers, its keyboard, and that it opens from a file alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parity_cases import all_cases

from groupwise.explorer.export import write_export

pytestmark = pytest.mark.browser
HERE = Path(__file__).parents[1] / "unit" / "explorer"


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """Address of an exported page without a run."""
    return write_export([], tmp_path / "page.html").as_uri()


def advantages(page: Any) -> list[float]:
    return [float(element.get_attribute("data-advantage")) for element in page.query_selector_all("[data-advantage]")]


def test_the_seeds_group_is_there_with_its_numbers(tab: Callable[..., Any], alone: str) -> None:
    one = tab()
    one.page.goto(alone)
    one.page.wait_for_selector("#mean")
    assert "23 × 17" in one.page.inner_text("h1")
    assert (one.page.inner_text("#mean"), one.page.inner_text("#std")) == ("0.625", "0.484")
    texts = [one.page.inner_text(f"#advantage-{i}") for i in range(8)]
    assert texts.count("+0.77") == 5
    assert texts.count("−1.29") == 3
    after = [float(e.get_attribute("data-after")) for e in one.page.query_selector_all("[data-after]")]
    assert sum(after) == pytest.approx(1, abs=1e-12)
    assert one.page.inner_text("#total") == "100 %"
    assert one.foreign("file://") == []


def test_bars_are_as_long_as_their_numbers(tab: Callable[..., Any], alone: str) -> None:
    one = tab()
    one.page.goto(alone)
    one.page.wait_for_selector("#mean")
    widths = [element.bounding_box()["width"] for element in one.page.query_selector_all(".diverging i")]
    values = [abs(value) for value in advantages(one.page)]
    assert widths == pytest.approx([max(widths) * value / max(values) for value in values], abs=0.6)
    boxes = [element.bounding_box() for element in one.page.query_selector_all(".diverging")]
    for bar, box, value in zip(one.page.query_selector_all(".diverging i"), boxes, advantages(one.page), strict=True):
        middle = box["x"] + box["width"] / 2
        assert (bar.bounding_box()["x"] >= middle - 0.6) == (value > 0)


def test_a_changed_reward_changes_every_advantage_and_the_address(tab: Callable[..., Any], alone: str) -> None:
    one = tab()
    one.page.goto(alone)
    before = advantages(one.page)
    one.page.click("#toggle-2")
    after = advantages(one.page)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert "rewards=1%2C1%2C1%2C1%2C0%2C1%2C0%2C1" in one.page.url
    again = tab()
    again.page.goto(one.page.url)
    assert advantages(again.page) == after


def test_the_keyboard_alone_is_enough(tab: Callable[..., Any], alone: str) -> None:
    one = tab()
    one.page.goto(alone)
    one.page.wait_for_selector("#toggle-0")
    for _ in range(60):
        one.page.keyboard.press("Tab")
        if one.page.evaluate("document.activeElement.id") == "toggle-0":
            break
    one.page.keyboard.press("Enter")
    assert one.page.evaluate("document.activeElement.id") == "toggle-0"  # it stays where it was
    assert one.page.inner_text("#mean") == "0.500"
    for _ in range(120):
        one.page.keyboard.press("Tab")
        if one.page.evaluate("document.activeElement.id") == "set-estimator":
            break
    one.page.keyboard.type("group_mean")
    assert one.page.inner_text("#advantage-0") == "−0.50"


@pytest.mark.parametrize(
    "path", ["/learn?rewards=1,1,1", "/learn?rewards=0,0", "/learn?rewards=x,x", "/learn?rewards="]
)
def test_odd_groups_are_shown(tab: Callable[..., Any], alone: str, path: str) -> None:
    one = tab()
    one.page.goto(f"{alone}#{path}")
    one.page.wait_for_selector("[data-insight]")
    assert len(one.page.inner_text(".lead")) > 40


def test_nonsense_in_the_address_does_no_harm(tab: Callable[..., Any], alone: str) -> None:
    one = tab()
    query = "rewards=1,NaN,Infinity,1e300,<b>&estimator=__proto__&loss=constructor"
    query += "&clip_low=x&epochs=1e99&others=<script>"
    one.page.goto(f"{alone}#/learn?{query}")
    one.page.wait_for_selector("#mean")
    assert not {"NaN", "Infinity", "undefined"} & set(one.page.inner_text("main").split())
    one.page.goto(f"{alone}#/no/such/page")
    one.page.wait_for_selector("[role=alert]")


def test_the_arithmetic_is_that_of_the_algorithms_here_too(
    tab: Callable[..., Any], served: Callable[..., Any], a_run: Path
) -> None:
    one = tab()
    one.page.goto(served(a_run).address)
    one.page.wait_for_selector("h1")
    source = (HERE / "differences.mjs").read_text(encoding="utf-8").replace("export function", "function")
    work = f"{source}; return differences(page, cases);"
    program = f"async (cases) => {{ const page = await import('/arithmetic.js'); {work} }}"
    worst = one.page.evaluate(program, all_cases())
    assert worst.pop("count") > 10_000
    assert "names" not in worst
    assert worst.pop("clipped") == 0
    assert max(worst.values()) <= 1e-12, worst


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    from written_run import write_run

    return write_run(tmp_path / "first")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 640, 1280])
def test_it_fits_and_keeps_nobody_out(tab: Callable[..., Any], alone: str, axe: str, scheme: str, width: int) -> None:
    """640 pixels are what a window of 1280 has at 200 %."""
    one = tab(viewport={"width": width, "height": 900}, color_scheme=scheme)
    one.page.goto(alone)
    one.page.wait_for_selector("#mean")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    one.page.evaluate(axe)
    found = one.page.evaluate("axe.run().then((answer) => answer.violations)")
    serious = [
        (each["id"], each["nodes"][0]["html"][:150]) for each in found if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
