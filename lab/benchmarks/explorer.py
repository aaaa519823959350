"""Time the explorer's pages: ten thousand completions of a thousand tokens, and a full exported page.

    pip install -c constraints.txt -e '.[explorer,browser]'   # and a Chromium
    python lab/benchmarks/explorer.py
    python lab/benchmarks/explorer.py --repeats 9 --chromium /usr/bin/chromium

Two things are measured. Processor time, which other programs hardly disturb: of the facts (what the server computes for
a list that nobody has asked for before, and for a completion) and of the page's main thread from a click until the
first row or token is there. And, in a real browser with the server in a process of its own, the time that passes
meanwhile (on a busy machine mostly waiting for others); the heap of the page afterwards; and the same of an exported
page of 8 MB until it shows its first chart. Medians, smallest and largest are printed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from machine import describe

from groupwise.explorer.export import write_export
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded, short_hash
from groupwise.runs.directory import RunDirectory
from groupwise.runs.rollouts import write_rows
from groupwise.runs.row import Index

GROUPS, SIZE, TOKENS = 625, 16, 1000
CONFIG = '[run]\nnum_steps = 1\nseed = 0\n[model]\npath = "base"\n[task]\nkind = "arithmetic"\n'
PROBLEM = "problem 300"


def group(number: int, size: int, tokens: int) -> list[dict[str, Any]]:
    """A group whose completions have every figure of a token that a step records."""
    draw = np.random.default_rng(number)
    ends = np.arange(1, tokens + 1, dtype=np.int64) * 5
    rows = []
    for sample in range(size):
        names = ("sampling_logprobs", "trainer_logprobs", "after_logprobs", "entropy", "ratio", "kl")
        figures = {name: draw.random(tokens, np.float32) for name in names}
        words = "".join(draw.choice(["so 2 ", "plus ", "is 4 ", "and  "], tokens))
        rows.append({
            "step": 0, "problem": f"problem {number}", "difficulty": "", "language": "", "question": "What is it?",
            "reference": "4", "open_ended": False, "prompt": "What is it?", "prefill": "", "sample": sample,
            "text": words, "finish_reason": "stop", "outcome": "correct" if sample % 2 else "wrong", "answer": "4",
            "evidence": "", "reward": float(sample % 2),
            "reward_parts": {"accuracy": float(sample % 2), "format": 0.0},
            "advantage": sample % 2 - 0.5, "policy_version": 0,
            "token_ids": draw.integers(0, 30_000, tokens), "num_tokens": tokens, "trained": True, "token_ends": ends,
            **figures,
        })  # fmt: skip
    return rows


def write_run(folder: Path, groups: int, tokens: int, steps: int = 1) -> Path:
    """A run as training leaves it, index included."""
    run = RunDirectory(folder)
    (folder / "rollouts").mkdir(parents=True)
    run.config.write_text(CONFIG)
    (folder / "ledger.jsonl").write_text("")
    index = Index(run, steps)
    for step in range(steps):
        rows = [group(step * groups + number, SIZE, tokens) for number in range(groups)]
        index.add(f"step-{step:06d}", write_rows(run.rollouts(step), rows))
        run.metrics.append({"kind": "step", "step": step, "reward": 0.5})
    return folder


def spent(work: Callable[[], object], repeats: int) -> list[float]:
    """Processor seconds of each repeat."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return found


def say(what: str, seconds: list[float], bar: float) -> None:
    """One line."""
    middle, low, high = (1000 * value for value in (median(seconds), min(seconds), max(seconds)))
    print(f"{what:54} {middle:6.0f} ms  [{low:.0f}, {high:.0f}]  of {len(seconds)}; to reach: {1000 * bar:.0f} ms")


def served(run: Path) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-m", "groupwise", "explore", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().removeprefix("Open ").strip()


class Waited(NamedTuple):
    """From a click, or an address, until something is on the page."""

    seconds: float
    """That passed."""
    thread: float
    """Processor seconds of the page's main thread."""


class Watch:
    """A page and its clock."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._tools = page.context.new_cdp_session(page)
        self._tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _thread(self) -> float:
        metrics = self._tools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def until(self, element: str, act: Callable[[], object]) -> Waited:
        """Do something and wait for an element."""
        thread, began = self._thread(), time.perf_counter()
        act()
        self.page.wait_for_selector(element)
        passed = time.perf_counter() - began
        return Waited(passed, self._thread() - thread)

    def click(self, address: str, element: str) -> Waited:
        """Go to an address within the page."""
        return self.until(element, lambda: self.page.evaluate(f"location.hash = {json.dumps(address)}"))


def visits(watch: Watch, address: str, repeats: int) -> Iterator[tuple[Waited, Waited]]:
    """The list, then a completion, each in a page that was just opened."""
    for _ in range(repeats):
        watch.page.goto("about:blank")
        watch.page.goto(address + "run/0")
        watch.page.wait_for_selector("#doctor ul, #doctor p:not(:text('…'))")
        first = watch.click("/run/0/at/s0", ".virtual .row[data-row='0']")
        yield first, watch.click(f"/run/0/at/s0/{short_hash(PROBLEM)}/5", "#tokens .tok")


def tell(what: str, waited: list[Waited], bar: float) -> None:
    """Two lines."""
    say(f"{what}, main thread", [one.thread for one in waited], bar)
    say(f"{what}, time that passed", [one.seconds for one in waited], bar)


def in_browser(run: Path, exported: Path, chromium: str, repeats: int) -> None:
    """Return the times that a person waits, in seconds."""
    from playwright.sync_api import sync_playwright

    process, address = served(run)
    try:
        with sync_playwright() as driver:
            flags = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
            browser = driver.chromium.launch(executable_path=chromium, args=flags)
            watch = Watch(browser.new_page())
            times = list(visits(watch, address, repeats))
            tell("list of 10,000 completions", [first for first, _ in times], 0.3)
            tell("completion of 1,000 tokens", [second for _, second in times], 0.2)
            heap = watch.page.evaluate("performance.memory.usedJSHeapSize") / 1e6
            print(f"{'heap of the page after these visits':54} {heap:6.0f} MB; to reach: 150 MB")
            tell(
                f"exported page of {exported.stat().st_size / 1e6:.1f} MB", list(openings(watch, exported, repeats)), 1
            )
            browser.close()
    finally:
        process.terminate()
        process.wait(20)


def openings(watch: Watch, exported: Path, repeats: int) -> Iterator[Waited]:
    """An exported page, opened again and again."""
    for _ in range(repeats):
        watch.page.goto("about:blank")
        yield watch.until(".metric", lambda: watch.page.goto(f"{exported.as_uri()}#/run/0"))


def main() -> None:
    """Write the runs, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    options = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as scratch:
        run = write_run(Path(scratch) / "big", GROUPS, TOKENS)
        size = (run / "rollouts" / "step-000000.parquet").stat().st_size
        print(f"one step: {GROUPS} groups of {SIZE} completions of {TOKENS} tokens, {size / 1e6:.0f} MB of Parquet")
        cold = spent(lambda: encoded(Views([run]).place(0, "s0")), options.repeats)
        say("facts of the list, processor time", cold, 0.3)
        views = Views([run])
        views.place(0, "s0")
        one = spent(lambda: encoded(views.completion(0, "s0", short_hash(PROBLEM), 5)), options.repeats)
        say("facts of a completion, processor time", one, 0.2)
        exported = write_export([write_run(Path(scratch) / "many", 16, 100, 40)], Path(scratch) / "page.html")
        if options.chromium is None:
            print("no Chromium: what a person waits for was not measured")
            return
        in_browser(run, exported, options.chromium, options.repeats)


if __name__ == "__main__":
    main()
