import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

from groupwise.explorer.export import write_report
from groupwise.cli.summary import printable, text_summary
from rich.console import Console

from groupwise.evaluation.run_data import load_run
from groupwise.evaluation.siblings import seed_curves
from groupwise.types import Outcome

EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x">[/bold]\x1b[2J{{ 7 * 7 }}{% raw %}"\'</think>1'


class Page(HTMLParser):
    """Collects tags and whatever a browser would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "srcset", "href", "data", "poster")]


def test_the_page_holds_the_numbers(finished_run: Any) -> None:
    target = write_report(finished_run.path)
    assert target == finished_run.path / "report.html"
    assert (finished_run.path / "report.png").exists()
    html = target.read_text()
    assert "0.0 → 75.0 %" in html
    assert "+75.0 points" in html
    assert "75.0 → 25.0 %" in html
    assert "26.0 → 52.8 tokens" in html
    assert "4 in training, 0 in evaluations" in html
    assert "4,000 (100 per second)" in html
    assert "generate 60 %, verify 10 %, train 30 %" in html
    assert "evidence of correct" in html
    assert "task.kind" in html
    assert "versions.numpy" in html


def test_other_seeds_beside_the_run_are_its_band(finished_run: Any) -> None:
    assert seed_curves(finished_run.path) == {}
    config = finished_run.path / "config.toml"
    text, lines = config.read_text(), (finished_run.path / "metrics.jsonl").read_text()
    for seed, change in ((1, ""), (2, ""), (3, "[optimizer]\nlr = 1.0\n"), (4, "not toml")):
        other = finished_run.path.parent / f"seed-{seed}"
        other.mkdir()
        (other / "config.toml").write_text(text.replace("[run]", f"[run]\nseed = {seed}") + change)
        dev = "".join(
            f'{{"kind": "dev", "step": {step}, "pass_at_1": [{0.125 * seed}, 0.0, 1.0]}}\n' for step in (0, 4)
        )
        (other / "metrics.jsonl").write_text(dev if seed < 3 else lines)
    own = seed_curves(finished_run.path)[0][4]
    assert seed_curves(finished_run.path).keys() == {0, 1, 2}
    html = write_report(finished_run.path).read_text()
    low, high = min(own, 0.125), max(own, 0.25)
    assert f"{100 * (own + 0.375) / 3:.1f} %, from {100 * low:.1f} % to {100 * high:.1f} %" in html
    assert "differ in their seed alone: 0, 1, 2." in html


def test_the_page_needs_nothing_from_outside(finished_run: Any) -> None:
    html = write_report(finished_run.path).read_text()
    page = Page(html)
    assert page.fetched
    assert all(value.startswith("data:image/svg+xml;base64,") for value in page.fetched)
    assert not re.search(r"@import|url\(|https?://", html)
    assert "script" not in page.tags


def test_everything_from_outside_is_escaped(fake_run: Any, group: Any) -> None:
    groups = [group("<b>a</b>", [(EVIL, Outcome.WRONG)])]
    fake_run.evaluation("test-before", 4, groups).evaluation("test-after", 4, groups)
    html = write_report(fake_run.path).read_text()
    page = Page(html)
    assert {"script", "b>a"}.isdisjoint(page.tags)
    assert page.tags.count("img") == 4  # the panels
    assert "&lt;script&gt;alert(1)" in html
    assert "{{ 7 * 7 }}{% raw %}&#34;&#39;" in html  # a value is no template
    assert "&lt;b&gt;a&lt;/b&gt;" in html
    assert "&lt;arithmetic&gt;" in html


def test_the_summary_is_safe_in_a_terminal(fake_run: Any, group: Any) -> None:
    groups = [group("a", [(EVIL, Outcome.WRONG)])]
    fake_run.evaluation("test-before", 4, groups).evaluation("test-after", 4, groups)
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(text_summary(load_run(fake_run.path)))
    assert "[/bold]\\x1b[2J" in captured.get()
    assert "\x1b" not in captured.get()
    assert printable("a\tb\nc") == "a\\tb\n  c"


def test_the_summary_holds_the_numbers(finished_run: Any) -> None:
    text = text_summary(load_run(finished_run.path)).plain
    assert re.search(r"pass@1, % +0\.0 \[0\.0, 65\.8\] +75\.0 \[\S+, \S+\] +\+75\.0", text)
    assert "grpo on <arithmetic> from base: 4 of 4 steps, finished" in text
    assert "2 problems × 2 samples" in text
    assert "training time    40.0 s" in text
    assert re.search(r"groupwise sample \S+/checkpoints/best 'What is 6×7\?'", text)
    # of the two problems 6×7 rose most; its first samples are shown
    assert (
        text.index("before, 0 % of its 2 samples")
        < text.index("41</think>")
        < text.index("after, 100 % of its 2 samples")
    )


def test_what_was_not_measured_is_never_zero(fake_run: Any) -> None:
    text = text_summary(load_run(fake_run.path)).plain
    html = write_report(fake_run.path).read_text()
    assert "0 of 4 steps, unfinished" in text
    assert re.search(r"training time +not measured", text)
    assert "not measured in training, not measured in evaluations" in text
    assert "not possible yet" in text
    tiles = re.findall(r"<strong>(.*?)</strong>", html)
    assert tiles == ["not measured"] * 4


def test_a_run_without_rewards_has_a_page_too(fake_run: Any) -> None:
    fake_run.directory.metrics.append({"step": 0, "loss": 5.5, "seconds": 0.5})
    assert "not measured" in write_report(fake_run.path).read_text()


def test_the_largest_fall_is_shown_too(fake_run: Any, group: Any) -> None:
    right, wrong = ("x</think>1", Outcome.CORRECT), ("y</think>2", Outcome.WRONG)
    before = [group("same", [wrong]), group("fell", [right]), group("rose", [wrong]), group("rose too", [wrong])]
    after = [group("same", [wrong]), group("fell", [wrong]), group("rose", [right]), group("rose too", [right])]
    fake_run.evaluation("test-before", 4, before).evaluation("test-after", 4, after)
    html = write_report(fake_run.path).read_text()
    assert re.findall(r"<article><h3>What is (.*?)\?</h3>", html) == ["rose", "rose too", "fell"]
    assert "chosen for the largest fall" in html


def test_behaviours_are_defined_and_shown_with_examples(fake_run: Any, group: Any) -> None:
    right = "<think>6×7=41. Wait, let me check. 7×6=42. No. 6×7=42.</think>\\boxed{42}"
    fake_run.evaluation("dev", 0, [group(name, [(right, Outcome.CORRECT)] * 2) for name in "abcde"])
    html = write_report(fake_run.path).read_text()
    assert html.count("<mark>Wait</mark>") == 3  # of different problems
    assert html.count("<mark>check. 7×6=42. No.</mark>") == 3
    assert "Completions that say that something is wrong and go back" in html
    assert r"<code>\bwait\b</code>" in html
    assert "No completion shows it." in html
    assert '<td data-name="backtracks">100.0 <small>[56.6, 100.0]</small></td>' in html


def test_examples_are_cut_and_escaped(fake_run: Any, group: Any) -> None:
    text = "<script>" + "x" * 500 + " wait <b> " + "y" * 500
    fake_run.evaluation("dev", 0, [group("a", [(text, Outcome.WRONG)])])
    html = write_report(fake_run.path).read_text()
    assert f"…{'x' * 79} <mark>wait</mark> &lt;b&gt; {'y' * 75}…" in html
    assert {"script", "b>"}.isdisjoint(Page(html).tags)


def test_phrases_of_the_recipe_are_used_and_shown(fake_run: Any, group: Any) -> None:
    config = fake_run.directory.config
    config.write_text(config.read_text() + '[behaviour.patterns.checks]\nen = ["<hold on>"]\n')
    fake_run.evaluation("dev", 0, [group("a", [("<hold on></think>1", Outcome.WRONG)])])
    html = write_report(fake_run.path).read_text()
    assert "<code>&lt;hold on&gt;</code>" in html
    assert "<mark>&lt;hold on&gt;</mark>" in html


def test_the_second_verifier_is_shown_and_its_alarm(fake_run: Any, group: Any) -> None:
    groups = [group("a", [("x", Outcome.CORRECT)])]
    example = {"problem": "<a>", "sample": 3, "evidence": "no answer <boxed>"}
    quiet = {
        "verifier": "math",
        "judged": 0,
        "rejected": 0,
        "failed": 0,
        "share": None,
        "alarm": False,
        "example": None,
    }
    loud = {**quiet, "judged": 9, "rejected": 8, "share": [0.9, 0.6, 1.0], "alarm": True, "example": example}
    fake_run.evaluation("dev", 0, groups, second=quiet)
    html = write_report(fake_run.path).read_text()
    assert "Second verifier" in html
    assert "Alarm" not in html
    fake_run.evaluation("dev", 2, groups, second=loud)
    html = write_report(fake_run.path).read_text()
    assert "<b>Alarm: reward hacking</b> after 2 steps." in html
    assert "8 of 9" in html
    assert "0.900 [0.600, 1.000]" in html
    assert "completion 3 of &lt;a&gt;: no answer &lt;boxed&gt;" in html


def test_without_a_second_verifier_the_page_says_nothing_of_it(finished_run: Any) -> None:
    assert "Second verifier" not in write_report(finished_run.path).read_text()


def test_neither_torch_nor_a_model_is_loaded() -> None:
    names = "groupwise.pages.run, groupwise.pages.summary"
    program = f"import sys, {names}; print(*{{'torch', 'transformers'}} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
